package local

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// stat is what the kernel says of a process.
type stat struct {
	state byte
	group int
	start uint64
}

func (s stat) ended() bool { return s.state == 'Z' || s.state == 'X' || s.state == 'x' }

// readStat reads /proc/PID/stat; fs.ErrNotExist if there is no such process.
func readStat(pid int) (s stat, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, syscall.ESRCH) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return s, err
	}
	// pid (comm) state ppid pgrp … starttime: comm may have anything in it.
	rest := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	const state, group, start = 0, 2, 19
	if len(rest) <= start {
		return s, fmt.Errorf("/proc/%d/stat has %d fields", pid, len(rest))
	}
	s.state = rest[state][0]
	g, gerr := strconv.Atoi(rest[group])
	t, terr := strconv.ParseUint(rest[start], 10, 64)
	s.group, s.start = g, t
	return s, errors.Join(gerr, terr)
}

func bootID() (string, error) {
	raw, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(raw)), err
}

// identify is the identity of a process that this one has started.
func identify(pid int, mark string) (identity, error) {
	boot, err := bootID()
	if err != nil {
		return identity{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	s, err := readStat(pid)
	if err != nil {
		return identity{}, fmt.Errorf("identify process %d: %w", pid, err)
	}
	return identity{boot, pid, s.start, mark}, nil
}

// group is what is left of a process group. Each process is held by a handle that
// stays its own when its pid is another's.
type group struct {
	identity
	held map[int]*os.Process
	told map[int]bool // SIGTERM was sent
}

// look finds the processes of the group that have not ended. It looks twice before it
// says that there are none: one that was started meanwhile may have been missed.
func (g *group) look() (left int, err error) {
	if left, err = g.lookOnce(); left > 0 || err != nil {
		return left, err
	}
	return g.lookOnce()
}

func (g *group) lookOnce() (left int, err error) {
	boot, err := bootID()
	if err != nil || boot != g.boot { // another boot: all of it has ended
		return 0, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	led, err := g.led()
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if err := g.hold(pid, led); err != nil {
				return 0, err
			}
		}
	}
	maps.DeleteFunc(g.held, ended)
	return len(g.held), nil
}

// unlessGone is an error that leaves open whether a process is of the group. One that
// has ended is not, and one of another user can neither be read nor signalled.
func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// led reports whether the first process is there, running or not waited for: then
// the group is its own.
func (g *group) led() (bool, error) {
	s, err := readStat(g.pid)
	return err == nil && s.start == g.start, unlessGone(err)
}

// hold takes a handle on a process if it is of the group: by the group's number
// while its first process has it, and by the mark otherwise.
func (g *group) hold(pid int, led bool) error {
	if g.held[pid] != nil || pid == os.Getpid() {
		return nil
	}
	s, err := readStat(pid)
	if err != nil || s.group != g.pid || s.ended() || s.start < g.start {
		return unlessGone(err)
	}
	p, err := os.FindProcess(pid) // by a pidfd
	if err != nil {
		return fmt.Errorf("hold process %d: %w", pid, err)
	}
	// What is read from here on is of the process that the handle is for, if that is
	// alive afterwards.
	ours, err := g.owns(pid, s, led)
	if err != nil || !ours || p.Signal(syscall.Signal(0)) != nil {
		_ = p.Release() // never fails
		return err
	}
	if g.held == nil {
		g.held = make(map[int]*os.Process)
	}
	g.held[pid] = p
	return nil
}

// owns reports whether a process is still what was read of it, and of the group.
func (g *group) owns(pid int, was stat, led bool) (bool, error) {
	again, err := readStat(pid)
	if err != nil || again.group != was.group || again.start != was.start {
		return false, unlessGone(err)
	}
	if led {
		if led, err = g.led(); led || err != nil {
			return led, err
		}
	}
	return g.marked(pid)
}

// marked reports whether a process has inherited the mark.
func (g *group) marked(pid int) (bool, error) {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false, unlessGone(err)
	}
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if string(v) == Mark+"="+g.mark {
			return true, nil
		}
	}
	return false, nil
}

// ended reports whether a process that is held has ended, and lets it go. One that
// nobody waits for has ended all the same.
func ended(pid int, p *os.Process) bool {
	s, err := readStat(pid)
	alive := p.Signal(syscall.Signal(0)) == nil
	if alive && (err != nil || !s.ended()) {
		return false
	}
	_ = p.Release() // never fails
	return true
}

// signal asks the processes to end, once each, or ends them.
func (g *group) signal(kill bool) {
	for pid, p := range g.held {
		switch {
		case kill:
			_ = p.Signal(syscall.SIGKILL) // one that has ended is not found again
		case !g.told[pid]:
			g.told[pid] = true
			_ = p.Signal(syscall.SIGTERM) // so is this
			_ = p.Signal(syscall.SIGCONT) // one that is stopped would not hear of it
		}
	}
}
