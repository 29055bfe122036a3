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

// supported returns nil: Linux identifies a process for certain.
func supported() error { return nil }

// ownGroup makes a process start in a process group of its own.
func ownGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// stat holds fields of /proc/PID/stat.
type stat struct {
	state byte
	group int
	start uint64
}

func (s stat) ended() bool { return s.state == 'Z' || s.state == 'X' || s.state == 'x' }

// readStat reads /proc/PID/stat. The error is fs.ErrNotExist for a missing process.
func readStat(pid int) (s stat, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if errors.Is(err, syscall.ESRCH) {
		err = fs.ErrNotExist
	}
	if err != nil {
		return s, err
	}
	// pid (comm) state ppid pgrp … starttime. comm may contain any character.
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

// group finds and signals the processes of a process group. It has a handle on each process, which is valid
// also after a reuse of the pid.
type group struct {
	identity
	held       map[int]*os.Process
	terminated map[int]bool // SIGTERM was sent to the process
}

// find returns the number of running processes of the group. It scans twice before it returns 0, because a scan may
// miss a process that starts meanwhile.
func (g *group) find() (left int, err error) {
	if left, err = g.scan(); left > 0 || err != nil {
		return left, err
	}
	return g.scan()
}

func (g *group) scan() (left int, err error) {
	boot, err := bootID()
	if err != nil || boot != g.boot { // all processes ended with the earlier boot
		return 0, err
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, err
	}
	led, err := g.leaderExists()
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			if err := g.openMember(pid, led); err != nil {
				return 0, err
			}
		}
	}
	maps.DeleteFunc(g.held, ended)
	return len(g.held), nil
}

// ignoreEnded returns err unless it means that a process has ended or belongs to another user. Such a process is not
// of the group or cannot be signalled.
func ignoreEnded(err error) error {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.ESRCH) {
		return nil
	}
	return err
}

// leaderExists reports whether the first process of the group exists, running or as a zombie. Then the number of the group is
// not reused.
func (g *group) leaderExists() (bool, error) {
	s, err := readStat(g.pid)
	return err == nil && s.start == g.start, ignoreEnded(err)
}

// openMember opens a handle on a process if it belongs to the group: by the number of the group while the first process
// exists, else by the mark.
func (g *group) openMember(pid int, led bool) error {
	if g.held[pid] != nil || pid == os.Getpid() {
		return nil
	}
	s, err := readStat(pid)
	if err != nil || s.group != g.pid || s.ended() || s.start < g.start {
		return ignoreEnded(err)
	}
	p, err := os.FindProcess(pid) // by a pidfd
	if err != nil {
		return fmt.Errorf("hold process %d: %w", pid, err)
	}
	// If the process of the handle is alive afterwards, everything read from here on
	// belongs to it.
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

// owns reports whether a process is the process of was and belongs to the group.
func (g *group) owns(pid int, was stat, led bool) (bool, error) {
	again, err := readStat(pid)
	if err != nil || again.group != was.group || again.start != was.start {
		return false, ignoreEnded(err)
	}
	if led {
		if led, err = g.leaderExists(); led || err != nil {
			return led, err
		}
	}
	return g.marked(pid)
}

// marked reports whether a process has inherited the mark.
func (g *group) marked(pid int) (bool, error) {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return false, ignoreEnded(err)
	}
	for v := range bytes.SplitSeq(env, []byte{0}) {
		if string(v) == MarkerVariable+"="+g.marker {
			return true, nil
		}
	}
	return false, nil
}

// ended reports whether a process has ended, and then closes its handle. A zombie counts as ended.
func ended(pid int, p *os.Process) bool {
	s, err := readStat(pid)
	alive := p.Signal(syscall.Signal(0)) == nil
	if alive && (err != nil || !s.ended()) {
		return false
	}
	_ = p.Release() // never fails
	return true
}

// signal sends SIGKILL to each process or, without kill, SIGTERM once.
func (g *group) signal(kill bool) {
	for pid, p := range g.held {
		switch {
		case kill:
			_ = p.Signal(syscall.SIGKILL) // fails only for an ended process
		case !g.terminated[pid]:
			g.terminated[pid] = true
			_ = p.Signal(syscall.SIGTERM) // fails only for an ended process
			_ = p.Signal(syscall.SIGCONT) // a stopped process handles no SIGTERM
		}
	}
}
