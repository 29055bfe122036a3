package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/store"
)

const (
	defaultAdmin  = "http://127.0.0.1:7778"
	backupPath    = "/backup"
	maxBackupBody = 64 << 10 // bytes of a request or an answer about a backup: a path
	maxBackupKey  = 128      // bytes of a key
)

// A backup is made for callers that can read a key in the data directory. The key is made anew
// at each start. Being on the same machine is not enough: so are the commands that the server
// runs, also in a sandbox. A refusal names the file.
const (
	backupKeyFile   = "backup-key"
	backupKeyHeader = "Arcp-Backup-Key"
	backupKeyWhere  = "Arcp-Backup-Key-File"
)

// backupKey is such a key.
type backupKey struct{ file, text string }

// newBackupKey makes the key of a data directory.
func newBackupKey(dir string) (*backupKey, error) {
	file, err := filepath.Abs(filepath.Join(dir, backupKeyFile))
	if err != nil {
		return nil, err
	}
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	k := &backupKey{file, rand.Text()}
	return k, writeSecret(file, []byte(k.text))
}

// opens reports whether a request has the key.
func (k *backupKey) opens(r *http.Request) bool {
	return subtle.ConstantTimeCompare([]byte(r.Header.Get(backupKeyHeader)), []byte(k.text)) == 1
}

// readBackupKey reads the key that a server wants to see.
func readBackupKey(file string) (string, error) {
	if !filepath.IsAbs(file) || filepath.Base(file) != backupKeyFile {
		return "", failf("what answers wants to see the file %q, which is no key of a data directory; give the URL of the listening line with --admin", file)
	}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrPermission) {
		return "", &exitError{exitDenied, fmt.Errorf("backup refused: you may not read %s; run this as the user that the server runs as, or as root", file)}
	}
	if err != nil {
		return "", &exitError{exitDenied, fmt.Errorf("backup refused: %s cannot be read: %w; run this on the server's machine, where it sees the data directory", file, cause(err))}
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxBackupKey))
	return string(text), err
}

// backupRequest and backupAnswer are the messages on the admin listener.
type backupRequest struct {
	Dir string `json:"dir"`
}

type backupAnswer struct {
	Dir   string `json:"dir"`
	Bytes int64  `json:"bytes"`
}

func newBackup(a *app) *cobra.Command {
	var admin, data, output string
	cmd := &cobra.Command{
		Use:   "backup DIR",
		Short: "Copy a runtime's data into a new directory, while it runs",
		Long: "Makes a running server write a consistent copy of its data into a directory that does\n" +
			"not exist yet, on the server's machine. That takes the right to read the server's data\n" +
			"directory: be the user that it runs as, or root. With --data the copy is made of a\n" +
			"server that does not run. `arcp serve --data DIR` starts from the copy.",
		Args: someArgs(1, 1),
	}
	f := cmd.Flags()
	f.StringVar(&admin, "admin", defaultAdmin, "the admin listener of the server")
	f.StringVar(&data, "data", "", "data directory of a server that does not run")
	f.StringVarP(&output, "output", "o", "text", "text or json")
	cmd.MarkFlagsMutuallyExclusive("admin", "data")
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		if err := a.setOutput(output); err != nil {
			return err
		}
		dir, err := filepath.Abs(args[0])
		if err != nil {
			return err
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		return a.backup(ctx, dir, admin, data)
	})
	return cmd
}

func (a *app) backup(ctx context.Context, dir, admin, data string) (err error) {
	answer := backupAnswer{Dir: dir}
	if data == "" {
		answer, err = askBackup(ctx, admin, dir)
	} else if err = backupStopped(ctx, data, dir); err == nil {
		answer.Bytes, err = sizeOf(dir)
	}
	switch {
	case err != nil:
		return err
	case a.json:
		return a.printJSON(answer)
	}
	_, err = fmt.Fprintf(a.stdout, "%s: %d bytes\n", answer.Dir, answer.Bytes)
	return err
}

// askBackup makes a running server copy its data.
func askBackup(ctx context.Context, admin, dir string) (answer backupAnswer, err error) {
	if !strings.Contains(admin, "://") {
		admin = "http://" + admin
	}
	u, err := url.Parse(admin)
	if err != nil || u.Host == "" {
		return answer, usagef("--admin %s: give the URL of the admin listener, for example %s", admin, defaultAdmin)
	}
	body, err := arcp.Marshal(backupRequest{dir})
	if err != nil {
		return answer, err
	}
	resp, err := postBackup(ctx, u, body, "")
	if err == nil && resp.StatusCode == http.StatusUnauthorized && resp.Header.Get(backupKeyWhere) != "" {
		_ = resp.Body.Close() // the header says it
		key, keyErr := readBackupKey(resp.Header.Get(backupKeyWhere))
		if keyErr != nil {
			return answer, keyErr
		}
		resp, err = postBackup(ctx, u, body, key)
	}
	if err != nil && ctx.Err() != nil {
		return answer, context.Cause(ctx)
	}
	if err != nil {
		return answer, &exitError{exitUnreachable, fmt.Errorf("no admin listener answers at %s: %w; with --data a stopped server's data is copied", admin, netCause(err))}
	}
	defer resp.Body.Close()
	return readBackupAnswer(resp)
}

