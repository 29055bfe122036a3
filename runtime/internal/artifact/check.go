package artifact

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/arcpd/arcpd/runtime/internal/records"
)

// CheckFiles compares the rows of artifacts with their files in a directory: each file has the size and
// the SHA-256 of its row. Without a directory only the rows are read. CheckFiles calls problem for each
// problem and changes nothing. It returns the number of rows. It fails when a read fails or ctx ends.
func CheckFiles(ctx context.Context, from records.Reader, dir string, problem func(error)) (n int, err error) {
	table := records.Table[Row]{Reader: from}
	err = table.Scan(ctx, recordPrefix, "", func(row records.Row[Row], bad error) bool {
		n++
		switch {
		case bad != nil:
			problem(bad)
		case recordPrefix+string(row.Value.ID) != row.Key || !row.Value.ID.Valid():
			problem(fmt.Errorf("record %s: it belongs to another key", row.Key))
		case dir != "":
			if err := checkFile(ctx, filepath.Join(dir, string(row.Value.ID)), &row.Value); err != nil && ctx.Err() == nil {
				problem(fmt.Errorf("artifact %s: %w", row.Value.ID, err))
			}
		}
		return ctx.Err() == nil
	})
	if err == nil {
		err = context.Cause(ctx)
	}
	return n, err
}

// checkFile compares a file with the row of its artifact.
func checkFile(ctx context.Context, path string, row *Row) error {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("its file is missing")
	}
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return err
	case info.Size() != row.Size:
		return fmt.Errorf("its file has %d bytes instead of %d", info.Size(), row.Size)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, whileRunning{ctx, f}); err != nil {
		return err
	}
	if got := hex.EncodeToString(sum.Sum(nil)); !strings.EqualFold(got, row.SHA256) {
		return fmt.Errorf("its file has the SHA-256 %s instead of %s", got, row.SHA256)
	}
	return nil
}

// whileRunning reads until its context ends.
type whileRunning struct {
	ctx context.Context
	io.Reader
}

func (r whileRunning) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.Reader.Read(p)
}
