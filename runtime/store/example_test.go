package store_test

import (
	"context"
	"fmt"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/mem"
)

// A write opens a session, submits a job in it and appends an event. The session follows its job, so its
// log has the event. The write happens as a whole.
func ExampleWrite() {
	now := time.Date(2026, 5, 9, 13, 0, 0, 0, time.UTC)
	job := &store.Job{ID: "job_1", Principal: "alice", Session: "sess_1", State: arcp.StateAccepted, CreatedAt: now}
	event := store.NewEvent(arcp.Log, now, &store.JobContext{JobID: "job_1"}, "", []byte(`{"level":"info","message":"hello"}`))
	write := store.NewWrite(
		&store.OpenSession{Row: &store.Session{ID: "sess_1", Principal: "alice", CreatedAt: now}},
		&store.SubmitJob{Row: job},
		&store.AppendEvents{Events: []*store.Event{event}},
	)
	st := mem.Open(mem.Options{})
	results := make([]store.Result, 1)
	if err := st.Commit([]*store.Write{write}, results); err != nil || results[0].Err != nil {
		fmt.Println(err, results[0].Err)
		return
	}
	err := st.SessionEvents(context.Background(), "sess_1", 0, func(d store.Delivery) bool {
		fmt.Println(d.Seq, d.Event.Type, string(d.Event.Payload()))
		return true
	})
	fmt.Println(err)
	// Output:
	// 1 log {"level":"info","message":"hello"}
	// <nil>
}
