//go:build !linux

package local

import "github.com/arcpd/arcpd/arcp"

var errNoProc = arcp.Errorf(arcp.CodeUnimplemented, "processes are leased on Linux only: nothing else says for certain which one a pid is")

func identify(int, string) (identity, error) { return identity{}, errNoProc }

type group struct {
	identity
	terminated map[int]bool
}

func (g *group) find() (int, error) { return 0, errNoProc }

func (g *group) signal(bool) {}
