//go:build linux

package access

import (
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// One process swaps directories, files, links and fifos while others read and write. Nothing
// outside is read or changed, and no call blocks for ever.
func TestSwapsWhileOpening(t *testing.T) {
	b := newTree(t)
	for name, target := range map[string]string{"ws/dirtrap": b.at("out"), "ws/filetrap": b.at("out/f")} {
		b.link(target, name)
	}
	b.must(os.MkdirAll(b.at("ws/d/dir"), 0o755))
	b.must(os.WriteFile(b.at("ws/d/f"), []byte("inside"), 0o644))
	b.must(os.WriteFile(b.at("ws/d/dir/f"), []byte("inside"), 0o644))
	b.must(os.WriteFile(b.at("ws/x"), []byte("inside"), 0o644))
	b.must(unix.Mkfifo(b.at("ws/fifo"), 0o644))

	stop := make(chan struct{})
	var attackers, users sync.WaitGroup
	// RENAME_EXCHANGE has no moment without a name: the hardest swap.
	for _, pair := range [][2]string{{"ws/d", "ws/dirtrap"}, {"ws/x", "ws/filetrap"}, {"ws/fifo", "ws/d"}, {"ws/fifo", "ws/x"}} {
		attackers.Go(func() { b.exchange(stop, pair[0], pair[1]) })
	}
	attackers.Go(func() { b.hardLink(stop) })

	const rounds = 800
	files := b.files()
	var read, wrote [3]int
	for i := range 3 {
		users.Go(func() {
			for n := range rounds {
				for _, path := range []string{"ws/x", "ws/d/f", "ws/d/dir/f"} {
					data, err := files.ReadFile(b.at(path), 1<<20)
					if strings.Contains(string(data), "secret") {
						t.Errorf("%s: got the secret", path)
					}
					if err == nil {
						read[i]++
					}
				}
				if b.change(files, i, n) == nil {
					wrote[i]++
				}
			}
		})
	}
	users.Wait()
	close(stop)
	attackers.Wait()
	b.wantUnchanged()
	if read[0] == 0 || wrote[0] == 0 {
		t.Errorf("%v reads and %v writes succeeded: the test tests nothing", read, wrote)
	}
}

func (t tree) exchange(stop chan struct{}, x, y string) {
	for {
		select {
		case <-stop:
			return
		default:
			_ = unix.Renameat2(unix.AT_FDCWD, t.at(x), unix.AT_FDCWD, t.at(y), unix.RENAME_EXCHANGE) // another exchange may be under way
		}
	}
}

// hardLink makes a name of a file outside come and go.
func (t tree) hardLink(stop chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
			_ = os.Link(t.at("out/f"), t.at("ws/hard")) // the call may have replaced the file
			_ = os.Remove(t.at("ws/hard"))              // or removed it
		}
	}
}

// change does the n-th of the operations that change something.
func (t tree) change(files *Files, user, n int) error {
	mine := t.at("ws/d/new" + strconv.Itoa(user))
	switch n % 8 {
	case 0:
		f, err := files.Create(t.at("ws/x"))
		return writeClose(f, err)
	case 1:
		f, err := files.OpenFile(t.at("ws/d/f"), os.O_RDWR|os.O_TRUNC, 0)
		return writeClose(f, err)
	case 2:
		return files.WriteFile(t.at("ws/d/dir/f"), []byte("inside"), 0o644)
	case 3:
		f, err := files.OpenFile(mine, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
		return writeClose(f, err)
	case 4:
		return files.Remove(t.at("ws/d/dir/f"))
	case 5, 7:
		f, err := files.OpenFile(t.at("ws/hard"), os.O_WRONLY, 0)
		return writeClose(f, err)
	case 6:
		if n%16 == 6 {
			return files.Rename(mine, t.at("ws/d/dir/f"))
		}
	}
	return files.MkdirAll(t.at("ws/d/deep/"+strconv.Itoa(n)), 0o755)
}

func writeClose(f *os.File, err error) error {
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.WriteString("inside")
	return err
}

// A second name of a file outside exists when the file is opened, and is gone when its names
// are counted.
func TestTransientHardLinks(t *testing.T) {
	b := newTree(t)
	stop := make(chan struct{})
	var attackers, users sync.WaitGroup
	for range 2 {
		attackers.Go(func() { b.hardLink(stop) })
	}
	files := b.files()
	for range 2 {
		users.Go(func() {
			for range 5000 {
				_ = writeClose(files.OpenFile(b.at("ws/hard"), os.O_WRONLY, 0))
			}
		})
	}
	users.Wait()
	close(stop)
	attackers.Wait()
	b.wantUnchanged()
	want(t, writeClose(files.OpenFile(b.at("ws/f"), os.O_WRONLY, 0)), "ok", "a file with one name")
}
