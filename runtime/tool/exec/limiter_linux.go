package exec

import (
	"fmt"
	"os"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/arcpd/arcpd/arcp"
)

// faultFD is the file to which a limiter writes its error. The start of the command closes it.
const faultFD = 3

// limiterMain sets the bounds in its first argument and replaces the process by the command. The second
// argument is the program; the others are the argv of the program.
func limiterMain(args []string) int {
	syscall.CloseOnExec(faultFD)
	var b Bounds
	err := arcp.Unmarshal([]byte(args[0]), &b)
	if err == nil {
		err = b.exec(args[1], args[2:])
	}
	fmt.Fprint(os.NewFile(faultFD, "fault"), err)
	return 1
}

// exec sets the bounds and replaces the process by a program. It sets the bound of memory last, because it
// allocates memory.
func (b *Bounds) exec(program string, argv []string) error {
	debug.SetGCPercent(-1)
	type bound struct {
		resource int
		soft, up uint64
	}
	for _, l := range []bound{
		{unix.RLIMIT_CPU, uint64(b.CPUSeconds), 1}, // SIGKILL a second after SIGXCPU
		{unix.RLIMIT_NOFILE, uint64(b.Files), 0},
		{unix.RLIMIT_NPROC, uint64(b.Processes), 0},
		{unix.RLIMIT_FSIZE, uint64(b.FileSize), 0},
		{unix.RLIMIT_AS, uint64(b.Memory), 0},
	} {
		if l.soft == 0 {
			continue
		}
		// After syscall.Setrlimit, unlike unix.Setrlimit, syscall.Exec does not restore RLIMIT_NOFILE.
		if err := syscall.Setrlimit(l.resource, &syscall.Rlimit{Cur: l.soft, Max: l.soft + l.up}); err != nil {
			return fmt.Errorf("set a limit to %d: %w", l.soft, err)
		}
	}
	return syscall.Exec(program, argv, syscall.Environ())
}
