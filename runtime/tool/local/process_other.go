//go:build !linux

package local

import (
	"syscall"

	"github.com/arcpd/arcpd/arcp"
)

var errNoProc = arcp.Errorf(arcp.CodeUnimplemented, "processes are leased on Linux only: nothing else says for certain which one a pid is")

// supported returns an error: no process can be leased.
func supported() error { return errNoProc }

// ownGroup returns nil: supported refuses before.
func ownGroup() *syscall.SysProcAttr { return nil }

// identify returns an error: supported refuses before.
func identify(int, string) (identity, error) { return identity{}, errNoProc }

// group is a process group, of which nothing is known.
type group struct {
	identity
	terminated map[int]bool
}

func (g *group) find() (int, error) { return 0, errNoProc }

func (g *group) signal(bool) {}
