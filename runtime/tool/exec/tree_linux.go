package exec

import (
	"bytes"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// descendants returns the visible descendants of pid.
func descendants(pid int) []int {
	list := children(pid)
	for i := 0; i < len(list); i++ { // list grows
		list = append(list, children(list[i])...)
	}
	return list
}

// children returns the processes that the threads of pid have started or adopted.
func children(pid int) []int {
	files, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children") // the pattern is valid
	if len(files) == 0 {
		return byParent(pid) // pid has ended, or the kernel has no such files
	}
	var list []int
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // the thread has ended
		}
		for field := range strings.FieldsSeq(string(text)) {
			if n, err := strconv.Atoi(field); err == nil {
				list = append(list, n)
			}
		}
	}
	return list
}

// byParent returns the children of pid. It searches all processes.
func byParent(pid int) []int {
	return slices.DeleteFunc(processes(), func(p int) bool {
		stat, err := os.ReadFile("/proc/" + strconv.Itoa(p) + "/stat")
		end := bytes.LastIndexByte(stat, ')') // of the name, which may contain any character
		if err != nil || end < 0 {
			return true
		}
		fields := strings.Fields(string(stat[end+1:]))
		return len(fields) < 2 || fields[1] != strconv.Itoa(pid)
	})
}

// processes returns all processes.
func processes() []int {
	d, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1) // after an error, the names before it
	var list []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			list = append(list, pid)
		}
	}
	return list
}

// processesWith returns the processes that were started with variable in their environment.
func processesWith(variable string) []int {
	var list []int
	for _, pid := range processes() {
		env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
		if err != nil {
			continue // the process has ended or belongs to another user
		}
		if bytes.Contains(append([]byte{0}, env...), []byte("\x00"+variable+"\x00")) {
			list = append(list, pid)
		}
	}
	return list
}

// killMarked kills the processes with a mark after the death of their reaper: the command or the kernel (out of
// memory) has killed the reaper.
func killMarked(mark string) {
	for deadline := time.Now().Add(killTimeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		list := processesWith(mark)
		if len(list) == 0 {
			return
		}
		for _, pid := range list {
			if pid != os.Getpid() {
				_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
			}
		}
	}
}