// backupClient does not take a key elsewhere.
var backupClient = http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}

func postBackup(ctx context.Context, admin *url.URL, body []byte, key string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, admin.JoinPath(backupPath).String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if key != "" {
		req.Header.Set(backupKeyHeader, key)
	}
	return backupClient.Do(req)
}

func readBackupAnswer(resp *http.Response) (answer backupAnswer, err error) {
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxBackupBody))
	if err != nil {
		return answer, fmt.Errorf("read the answer of the admin listener: %w", err)
	}
	switch resp.StatusCode {
	case http.StatusOK:
		err = arcp.Unmarshal(text, &answer)
	case http.StatusForbidden, http.StatusUnauthorized:
		err = &exitError{exitDenied, fmt.Errorf("backup refused: %s", bytes.TrimSpace(text))}
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		err = failf("what answers at %s makes no backups; give the URL of the listening line with --admin", resp.Request.URL.Host)
	default:
		err = failf("backup failed: %s", bytes.TrimSpace(text))
	}
	return answer, err
}

// backupStopped copies the data directory of a server that does not run.
func backupStopped(ctx context.Context, data, dir string) (err error) {
	if _, err := os.Stat(filepath.Join(data, storeDir)); err != nil {
		return failf("%s is no data directory: %w", data, cause(err))
	}
	st, err := openStore(filepath.Join(data, storeDir), zerolog.Nop())
	if err != nil {
		return storeError(data, err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if err := backupData(ctx, st, data, dir); err != nil {
		return failf("backup failed: %w", err)
	}
	return nil
}

// backupData copies a data directory whose store is open into a new directory that a server
// can start from. An incomplete copy is removed.
func backupData(ctx context.Context, st store.Store, data, dir string) (err error) {
	switch err := os.Mkdir(dir, 0o700); {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s: %w; give a directory that does not exist yet", dir, fs.ErrExist)
	case err != nil:
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	if err := st.Backup(ctx, filepath.Join(dir, storeDir)); err != nil {
		return err
	}
	for _, name := range []string{identityFile, devTokenFile, credential.KeyFile} {
		text, err := os.ReadFile(filepath.Join(data, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := writeSecret(filepath.Join(dir, name), text); err != nil {
			return err
		}
	}
	return nil
}

// sizeOf is how many bytes the files under a directory have.
func sizeOf(dir string) (n int64, err error) {
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	})
	return n, err
}

// addBackup lets programs of this machine that can read the key make backups.
func addBackup(mux *http.ServeMux, key func() (*backupKey, error), backup func(ctx context.Context, dir string) error) {
	mux.Handle("POST "+backupPath, fromLoopback(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		dir, refusal := requestedBackup(w, r)
		if refusal != 0 {
			http.Error(w, `want {"dir": "an absolute path"} as application/json, and not from a browser`, refusal)
			return
		}
		k, err := key()
		if err != nil {
			http.Error(w, err.Error(), statusOfBackup(err))
			return
		}
		if !k.opens(r) {
			w.Header().Set(backupKeyWhere, k.file)
			http.Error(w, "want the header "+backupKeyHeader+" with what is in "+k.file, http.StatusUnauthorized)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // a large store takes its time; else the usual limit holds
		if err := backup(r.Context(), dir); err != nil {
			http.Error(w, err.Error(), statusOfBackup(err))
			return
		}
		answerBackup(w, dir)
	})))
}

// requestedBackup reads where a backup shall be written, or says how the request
// is refused. A page in a browser of this machine is told by its Origin: it must
// not choose where the server writes.
func requestedBackup(w http.ResponseWriter, r *http.Request) (dir string, refusal int) {
	if r.Header.Get("Origin") != "" {
		return "", http.StatusForbidden
	}
	var req backupRequest
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // empty if it cannot be read
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBackupBody))
	if err != nil || kind != "application/json" || arcp.Unmarshal(text, &req) != nil || !filepath.IsAbs(req.Dir) {
		return "", http.StatusBadRequest
	}
	return req.Dir, 0
}

func answerBackup(w http.ResponseWriter, dir string) {
	var text []byte
	n, err := sizeOf(dir)
	if err == nil {
		text, err = arcp.Marshal(backupAnswer{dir, n})
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // a caller that left does not matter
}

func statusOfBackup(err error) int {
	switch {
	case errors.Is(err, store.ErrUnsupported):
		return http.StatusNotImplemented
	case errors.Is(err, fs.ErrExist):
		return http.StatusConflict
	case errors.Is(err, runtime.ErrShutdown), errors.Is(err, errStarting):
		return http.StatusServiceUnavailable
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return http.StatusBadRequest
	}
	return http.StatusInternalServerError
}
