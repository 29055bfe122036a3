package exec

import (
	"fmt"
	"os"
	"runtime/debug"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/arcpd/arcpd/arcp"
)

// faultFD is where a limiter says what went wrong; it is closed when the command
// runs.
const faultFD = 3

// limit sets the bounds that its first argument says, in a process that then
// becomes the command: the second argument is its program, the rest its argv.
func limit(args []string) int {
	syscall.CloseOnExec(faultFD)
	var b Bounds
	err := arcp.Unmarshal([]byte(args[0]), &b)
	if err == nil {
		err = b.become(args[1], args[2:])
	}
	fmt.Fprint(os.NewFile(faultFD, "fault"), err)
	return 1
}

// become sets the bounds and becomes a program. The memory comes last: with little
// of it this program could not go on.
func (b *Bounds) become(program string, argv []string) error {
	debug.SetGCPercent(-1)
	type bound struct {
		what     int
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
		// The one of syscall: it knows that the number of files is not to be put back.
		if err := syscall.Setrlimit(l.what, &syscall.Rlimit{Cur: l.soft, Max: l.soft + l.up}); err != nil {
			return fmt.Errorf("set a limit to %d: %w", l.soft, err)
		}
	}
	return syscall.Exec(program, argv, syscall.Environ())
}
