package main

import (
	"bytes"
	"cmp"
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
	maxBackupBody = 64 << 10 // bytes of a request or an answer
	maxBackupKey  = 128      // bytes of a key
)

// A backup request needs a key that is in a file of the data directory. The server creates the key at each
// start. Requests from the same machine are not trusted, because the server also runs commands there. A
// refusal names the file.
const (
	backupKeyFile   = "backup-key"
	backupKeyHeader = "Arcp-Backup-Key"
	backupKeyPath   = "Arcp-Backup-Key-File"
)

// backupKey is the key for backup requests.
type backupKey struct{ file, text string }

// newBackupKey creates the key of a data directory.
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

// authorizes reports whether a request has the key.
func (k *backupKey) authorizes(r *http.Request) bool {
	return subtle.ConstantTimeCompare([]byte(r.Header.Get(backupKeyHeader)), []byte(k.text)) == 1
}

// readBackupKey reads the key file that the server named.
func readBackupKey(file string) (string, error) {
	if !filepath.IsAbs(file) || filepath.Base(file) != backupKeyFile {
		return "", failf("the server asks for the file %q, which is not a backup key; give the admin URL of the listening line with --admin", file)
	}
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrPermission) {
		return "", &exitError{exitDenied,
			fmt.Errorf("backup refused: no permission to read %s; run this command as the user of the server, or as root", file)}
	}
	if err != nil {
		return "", &exitError{exitDenied,
			fmt.Errorf("backup refused: read %s: %w; run this command on the machine of the server", file, cause(err))}
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
	Dir       string `json:"dir"`
	Bytes     int64  `json:"bytes"`
	NotCopied string `json:"not_copied,omitzero"`

	Verified *copyReport `json:"verified,omitzero"` // nil: the copy was not checked
}

// measure fills the members that describe the copy in Dir.
func (b *backupAnswer) measure() (err error) {
	bucket, err := readBucketAddress(b.Dir)
	if err != nil {
		return err
	}
	if bucket != nil {
		b.NotCopied = "the content of artifacts, which is in " + bucket.String()
	}
	b.Bytes, err = sizeOf(b.Dir)
	return err
}

// backupFlags are the flags of `arcp backup`.
type backupFlags struct {
	admin, data, keyFile string
	verify               bool
	every                time.Duration
	copies               int  // complete copies that stay
	rotates              bool // copies are made below the directory
}

func newBackup(a *app) *cobra.Command {
	var b backupFlags
	cmd := &cobra.Command{
		Use:   "backup DIR",
		Short: "Copy the data of a runtime into a new directory",
		Long: "Makes a running server write a consistent copy of its data to DIR, a new directory on\n" +
			"the machine of the server. The caller must be able to read the data directory of the\n" +
			"server: run the command as the user of the server, or as root. With --data the command\n" +
			"copies the data of a stopped server. `arcp serve --data DIR` starts with the copy.\n" +
			"The content of artifacts in a bucket is not copied, and the output says so.\n\n" +
			"With --every or --keep, DIR is the directory that has the copies. Each is named after its\n" +
			"time in UTC, such as 20060102T150405Z, when it is complete. After each copy the oldest\n" +
			"beyond --keep are removed. With --every the command makes a copy at each interval until\n" +
			"SIGTERM or SIGINT; a failure is printed, and the next try is at the next interval.",
		Example: "  arcp backup /srv/backups/today --verify\n  arcp backup /srv/backups --every 1h --keep 7 --verify",
		Args:    argsBetween(1, 1),
	}
	f := cmd.Flags()
	f.StringVar(&b.admin, "admin", defaultAdmin, "URL of the server's admin listener; needed if a context or $ARCP_URL names another server than "+defaultURL)
	f.StringVar(&b.data, "data", "", "data directory of a stopped server")
	f.BoolVar(&b.verify, "verify", false, "check the copy as arcp backup verify does")
	addDuration(f, &b.every, "every", 0, "make a copy below DIR at each interval")
	f.IntVar(&b.copies, "keep", defaultKeep, "copies below DIR that stay; without --every one copy is made")
	addKeyFile(cmd, &b.keyFile)
	output := addDocumentOutput(cmd)
	exclude(cmd, "admin", "data")
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		if err := a.setOutput(output); err != nil {
			return err
		}
		if err := b.checkRotation(f.Changed("every"), f.Changed("keep")); err != nil {
			return err
		}
		if !f.Changed("admin") && b.data == "" {
			if err := checkDefaultAdmin(a); err != nil {
				return err
			}
		}
		dir, err := filepath.Abs(args[0])
		if err != nil {
			return err
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		return a.backup(ctx, dir, &b)
	})
	cmd.AddCommand(newBackupVerify(a))
	return cmd
}

