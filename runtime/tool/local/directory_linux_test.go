package local

import (
	"os"
	"syscall"
	"testing"
)

// withDescriptors runs fn while only a few more files can be opened.
func withDescriptors(t *testing.T, n uint64, fn func()) {
	t.Helper()
	var limit syscall.Rlimit
	f, err := os.Open("/dev/null")
	must(t, err, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	few := limit
	few.Cur = uint64(f.Fd()) + n // that is the lowest that is free
	must(t, f.Close(), syscall.Setrlimit(syscall.RLIMIT_NOFILE, &few))
	defer func() { must(t, syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit)) }()
	fn()
}

// Removing a deep tree needs few descriptors and moves nothing out of the tree.
func TestRemoveDeepTree(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	d, root := directories(t)
	name := NewName()
	path, err := d.Make(name)
	must(t, err)
	at, err := os.OpenRoot(path)
	must(t, err)
	for i := range 1000 {
		must(t, at.Mkdir("d", 0o700), at.WriteFile("f", nil, 0o400))
		next, err := at.OpenRoot("d")
		must(t, err)
		if i%100 == maxDepth {
			must(t, at.Chmod("d", 0o100))
		}
		must(t, at.Close())
		at = next
	}
	must(t, at.Close())
	withDescriptors(t, 8, func() { must(t, d.Remove(t.Context(), name)) })
	if left, err := os.ReadDir(root); err != nil || len(left) != 0 {
		t.Errorf("%v is left: %v", left, err)
	}
}
