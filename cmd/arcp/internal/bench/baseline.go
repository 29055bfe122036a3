package bench

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"

	"github.com/arcpd/arcpd/transport"
)

// Requests to a Baseline. A binary frame is a put. get is a text frame, and put answers a put.
const (
	put = "put"
	get = "get"
)

// Baseline stores the binary frames of WebSockets without a protocol: what a runtime costs at least.
type Baseline struct {
	// Dir is the directory with the frames. Empty: the frames are in memory.
	Dir string

	files atomic.Int64
}

// Serve answers the requests of a connection until it ends. The text frame get is answered with the latest
// binary frame. A binary frame is stored, in place of the one before, and answered with a short one: in Dir it
// is synced to the disk in a new file.
func (b *Baseline) Serve(conn transport.Conn) error {
	bin := acceptBinary(conn)
	var stored []byte // in memory
	name := ""
	defer func() { b.remove(name) }()
	for {
		frame, err := conn.Read()
		if err != nil {
			return err
		}
		answer, write := []byte(put), conn.Write
		switch {
		case !bin.Binary() && b.Dir == "":
			answer, write = stored, bin.WriteBinary
		case !bin.Binary():
			answer, err = os.ReadFile(name)
			write = bin.WriteBinary
		case b.Dir == "":
			stored = bytes.Clone(frame)
		default:
			b.remove(name)
			name = filepath.Join(b.Dir, strconv.FormatInt(b.files.Add(1), 10))
			err = writeSynced(name, frame)
		}
		if err != nil {
			return err
		}
		if err := write(answer); err != nil {
			return err
		}
		if err := conn.Flush(); err != nil {
			return err
		}
	}
}

// remove removes a file; "" is none.
func (*Baseline) remove(name string) {
	if name != "" {
		_ = os.Remove(name) // the directory is removed with the measurement
	}
}

// writeSynced writes a new file that survives a crash.
func writeSynced(name string, content []byte) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	if err == nil {
		err = f.Sync()
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}