// checkDefaultAdmin refuses the default of --admin if the other commands use another server than the default one: the
// copy would have the data of a server that the caller does not expect.
func checkDefaultAdmin(a *app) error {
	c, name, err := selectedContext(a, a.env("ARCP_CONTEXT"))
	if err != nil {
		return err
	}
	from := "$ARCP_URL"
	if name != "" {
		from = "the context " + name
	}
	if u := cmp.Or(c.URL, a.env("ARCP_URL"), defaultURL); u != defaultURL {
		return usagef("%s names the server at %s: give --admin with the URL of its admin listener, such as %s, which its start line names; or --data DIR for a stopped server",
			from, u, defaultAdmin)
	}
	return nil
}

func (a *app) backup(ctx context.Context, dir string, b *backupFlags) error {
	if b.rotates {
		return rotate(ctx, a, dir, b)
	}
	answer, err := makeBackup(ctx, dir, b)
	if err == nil || answer.Verified != nil { // also with problems
		err = errors.Join(printBackup(a, answer), err)
	}
	return err
}

// makeBackup makes a copy, and checks it with --verify. A copy with problems stays, and is an error.
func makeBackup(ctx context.Context, dir string, b *backupFlags) (answer backupAnswer, err error) {
	answer.Dir = dir
	if b.data == "" {
		answer, err = askBackup(ctx, b.admin, dir)
	} else if err = backupStopped(ctx, b.data, dir); err == nil {
		err = answer.measure()
	}
	if err != nil || !b.verify {
		return answer, err
	}
	if answer.Verified, err = verifyCopy(ctx, dir, b.keyFile); err != nil {
		return answer, err
	}
	return answer, answer.Verified.failure()
}

func printBackup(a *app, answer backupAnswer) error {
	if a.json {
		return a.printJSON(answer)
	}
	_, err := fmt.Fprintf(a.stdout, "%s: %s\n", answer.Dir, counted(answer.Bytes, "byte"))
	if answer.NotCopied != "" {
		_, err = fmt.Fprintf(a.stdout, "not copied: %s\n", answer.NotCopied)
	}
	if answer.Verified != nil {
		err = errors.Join(err, printReport(a, answer.Verified))
	}
	return err
}

// askBackup asks a running server to copy its data.
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
	if err == nil && resp.StatusCode == http.StatusUnauthorized && resp.Header.Get(backupKeyPath) != "" {
		_ = resp.Body.Close() // the header has the file
		key, keyErr := readBackupKey(resp.Header.Get(backupKeyPath))
		if keyErr != nil {
			return answer, keyErr
		}
		resp, err = postBackup(ctx, u, body, key)
	}
	if err != nil && ctx.Err() != nil {
		return answer, context.Cause(ctx)
	}
	if err != nil {
		return answer, &exitError{exitUnreachable,
			fmt.Errorf("no admin listener answers at %s: %w; for a server with another admin address give --admin URL, for a stopped server --data DIR", admin, netCause(err))}
	}
	defer resp.Body.Close()
	return readBackupAnswer(resp)
}

// backupClient follows no redirect, which would send the key to another server.
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
		err = failf("the server at %s has no backups; give the admin URL of the listening line with --admin", resp.Request.URL.Host)
	default:
		err = failf("backup failed: %s", bytes.TrimSpace(text))
	}
	return answer, err
}

