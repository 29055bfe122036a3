package exec

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/windows"
)

// group is the job object of a command. It has all descendants of the command. Windows kills them when the
// last handle of the job object is closed, also at the death of this process.
type group struct {
	job windows.Handle
	id  uint32 // the process id of the command
}

// startGroup starts a command in a job object. The command runs only after it is in the job object.
func startGroup(cmd *exec.Cmd) (*group, error) {
	job, err := newJobObject()
	if err != nil {
		return nil, err
	}
	g := &group{job: job}
	cmd.SysProcAttr = &syscall.SysProcAttr{HideWindow: true, CreationFlags: windows.CREATE_SUSPENDED | windows.CREATE_NEW_PROCESS_GROUP}
	if err := cmd.Start(); err != nil {
		g.close()
		return nil, err
	}
	g.id = uint32(cmd.Process.Pid)
	if err := errors.Join(g.add(cmd.Process), resume(g.id)); err != nil {
		_ = cmd.Process.Kill() // the command has not run
		_ = cmd.Wait()         // killed
		g.close()
		return nil, err
	}
	return g, nil
}

// newJobObject creates a job object whose processes end with its last handle.
func newJobObject() (windows.Handle, error) {
	job, err := windows.CreateJobObject(nil, nil)
	if err != nil {
		return 0, fmt.Errorf("create a job object: %w", err)
	}
	var limits windows.JOBOBJECT_EXTENDED_LIMIT_INFORMATION
	limits.BasicLimitInformation.LimitFlags = windows.JOB_OBJECT_LIMIT_KILL_ON_JOB_CLOSE
	_, err = windows.SetInformationJobObject(job, windows.JobObjectExtendedLimitInformation,
		uintptr(unsafe.Pointer(&limits)), uint32(unsafe.Sizeof(limits)))
	if err != nil {
		return 0, errors.Join(fmt.Errorf("set up a job object: %w", err), windows.CloseHandle(job))
	}
	return job, nil
}

// add puts a process into the job object.
func (g *group) add(p *os.Process) error {
	var assigned error
	err := p.WithHandle(func(handle uintptr) { assigned = windows.AssignProcessToJobObject(g.job, windows.Handle(handle)) })
	if err = errors.Join(err, assigned); err != nil {
		return fmt.Errorf("assign to a job object: %w", err)
	}
	return nil
}

// resume starts the threads of a suspended process.
func resume(pid uint32) error {
	list, err := windows.CreateToolhelp32Snapshot(windows.TH32CS_SNAPTHREAD, 0)
	if err != nil {
		return fmt.Errorf("list threads: %w", err)
	}
	defer func() { _ = windows.CloseHandle(list) }() // the list was only read
	resumed := false
	entry := windows.ThreadEntry32{Size: uint32(unsafe.Sizeof(windows.ThreadEntry32{}))}
	for err = windows.Thread32First(list, &entry); err == nil; err = windows.Thread32Next(list, &entry) {
		if entry.OwnerProcessID != pid {
			continue
		}
		if err := resumeThread(entry.ThreadID); err != nil {
			return err
		}
		resumed = true
	}
	if !resumed {
		return fmt.Errorf("start the command: it has no thread: %w", err)
	}
	return nil
}

func resumeThread(id uint32) error {
	thread, err := windows.OpenThread(windows.THREAD_SUSPEND_RESUME, false, id)
	if err != nil {
		return fmt.Errorf("open a thread of the command: %w", err)
	}
	_, err = windows.ResumeThread(thread)
	return errors.Join(err, windows.CloseHandle(thread))
}

// terminate sends CTRL_BREAK to the console group of the command. A command without the console of this process
// does not receive it: then the error is not nil.
func (g *group) terminate() error {
	return windows.GenerateConsoleCtrlEvent(windows.CTRL_BREAK_EVENT, g.id)
}

// jobObjectBasicAccountingInformation selects accounting in QueryInformationJobObject.
const jobObjectBasicAccountingInformation = 1

// accounting is JOBOBJECT_BASIC_ACCOUNTING_INFORMATION of the Windows API.
type accounting struct {
	totalUserTime, totalKernelTime           int64
	periodUserTime, periodKernelTime         int64
	pageFaults                               uint32
	totalProcesses, activeProcesses, stopped uint32
}

// killAll kills the processes of the job object. It returns the number of processes that have not ended after
// killTimeout.
func (g *group) killAll() int {
	deadline := time.Now().Add(killTimeout)
	for {
		_ = windows.TerminateJobObject(g.job, 1) // the processes are counted below
		var a accounting
		err := windows.QueryInformationJobObject(g.job, jobObjectBasicAccountingInformation,
			uintptr(unsafe.Pointer(&a)), uint32(unsafe.Sizeof(a)), nil)
		switch {
		case err == nil && a.activeProcesses == 0:
			return 0
		case time.Now().After(deadline):
			return max(int(a.activeProcesses), 1)
		}
		time.Sleep(time.Millisecond)
	}
}

// close closes the job object. Windows kills its remaining processes.
func (g *group) close() { _ = windows.CloseHandle(g.job) } // the processes have ended
