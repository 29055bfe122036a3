package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	copyName     = "20060102T150405Z" // of a copy below the directory of --keep, in UTC
	partial      = ".partial"         // suffix of a copy that is not complete
	minEvery     = time.Second        // names of copies have seconds
	defaultKeep  = 7
	everyExample = "--every 1h --keep 7"
)

// rotation makes copies below a directory and removes the oldest.
type rotation struct {
	dir    string
	every  time.Duration // 0: one copy is made
	copies int           // complete copies that stay

	// copyTo makes a copy in a directory and checks it if asked to.
	copyTo func(ctx context.Context, dir string) (backupAnswer, error)
	// done is told of each copy, failed of each failure if every is set.
	done   func(backupAnswer) error
	failed func(error)
}

// run makes one copy, or one at each interval until ctx ends. A failure does not end it then.
func (r *rotation) run(ctx context.Context) error {
	if r.every == 0 {
		return r.once(ctx)
	}
	tick := time.NewTicker(r.every)
	defer tick.Stop()
	for {
		if err := r.once(ctx); err != nil && ctx.Err() == nil {
			r.failed(err)
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// once makes a copy, and then removes the oldest beyond copies. The copy has its name when it is complete.
// After a failure, and before the copy, only the newest incomplete copy stays.
func (r *rotation) once(ctx context.Context) error {
	path := r.newPath(time.Now())
	if err := r.removeIncomplete(path); err != nil { // of killed processes
		return err
	}
	err := r.copyAs(ctx, path)
	if err != nil {
		return errors.Join(err, r.removeIncomplete(path))
	}
	return r.removeOld(filepath.Base(path))
}

// copyAs makes a copy and gives it its name.
func (r *rotation) copyAs(ctx context.Context, path string) error {
	answer, err := r.copyTo(ctx, path+partial)
	if err != nil && answer.Verified != nil { // there are problems
		err = errors.Join(r.done(answer), err)
	}
	if err != nil {
		return err
	}
	if err := os.Rename(path+partial, path); err != nil {
		return failf("backup failed: name the complete copy: %w", err)
	}
	answer.Dir = path
	if answer.Verified != nil {
		answer.Verified.Dir = path
	}
	return r.done(answer)
}

// newPath returns the path of a new copy. Of two copies in one second the later has the name of the next second.
func (r *rotation) newPath(now time.Time) string {
	for {
		path := filepath.Join(r.dir, now.UTC().Format(copyName))
		if _, err := os.Lstat(path); err != nil {
			return path
		}
		now = now.Add(time.Second)
	}
}

// removeOld removes the oldest complete copies beyond copies, and incomplete copies that are older than the
// newest copy.
func (r *rotation) removeOld(newest string) error {
	complete, incomplete, err := r.list(newest)
	if err != nil {
		return err
	}
	return r.remove(append(incomplete, complete[:max(0, len(complete)-r.copies)]...))
}

// removeIncomplete removes the incomplete copies that are older than the newest one up to path. Those after path
// belong to other commands.
func (r *rotation) removeIncomplete(path string) error {
	_, incomplete, err := r.list(filepath.Base(path))
	if err != nil {
		return err
	}
	return r.remove(incomplete[:max(0, len(incomplete)-1)])
}

// list returns the names of the complete copies, and of the incomplete copies up to newest, oldest first.
func (r *rotation) list(newest string) (complete, incomplete []string, err error) {
	entries, err := os.ReadDir(r.dir) // in the order of the names
	if err != nil {
		return nil, nil, failf("remove old copies: %w", err)
	}
	for _, e := range entries {
		name, isPartial := strings.CutSuffix(e.Name(), partial)
		switch at, err := time.Parse(copyName, name); {
		case err != nil || at.Format(copyName) != name || !e.IsDir(): // not a copy
		case !isPartial:
			complete = append(complete, e.Name())
		case name <= newest:
			incomplete = append(incomplete, e.Name())
		}
	}
	return complete, incomplete, nil
}

func (r *rotation) remove(names []string) (err error) {
	for _, name := range names {
		err = errors.Join(err, removeCopy(filepath.Join(r.dir, name)))
	}
	if err != nil {
		return failf("remove old copies: %w", err)
	}
	return nil
}

// removeCopy removes a copy. It is renamed first, so that a half-removed one is not taken for complete.
func removeCopy(path string) error {
	if !strings.HasSuffix(path, partial) {
		if err := os.Rename(path, path+partial); err != nil {
			return err
		}
		path += partial
	}
	return os.RemoveAll(path)
}

// checkRotation refuses flags that contradict each other.
func (b *backupFlags) checkRotation(everySet, keepSet bool) error {
	switch {
	case everySet && b.every < minEvery:
		return usagef("--every %v: give at least %v, for example %s", b.every, minEvery, everyExample)
	case (everySet || keepSet) && b.copies < 1:
		return usagef("--keep %d: give at least 1, for example %s", b.copies, everyExample)
	case everySet && b.data != "":
		return usagef("--every copies a running server, and --data a stopped one: leave out one of them")
	}
	b.rotates = everySet || keepSet
	return nil
}

// rotate makes copies below a directory.
func rotate(ctx context.Context, a *app, dir string, b *backupFlags) error {
	r := rotation{dir: dir, every: b.every, copies: b.copies, done: func(answer backupAnswer) error { return printBackup(a, answer) }, failed: a.report}
	r.copyTo = func(ctx context.Context, dir string) (backupAnswer, error) { return makeBackup(ctx, dir, b) }
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return usagef("%s is not a directory: copies are made below it; create it for the user of the server", dir)
	}
	return r.run(ctx)
}