// backupStopped copies the data directory of a stopped server.
func backupStopped(ctx context.Context, data, dir string) (err error) {
	if _, err := os.Stat(filepath.Join(data, storeDir)); err != nil {
		return failf("%s is not a data directory: %w", data, cause(err))
	}
	st, err := openStore(filepath.Join(data, storeDir), 0, zerolog.Nop())
	if err != nil {
		return storeError(data, err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if err := backupData(ctx, st, data, dir); err != nil {
		return failf("backup failed: %w", err)
	}
	return nil
}

// backupData copies a data directory with the open store st to the new directory dir. A server can start with
// the copy. An incomplete copy is removed. No file of an artifact may be removed meanwhile.
func backupData(ctx context.Context, st store.Store, data, dir string) (err error) {
	switch err := os.Mkdir(dir, 0o700); {
	case errors.Is(err, fs.ErrExist):
		return fmt.Errorf("%s: %w; give a new directory", dir, fs.ErrExist)
	case err != nil:
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.RemoveAll(dir))
		}
	}()
	// An artifact is immutable. Its file is there before its row. Files of artifacts that are deleted
	// meanwhile stay until backupData returns: see Runtime.HoldArtifacts.
	if err := st.Backup(ctx, filepath.Join(dir, storeDir)); err != nil {
		return err
	}
	if err := copyArtifacts(ctx, data, dir); err != nil {
		return err
	}
	for _, name := range []string{identityFile, devTokenFile, credential.KeyFile, bucketFile} {
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

// copyArtifacts adds the artifacts of a data directory to a copy. The server that starts with the copy removes
// those without a row.
func copyArtifacts(ctx context.Context, data, dir string) error {
	from, to := filepath.Join(data, artifactDir), filepath.Join(dir, artifactDir)
	entries, err := os.ReadDir(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = os.MkdirAll(to, 0o700)
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !arcp.ArtifactID(e.Name()).Valid() || strings.Contains(e.Name(), ".") { // an unfinished upload
			continue
		}
		if err := linkOrCopy(filepath.Join(from, e.Name()), filepath.Join(to, e.Name())); err != nil {
			return fmt.Errorf("copy artifact %s: %w", e.Name(), err)
		}
	}
	return nil
}

// linkOrCopy links or, in another file system, copies a file that never changes. It does nothing if the file
// does not exist any more, or if the copy exists.
func linkOrCopy(from, to string) error {
	switch err := os.Link(from, to); {
	case err == nil, errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist):
		return nil
	}
	in, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if _, err = io.Copy(out, in); err == nil {
		err = out.Sync()
	}
	return errors.Join(err, out.Close())
}

// sizeOf returns the size of all files below a directory in bytes.
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

// addBackup serves backup requests of programs on this machine that have the key.
func addBackup(mux *http.ServeMux, key func() (*backupKey, error), backup func(ctx context.Context, dir string) error) {
	mux.Handle("POST "+backupPath, fromLoopback(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		dir, refusal := requestedBackup(w, r)
		if refusal != 0 {
			http.Error(w, `send {"dir": "an absolute path"} as application/json, not from a browser`, refusal)
			return
		}
		k, err := key()
		if err != nil {
			http.Error(w, err.Error(), statusOfBackup(err))
			return
		}
		if !k.authorizes(r) {
			w.Header().Set(backupKeyPath, k.file)
			http.Error(w, "send the header "+backupKeyHeader+" with the content of "+k.file, http.StatusUnauthorized)
			return
		}
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{}) // a large store needs more than the usual limit
		if err := backup(r.Context(), dir); err != nil {
			http.Error(w, err.Error(), statusOfBackup(err))
			return
		}
		answerBackup(w, dir)
	})))
}

// requestedBackup returns the directory for the backup, or the HTTP status of the refusal. It refuses web pages,
// which have an Origin, because they must not choose where the server writes.
func requestedBackup(w http.ResponseWriter, r *http.Request) (dir string, refusal int) {
	if r.Header.Get("Origin") != "" {
		return "", http.StatusForbidden
	}
	var req backupRequest
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // empty if it is invalid
	text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBackupBody))
	if err != nil || kind != "application/json" || arcp.Unmarshal(text, &req) != nil || !filepath.IsAbs(req.Dir) {
		return "", http.StatusBadRequest
	}
	return req.Dir, 0
}

func answerBackup(w http.ResponseWriter, dir string) {
	var text []byte
	answer := backupAnswer{Dir: dir}
	err := answer.measure()
	if err == nil {
		text, err = arcp.Marshal(answer)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(append(text, '\n')) // the client may have disconnected
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
