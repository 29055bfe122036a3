package main

import (
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/rs/zerolog"
)

// settleTime is the time from the last event about a watched file to its reload. Editors write a file in several
// steps.
const settleTime = 200 * time.Millisecond

// fileWatch reports changes of a file. It watches the directory, because editors replace files.
type fileWatch struct {
	changed <-chan struct{}
	watcher *fsnotify.Watcher
	done    chan struct{} // closed when the goroutine has ended
}

// watchFile watches a file, which need not exist. Its directory must exist.
func watchFile(file string, log zerolog.Logger) (*fileWatch, error) {
	file, err := filepath.Abs(file)
	if err != nil {
		return nil, err
	}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return nil, err
	}
	if err := watcher.Add(filepath.Dir(file)); err != nil {
		_ = watcher.Close() // it watches nothing
		return nil, err
	}
	changed := make(chan struct{}, 1)
	w := &fileWatch{changed: changed, watcher: watcher, done: make(chan struct{})}
	go w.run(file, changed, log)
	return w, nil
}

// run sends to changed when the file has changed, until the watcher is closed.
func (w *fileWatch) run(file string, changed chan<- struct{}, log zerolog.Logger) {
	defer close(w.done)
	var settled <-chan time.Time // nil: no event since the last report
	for {
		select {
		case event, ok := <-w.watcher.Events:
			if !ok {
				return
			}
			if filepath.Clean(event.Name) == file && !event.Has(fsnotify.Chmod) {
				settled = time.After(settleTime)
			}
		case err, ok := <-w.watcher.Errors:
			if !ok {
				return
			}
			log.Warn().Err(err).Str("file", file).Msg("a change of the configuration file may be missed; SIGHUP reads it")
		case <-settled:
			settled = nil
			select {
			case changed <- struct{}{}:
			default: // a report is pending
			}
		}
	}
}

// close ends the watch.
func (w *fileWatch) close() {
	_ = w.watcher.Close() // it only frees resources
	<-w.done
}
