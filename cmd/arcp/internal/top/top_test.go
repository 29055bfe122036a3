package top

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	tea "charm.land/bubbletea/v2"
)

var start = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

func seconds(d time.Duration) string { return fmt.Sprintf("%ds", d/time.Second) }

// sized returns a model with a screen of a size.
func sized(width, height int) *model {
	m := &model{opts: Options{Title: "ws://h/arcp", Age: seconds}}
	m.Update(tea.WindowSizeMsg{Width: width, Height: height})
	return m
}

func show(m *model, s Snapshot) string {
	m.Update(s)
	return m.View().Content
}

func TestViewShowsTheSnapshot(t *testing.T) {
	m := sized(80, 24)
	if got := m.View().Content; !strings.Contains(got, "waiting for the runtime") {
		t.Errorf("before the first snapshot: %q", got)
	}
	got := show(m, Snapshot{
		At:        start.Add(9 * time.Second),
		Jobs:      []Job{{"job_1", "demo.count@1.0.0", "running", "progress 1/2\x1b[31m\nx", start}},
		Questions: []Question{{"approval-1", "gate", "deploy?", start.Add(4 * time.Second)}},
		Agents:    []Agent{{"text", "alice", "idle", "", 2, start}},
	})
	for _, want := range []string{
		"JOB    TOOL              STATUS   AGE  LAST EVENT\njob_1  demo.count@1.0.0  running  9s   progress 1/2[31mx\n",
		"QUESTION    KIND  AGE  ASKS\napproval-1  gate  5s   deploy?\n",
		"AGENT  PRINCIPAL  STATUS  TOOLS  CHANGED  TASK\ntext   alice      idle    2      9s",
		"1 job  0.0 events/s",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the view lacks %q:\n%s", want, got)
		}
	}
}

// Rates are those of the last seconds, not of the whole time.
func TestRatesAreOfTheLastSeconds(t *testing.T) {
	m := sized(80, 24)
	for i := range 20 {
		show(m, Snapshot{At: start.Add(time.Duration(i) * time.Second), Counts: Counts{Events: uint64(1000 * max(0, 10-i)), Ended: uint64(3 * i)}})
	}
	if events, ended := m.rates(); events != 0 || ended != 3 {
		t.Errorf("rates = %v events, %v jobs a second, want 0 and 3", events, ended)
	}
}

func TestViewFitsOnTheScreen(t *testing.T) {
	var s Snapshot
	for i := range 100 {
		s.Jobs = append(s.Jobs, Job{ID: fmt.Sprintf("job_%d", i), Tool: strings.Repeat("long", 50)})
		s.Questions = append(s.Questions, Question{ID: fmt.Sprintf("approval-%d", i)})
		s.Agents = append(s.Agents, Agent{Name: fmt.Sprintf("agent-%d", i)})
	}
	for _, height := range []int{1, 10, 30, 50} {
		lines := strings.Split(show(sized(60, height), s), "\n")
		if len(lines) > height {
			t.Errorf("%d lines on a screen of %d", len(lines), height)
		}
		for _, l := range lines {
			if n := len([]rune(l)); n > 60 {
				t.Errorf("a line of %d columns on a screen of 60: %q", n, l)
			}
		}
	}
	got := show(sized(60, 50), s)
	for _, want := range []string{"job_0 ", "… and 96 more", "… and 93 more", "q quits"} { // questions, agents
		if !strings.Contains(got, want) {
			t.Errorf("the view lacks %q:\n%s", want, got)
		}
	}
}

// A runtime that does not answer is reported, and what was seen stays.
func TestErrorKeepsTheLatestSnapshot(t *testing.T) {
	m := sized(80, 24)
	show(m, Snapshot{At: start, Jobs: []Job{{ID: "job_1"}}})
	got := show(m, Snapshot{At: start.Add(time.Second), Err: errors.New("no answer")})
	if !strings.Contains(got, "no newer state: no answer") || !strings.Contains(got, "job_1") {
		t.Errorf("view: %s", got)
	}
	if got := show(m, Snapshot{At: start.Add(2 * time.Second)}); strings.Contains(got, "no newer state") || strings.Contains(got, "job_1") {
		t.Errorf("after it: %s", got)
	}
}

// A snapshot is taken each second, until q.
func TestRunEndsWithQ(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys, typed := io.Pipe()
		var out bytes.Buffer
		fetched := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			done <- Run(t.Context(), Options{Title: "x", Age: seconds, In: keys, Out: &out, Extra: []tea.ProgramOption{tea.WithWindowSize(80, 24)},
				Fetch: func(context.Context) Snapshot { fetched <- struct{}{}; return Snapshot{At: time.Now()} }})
		}()
		<-fetched
		before := time.Now()
		<-fetched
		if got := time.Since(before); got != interval {
			t.Errorf("the second snapshot after %v, want %v", got, interval)
		}
		if _, err := typed.Write([]byte("q")); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		_ = typed.Close() // ends the reader
	})
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	keys, typed := io.Pipe()
	defer typed.Close()
	err := Run(ctx, Options{Title: "x", Age: seconds, In: keys, Out: io.Discard, Extra: []tea.ProgramOption{tea.WithWindowSize(80, 24)},
		Fetch: func(context.Context) Snapshot { cancel(); return Snapshot{At: start} }})
	if err != nil {
		t.Error(err)
	}
}
