package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/pebble"
)

// copyReport is the result of the check of a copy.
type copyReport struct {
	Dir        string   `json:"dir"`
	Whole      bool     `json:"whole"` // there are no problems
	Problems   []string `json:"problems"`
	Sessions   int      `json:"sessions"`
	Jobs       int      `json:"jobs"`   // as `arcp jobs ls` lists them, without calls of built-in tools
	Events     uint64   `json:"events"` // of jobs and of calls of built-in tools
	Artifacts  int      `json:"artifacts"`
	NotChecked string   `json:"not_checked,omitzero"`
}

func (r *copyReport) problem(err error) { r.Problems = append(r.Problems, oneLine(err.Error())) }

func newBackupVerify(a *app) *cobra.Command {
	var keyFile string
	cmd := &cobra.Command{
		Use:   "verify DIR",
		Short: "Check that a server can start with a copy",
		Long: "Reads the copy DIR of `arcp backup` and changes nothing in it. Every block of the store is\n" +
			"compared with its checksum, and every row is decoded. The keys of the runtime have to be\n" +
			"there, and the file of each artifact with its size and SHA-256. Prints a line for each\n" +
			"problem, and then what the copy has: its jobs are those of `arcp jobs ls`, of all principals.\n" +
			"The exit code is 0 without problems, otherwise 1.",
		Args: argsBetween(1, 1),
	}
	addKeyFile(cmd, &keyFile)
	output := addDocumentOutput(cmd)
	cmd.RunE = action(func(cmd *cobra.Command, args []string) error {
		if err := a.setOutput(output); err != nil {
			return err
		}
		ctx, stop := interruptible(cmd.Context())
		defer stop()
		r, err := verifyCopy(ctx, args[0], keyFile)
		if err != nil {
			return err
		}
		if a.json {
			err = a.printJSON(r)
		} else {
			err = printReport(a, r)
		}
		return errors.Join(err, r.failure())
	})
	return cmd
}

func addKeyFile(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVar(file, "secret-key-file", "",
		"file with the keys that seal credentials, if the server has this setting; default: "+credential.KeyFile+" in the copy")
}

// printReport prints the problems and the contents of a copy.
func printReport(a *app, r *copyReport) (err error) {
	for _, p := range r.Problems {
		fmt.Fprintf(a.stdout, "problem: %s\n", p)
	}
	_, err = fmt.Fprintf(a.stdout, "%s: %s, %s, %s, %s\n", r.Dir,
		counted(r.Sessions, "session"), counted(r.Jobs, "job"), counted(r.Events, "event"), counted(r.Artifacts, "artifact"))
	if r.NotChecked != "" {
		_, err = fmt.Fprintf(a.stdout, "not checked: %s\n", r.NotChecked)
	}
	return err
}

// failure returns the error of a copy with problems; nil: it is whole.
func (r *copyReport) failure() error {
	if r.Whole {
		return nil
	}
	return failf("%s cannot be relied on: problems: %d; make another copy", r.Dir, len(r.Problems))
}

// verifyCopy checks a copy of a data directory. keyFile has the keys that seal credentials; empty: they
// are in the copy. Problems of the copy are in the report.
func verifyCopy(ctx context.Context, dir, keyFile string) (*copyReport, error) {
	if info, err := os.Stat(filepath.Join(dir, storeDir)); err != nil || !info.IsDir() {
		return nil, failf("%s is not a copy of a data directory: it has no directory %s", dir, storeDir)
	}
	r := &copyReport{Dir: dir, Problems: []string{}}
	check := runtime.RecordCheck{Artifacts: filepath.Join(dir, artifactDir), Sealer: r.sealer(keyFile)}
	bucket, err := readBucketAddress(dir)
	if err != nil {
		r.problem(err)
	}
	if bucket != nil || err != nil {
		check.Artifacts = ""
		r.NotChecked = "the content of artifacts, which is in a bucket"
	}
	identity := r.identity()
	if err := r.store(ctx, check, identity); err != nil {
		return nil, err
	}
	r.Whole = len(r.Problems) == 0
	return r, nil
}

// sealer opens the keys that seal credentials; nil: there are none.
func (r *copyReport) sealer(keyFile string) *credential.Sealer {
	file := keyFile
	if file == "" {
		file = filepath.Join(r.Dir, credential.KeyFile)
		if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	s, err := credential.LoadSealer(file)
	if err != nil {
		r.problem(fmt.Errorf("%s: %w", file, err))
	}
	return s
}

// identity returns the fingerprint of the key of the runtime, or "".
func (r *copyReport) identity() string {
	text, err := os.ReadFile(filepath.Join(r.Dir, identityFile))
	if errors.Is(err, fs.ErrNotExist) {
		r.problem(fmt.Errorf("%s, the key of the runtime, is missing", identityFile))
		return ""
	}
	if err != nil {
		r.problem(err)
		return ""
	}
	public, err := publicKey(text)
	if err != nil {
		r.problem(fmt.Errorf("%s: %w", identityFile, err))
		return ""
	}
	return fingerprintOf(public)
}

// store checks the store of the copy. It fails when ctx ends, or when a server uses the copy.
func (r *copyReport) store(ctx context.Context, check runtime.RecordCheck, identity string) error {
	st, err := pebble.OpenCopy(filepath.Join(r.Dir, storeDir), pebble.Options{MaxOpenFiles: storeFiles()})
	if errors.Is(err, store.ErrLocked) {
		return failf("%s is in use by another process: check a copy that no server uses", r.Dir)
	}
	if err != nil {
		r.problem(err)
		return nil
	}
	defer func() { _ = st.Close() }() // nothing was written
	found, err := st.Check(ctx, r.problem)
	if err != nil {
		return err
	}
	r.Sessions, r.Events = found.Sessions, found.Events
	builtin := runtime.BuiltinTools()
	for name, n := range found.Jobs {
		if !builtin[name] {
			r.Jobs += n
		}
	}
	owner, err := st.Get(ctx, identityRecord)
	switch {
	case err != nil:
		r.problem(err)
	case identity != "" && len(owner.Value) > 0 && string(owner.Value) != identity:
		r.problem(fmt.Errorf("%s is the key of another runtime than that of the store", identityFile))
	}
	n, err := runtime.CheckRecords(ctx, st, check, r.problem)
	if err != nil && ctx.Err() == nil {
		r.problem(err)
	}
	r.Artifacts = n.Artifacts
	return context.Cause(ctx)
}
