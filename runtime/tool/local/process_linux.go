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

// stat holds members of /proc/PID/stat.
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

// identify returns the identity of a child process.
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

// group finds and signals the processes that are left of a process group. It has a
// handle of each process, which stays valid when the pid is reused.
type group struct {
	identity
	held       map[int]*os.Process
	terminated map[int]bool // SIGTERM was sent
}

// find counts the processes of the group that have not ended. It scans twice before it
// returns 0: the first scan may miss a process that is started meanwhile.
func (g *group) find() (left int, err error) {
	if left, err = g.scan(); left > 0 || err != nil {
		return left, err
	}
	return g.scan()
}

func (g *group) scan() (left int, err error) {
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

// unlessGone returns errors that leave open whether a process is of the group. A process
// that has ended is not, and one of another user can neither be read nor signalled.
func unlessGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// led reports whether the group's first process exists, running or a zombie. If so, the
// group's number is not reused.
func (g *group) led() (bool, error) {
	s, err := readStat(g.pid)
	return err == nil && s.start == g.start, unlessGone(err)
}

// hold opens a handle on a process of the group: a process with the group's number while
// the first process exists, and one with the mark otherwise.
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
	// If the process of the handle is alive afterwards, everything read from here on is
	// of that process.
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

// owns reports whether a process is unchanged since was, and of the group.
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
		if string(v) == MarkerVariable+"="+g.marker {
			return true, nil
		}
	}
	return false, nil
}

// ended reports whether a process has ended, and closes its handle then. A zombie has
// ended, too.
func ended(pid int, p *os.Process) bool {
	s, err := readStat(pid)
	alive := p.Signal(syscall.Signal(0)) == nil
	if alive && (err != nil || !s.ended()) {
		return false
	}
	_ = p.Release() // never fails
	return true
}

// signal sends SIGTERM once to each process, or SIGKILL.
func (g *group) signal(kill bool) {
	for pid, p := range g.held {
		switch {
		case kill:
			_ = p.Signal(syscall.SIGKILL) // it fails only for an ended process
		case !g.terminated[pid]:
			g.terminated[pid] = true
			_ = p.Signal(syscall.SIGTERM) // likewise
			_ = p.Signal(syscall.SIGCONT) // a stopped process handles no SIGTERM
		}
	}
}
