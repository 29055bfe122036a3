package storetest

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// testCloseEndsReads checks that Close ends reads and backups in progress, and that
// later calls fail.
func testCloseEndsReads(t *testing.T, open Open) {
	dir := t.TempDir()
	d := at(t, open, dir)
	s := d.session("sess_1")
	d.submit("job_1", s)
	for i := range 300 {
		d.emit("job_1", arcp.Log)
		d.do(put(fmt.Sprint("key", i), 0, "x"))
	}
	ctx := context.Background()
	var reading, done sync.WaitGroup
	closed := make(chan struct{})
	read := func(each func(saw func() bool) error) {
		reading.Add(1)
		first := sync.OnceFunc(func() { reading.Done(); <-closed })
		done.Go(func() { _ = each(func() bool { first(); return true }) }) // may end with an error
	}
	read(func(saw func() bool) error {
		return d.Store.Records(ctx, "key", "", func(store.Record) bool { return saw() })
	})
	read(func(saw func() bool) error {
		return d.SessionEvents(ctx, s, 0, func(store.Delivery) bool { return saw() })
	})
	read(func(saw func() bool) error {
		return d.Feed(ctx, "ann", 0, func(store.FeedEvent) bool { return saw() })
	})
	read(func(saw func() bool) error {
		return d.JobEvents(ctx, "job_1", 0, func(*store.Event) bool { return saw() })
	})
	read(func(saw func() bool) error {
		return d.LiveJobs(ctx, func(j store.Job) bool { return saw() && d.within(func() { _, _ = d.Job(ctx, j.ID) }) })
	})
	for i := range 4 {
		done.Go(func() { _ = d.Backup(ctx, filepath.Join(dir, fmt.Sprint("copy", i))) })
	}
	reading.Wait()
	over := make(chan error, 1)
	go func() { over <- d.Store.Close() }()
	for {
		if _, err := d.Get(ctx, "key1"); err != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	close(closed)
	if err := <-over; err != nil {
		t.Errorf("Close = %v", err)
	}
	done.Wait()
	for name, err := range map[string]error{
		"Backup": d.Backup(ctx, filepath.Join(dir, "late")),
		"Feeds":  d.Feeds(ctx, func(string) bool { return true }),
		"Commit": d.Commit([]*store.Write{put("late", 0, "x")}, make([]store.Result, 1)),
		"Close":  d.Store.Close(),
	} {
		if (err == nil) != (name == "Close") {
			t.Errorf("%s after Close = %v", name, err)
		}
	}
}

// within fails the test if f does not return.
func (d *db) within(f func()) bool {
	t := time.AfterFunc(time.Minute, func() { panic("a read inside a read waits for Close") })
	defer t.Stop()
	f()
	return true
}
