package runtime_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/credential"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/transport"
)

// openLabels are the labels with values that appear later.
var openLabels = []string{"tool", "currency"}

// seriesOf returns the series of the metrics whose labels all have closed sets.
func seriesOf(t *testing.T, reg *prometheus.Registry) map[string]bool {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	series := make(map[string]bool)
	for _, family := range families {
	next:
		for _, m := range family.GetMetric() {
			labels := []string{family.GetName()}
			for _, l := range m.GetLabel() {
				if slices.Contains(openLabels, l.GetName()) {
					continue next
				}
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			series[strings.Join(labels, " ")] = true
		}
	}
	return series
}

// wantClosedSets checks that every series with closed label sets existed when the runtime started.
func wantClosedSets(t *testing.T, reg *prometheus.Registry) {
	t.Helper()
	fresh := prometheus.NewRegistry()
	rt, err := runtime.New(context.Background(), runtime.Config{Store: mem.Open(mem.Options{}), Auth: auth.NewSet(new(auth.Config)), Metrics: fresh,
		FreeSpace: func() (uint64, error) { return 1 << 40, nil }})
	if err != nil {
		t.Fatal(err)
	}
	defer rt.Shutdown(context.Background())
	atStart := seriesOf(t, fresh)
	for _, name := range slices.Sorted(maps.Keys(seriesOf(t, reg))) {
		if !atStart[name] {
			t.Errorf("the series %s does not exist before its first event", name)
		}
	}
}

func gauge(t *testing.T, f *fixture, name, label string, want float64) {
	t.Helper()
	if got := f.sum(name, label); got != want {
		t.Errorf("%s %s is %v, want %v", name, label, got, want)
	}
}

func TestQueuesHaveTheirLengthAndAge(t *testing.T) {
	var release chan struct{} // of the bubble
	inBubble(t, func(c *runtime.Config) {
		release = make(chan struct{})
		narrow := tool.MustNew(tool.Capability{Name: "narrow", Limits: tool.Limits{Concurrency: 1, Timeout: time.Hour}},
			func(ctx context.Context, _ tool.Job, _ struct{}) (string, error) {
				select {
				case <-release:
					return "", nil
				case <-ctx.Done():
					return "", ctx.Err()
				}
			})
		if err := c.Tools.Register(narrow); err != nil {
			t.Fatal(err)
		}
	}, func(f *fixture) {
		p := f.dial("alice")
		gauge(t, f, "arcp_jobs_queued", `"narrow"`, 0)
		gauge(t, f, "arcp_jobs_queued_oldest_seconds", `"narrow"`, 0)
		p.submit("narrow", "{}")
		time.Sleep(10 * time.Second)
		first := p.submit("narrow", "{}")
		time.Sleep(10 * time.Second)
		p.submit("narrow", "{}")
		synctest.Wait()
		time.Sleep(10 * time.Second)
		gauge(t, f, "arcp_jobs_queued", `"narrow"`, 2)
		gauge(t, f, "arcp_jobs_queued_oldest_seconds", `"narrow"`, 20)
		gauge(t, f, "arcp_jobs_queued", "", 2)
		p.send("cancel", fmt.Sprintf(`{"target":"job","target_id":%q}`, first))
		synctest.Wait()
		gauge(t, f, "arcp_jobs_queued", `"narrow"`, 1)
		gauge(t, f, "arcp_jobs_queued_oldest_seconds", `"narrow"`, 10)
		if _, n := f.rt.ListActiveJobs(0); n != 2 {
			t.Errorf("%d jobs are active, want the one that runs and the one that waits", n)
		}
		close(release)
		synctest.Wait()
		gauge(t, f, "arcp_jobs_queued", `"narrow"`, 0)
		gauge(t, f, "arcp_jobs_queued_oldest_seconds", `"narrow"`, 0)
	})
}

func TestOldestApprovalHasItsAge(t *testing.T) {
	inBubble(t, withPeople(t), func(f *fixture) {
		p := f.dial("alice")
		gauge(t, f, "arcp_approvals_oldest_seconds", "", 0)
		id := p.submit("danger", `{}`)
		synctest.Wait()
		time.Sleep(10 * time.Second)
		p.submit("danger", `{}`)
		synctest.Wait()
		time.Sleep(10 * time.Second)
		gauge(t, f, "arcp_approvals_oldest_seconds", "", 20)
		p.send("cancel", fmt.Sprintf(`{"target":"job","target_id":%q}`, id))
		synctest.Wait()
		gauge(t, f, "arcp_approvals_oldest_seconds", "", 10)
	})
}

func TestWorkersOfATool(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		w := f.startWorker("alice", "a@1.0.0", "")
		synctest.Wait()
		gauge(t, f, "arcp_tool_workers", `"a"`, 1)
		_ = w.conn.Abort() // its end is logged
		synctest.Wait()
		gauge(t, f, "arcp_tool_workers", `"a"`, 0)
	})
}

// Events of a client that acknowledges nothing count, also without its connection, until it does or its session ends.
func TestUnacknowledgedEventsAreCounted(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		p := f.dial("alice")
		p.submit("demo.echo", `{}`)
		seq := p.until("job.completed").EventSeq
		p.send("session.ack", fmt.Sprintf(`{"last_processed_seq":%d}`, seq))
		synctest.Wait()
		gauge(t, f, "arcp_unacked_events", "", 0)
		p.submit("demo.echo", `{}`)
		more := p.until("job.completed").EventSeq
		synctest.Wait()
		gauge(t, f, "arcp_unacked_events", "", float64(more-seq))
		_ = p.conn.Abort() // its end is logged
		synctest.Wait()
		gauge(t, f, "arcp_unacked_events", "", float64(more-seq))
		time.Sleep(runtime.DefaultRetention + time.Hour)
		gauge(t, f, "arcp_unacked_events", "", 0)
	})
}

// brokenStore fails every commit once broken is set.
type brokenStore struct {
	store.Store
	broken bool
}

func (s *brokenStore) Commit(writes []*store.Write, results []store.Result) error {
	if s.broken {
		return errors.New("no disk")
	}
	return s.Store.Commit(writes, results)
}

func TestFailedCommitsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st, reg := &brokenStore{Store: mem.Open(mem.Options{})}, prometheus.NewRegistry()
		rt, err := runtime.New(t.Context(), runtime.Config{Store: st, Auth: auth.NewSet(new(auth.Config)), Metrics: reg})
		if err != nil {
			t.Fatal(err)
		}
		f := &fixture{T: t, reg: reg, rt: rt}
		before := f.sum("arcp_events_appended_total", "")
		gauge(t, f, "arcp_store_commit_errors_total", "", 0)
		st.broken = true
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = rt.Shutdown(ctx) // commits
		if f.sum("arcp_store_commit_errors_total", "") == 0 {
			t.Error("a failed commit is not counted")
		}
		gauge(t, f, "arcp_events_appended_total", "", before)
	})
}

// logLines returns the lines of a log with a message.
func logLines(t *testing.T, log *syncBuffer, message string) (lines []map[string]any) {
	t.Helper()
	for text := range strings.Lines(log.String()) {
		var line map[string]any
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if line["message"] == message {
			lines = append(lines, line)
		}
	}
	return lines
}

// wantLine checks that the log has one line with a message, and that it has these fields and no others.
func wantLine(t *testing.T, log *syncBuffer, message string, want map[string]any) {
	t.Helper()
	lines := logLines(t, log, message)
	if len(lines) != 1 {
		t.Errorf("%d lines %q, want one:\n%s", len(lines), message, log)
		return
	}
	for name, value := range want {
		got, ok := lines[0][name]
		if !ok || value != any(nil) && fmt.Sprint(got) != fmt.Sprint(value) {
			t.Errorf("%q has %s: %v, want %v", message, name, got, value)
		}
	}
	for name, got := range lines[0] {
		if _, ok := want[name]; !ok && name != "message" {
			t.Errorf("%q has %s: %v, want no such field", message, name, got)
		}
	}
}

func TestJobsAreLoggedFromTheirSubmitToTheirEnd(t *testing.T) {
	log := new(syncBuffer)
	inBubble(t, func(c *runtime.Config) { c.Log = zerolog.New(log) }, func(f *fixture) {
		p := f.dial("alice")
		id := p.submit("demo.sleep", `{"ms":1500}`)
		synctest.Wait()
		job := map[string]any{"level": "debug", "job_id": id, "session_id": p.session, "principal": "alice", "tool": "demo.sleep@1.0.0", "trace_id": nil}
		wantLine(t, log, "job accepted", job)
		job["attempt"] = 1
		wantLine(t, log, "job started", job)
		p.until("job.completed")
		synctest.Wait()
		delete(job, "attempt")
		job["level"], job["outcome"], job["duration_ms"] = "info", "completed", 1500
		wantLine(t, log, "job finished", job)

		p.must("tools.list", `{}`)
		synctest.Wait()
		if lines := logLines(t, log, "job finished"); len(lines) != 2 || lines[1]["level"] != "debug" {
			t.Errorf("a call of a built-in tool is logged as %v, want a line with the level debug", lines)
		}
		session := p.session
		_ = p.conn.Abort() // its end is logged
		synctest.Wait()
		wantLine(t, log, "connection ended", map[string]any{"level": "debug", "session_id": session, "principal": "alice",
			"transport": nil, "reason": nil, "duration_ms": 1500})
	})
}

// A connection without a network has no address, and a refused handshake no principal: the log has no such fields.
func TestHandshakesAreLoggedWithoutEmptyFields(t *testing.T) {
	for _, remote := range []string{"", "192.0.2.1"} {
		log := new(syncBuffer)
		inBubble(t, func(c *runtime.Config) { c.Log = zerolog.New(log) }, func(f *fixture) {
			from := func(i *transport.Info) { i.Kind, i.RemoteAddr = "stdio", remote }
			p := f.connect(from)
			p.open("alice")
			p.expect("session.accepted")
			_ = p.conn.Abort() // its end is logged
			f.connect(from).send("session.open", `{"auth":{"scheme":"bearer","token":"wrong"},"client":{"kind":"t","version":"1"}}`)
			synctest.Wait()
			for text := range strings.Lines(log.String()) {
				if strings.Contains(text, `:""`) {
					t.Errorf("a line has an empty field: %s", text)
				}
			}
			lines := append(logLines(t, log, "handshake"), logLines(t, log, "connection ended")...)
			for _, line := range lines {
				if got, ok := line["remote"]; ok != (remote != "") || ok && got != remote {
					t.Errorf("%v has the remote %v, want %q", line, got, remote)
				}
			}
			if len(lines) != 3 || lines[0]["principal"] != "alice" || lines[1]["principal"] != nil {
				t.Errorf("the log has %v, want an accepted and a refused handshake and the end of a connection", lines)
			}
		})
	}
}

// failsWith adds a tool that fails with a message, and one that runs longer than its limit.
func failsWith(t *testing.T, c *runtime.Config, message string) {
	t.Helper()
	fail := tool.MustNew(tool.Capability{Name: "fail"}, func(context.Context, tool.Job, map[string]any) (string, error) {
		return "", errors.New(message)
	})
	slow := tool.MustNew(tool.Capability{Name: "slow", Limits: tool.Limits{Timeout: time.Second}}, func(ctx context.Context, _ tool.Job, _ map[string]any) (string, error) {
		<-ctx.Done()
		return "", ctx.Err()
	})
	exits := tool.MustNew(tool.Capability{Name: "exits"}, func(context.Context, tool.Job, map[string]any) (string, error) {
		return "", &tool.LoggableError{Err: arcp.Errorf(arcp.CodeUnknown, "the command ended with exit status 3").WithDetails(map[string]string{"stderr": "the quick brown fox"})}
	})
	quotes := tool.MustNew(tool.Capability{Name: "quotes"}, func(context.Context, tool.Job, map[string]any) (string, error) {
		return "", &tool.LoggableError{Err: arcp.Errorf(arcp.CodeUnknown, `the output is no number: it begins with "the quick brown fox"`), Log: "the output is no number"}
	})
	unlike, err := tool.NewRaw(tool.Capability{Name: "unlike", OutputSchema: arcp.Raw(`{"additionalProperties":false}`)},
		func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) {
			return arcp.Raw(`{"the quick brown fox":1}`), nil
		})
	if err != nil {
		t.Fatal(err)
	}
	for _, tl := range []*tool.Tool{fail, slow, exits, quotes, unlike} {
		if err := c.Tools.Register(tl); err != nil {
			t.Fatal(err)
		}
	}
}

// lastError returns the error and the code of the last job in the log.
func lastError(t *testing.T, log *syncBuffer) (text, code any) {
	t.Helper()
	lines := logLines(t, log, "job finished")
	line := lines[len(lines)-1]
	return line["error"], line["code"]
}

// The log has the text of an error of the runtime, but no arguments, results, tokens or values of credentials: a
// tool may repeat them in its errors.
func TestLogHasNoSecrets(t *testing.T) { testLogHasNoSecrets(t, nil) }

// Also if values of credentials are replaced in errors.
func TestLogHasNoSecretsWithCredentials(t *testing.T) {
	testLogHasNoSecrets(t, []credential.Source{{Name: "mint", For: []string{"demo.sleep"}, Provisioner: newMinter()}})
}

func testLogHasNoSecrets(t *testing.T, provisioners []credential.Source) {
	log := new(syncBuffer)
	inBubble(t, func(c *runtime.Config) {
		c.Log, c.Provisioners = zerolog.New(log), provisioners
		failsWith(t, c, "the quick brown fox: [arg ment")
	}, func(f *fixture) {
		p, resumeToken := f.dialToken("alice")
		for _, c := range []struct {
			tool string
			code arcp.Code
			text any // nil: none
		}{
			{"fail", arcp.CodeUnknown, nil},
			{"slow", arcp.CodeDeadlineExceeded, "slow ran longer than its limit of 1s (limits.timeout_ms)"},
			{"exits", arcp.CodeUnknown, "the command ended with exit status 3"},
			{"quotes", arcp.CodeUnknown, "the output is no number"},
			{"unlike", arcp.CodeInternal, "the tool's result breaks its output schema"},
		} {
			p.submit(c.tool, `{"text":"the quick brown fox","list":["[arg","ment","[arg","ment"]}`)
			p.until("job.failed")
			synctest.Wait()
			if text, code := lastError(t, log); text != c.text || code != string(c.code) {
				t.Errorf("%s: the log has the error %v with the code %v, want %v and %s", c.tool, text, code, c.text, c.code)
			}
		}
		p.submit("demo.echo", `{"private":"a result and an argument"}`)
		p.until("job.completed")
		f.rt.Upgrader().Refused(transport.RefusedUpgrade{Check: transport.CheckHost, Status: 421, RemoteAddr: "192.0.2.1", Reason: errors.New("not allowed")})
		_ = p.conn.Abort() // its end is logged
		f.resume(resumeToken, 0)
		f.connect(nil).send("session.open", `{"auth":{"scheme":"bearer","token":"wrong-hunter2"},"client":{"kind":"t","version":"1"}}`)
		synctest.Wait()
		for _, secret := range []string{"quick brown", "a result and", "alice-" + token, resumeToken, "hunter2"} {
			if strings.Contains(log.String(), secret) {
				t.Errorf("the log has %q:\n%s", secret, log)
			}
		}
	})
}

// The log says that a call was refused, but not the words of the person or the hook that refused it.
func TestRefusedCallsAreLoggedWithoutWordsOfOthers(t *testing.T) {
	log := new(syncBuffer)
	hook := tool.Hook{Name: "weekend", Before: func(_ context.Context, call *tool.HookCall) (tool.HookDecision, error) {
		return tool.HookDecision{Deny: call.Tool.Name == "demo.echo", Reason: "the quick brown fox"}, nil
	}}
	inBubble(t, func(c *runtime.Config) {
		withPeople(t)(c)
		c.Log, c.Hooks = zerolog.New(log), []tool.Hook{hook}
	}, func(f *fixture) {
		alice, adam := f.dial("alice"), f.human("adam")
		alice.submit("demo.echo", `{}`)
		alice.until("job.failed")
		synctest.Wait()
		if text, code := lastError(t, log); text != "the hook weekend refused the call" || code != string(arcp.CodePermissionDenied) {
			t.Errorf("a call that a hook refuses is logged with the error %v and the code %v", text, code)
		}
		adam.must("approval.resolve", fmt.Sprintf(`{"approval_id":%q,"approved":false,"reason":"the quick brown fox"}`, alice.question("danger", `{}`)))
		alice.until("job.failed")
		synctest.Wait()
		if text, code := lastError(t, log); text != "denied" || code != string(arcp.CodePermissionDenied) {
			t.Errorf("a call that a person refuses is logged with the error %v and the code %v, want denied", text, code)
		}
		if strings.Contains(log.String(), "quick brown") {
			t.Errorf("the log has the words of a person or a hook:\n%s", log)
		}
	})
}

// With Config.LogToolErrors the log has the text of errors of tools, in part if it is long.
func TestLogHasErrorsOfTools(t *testing.T) {
	log := new(syncBuffer)
	inBubble(t, func(c *runtime.Config) {
		c.Log, c.LogToolErrors = zerolog.New(log), true
		failsWith(t, c, strings.Repeat("the disk is full. ", 1000))
	}, func(f *fixture) {
		p, _ := f.dialToken("alice")
		p.submit("fail", `{}`)
		p.until("job.failed")
		synctest.Wait()
		text, _ := lastError(t, log)
		if s, ok := text.(string); !ok || !strings.HasPrefix(s, "the disk is full. the") || len(s) > 1024 {
			t.Errorf("the log has the error %q", text)
		}
	})
}

// The message of a panic is constant. Only with Config.LogToolErrors the log has its value.
func TestPanicsAreLoggedWithTheirJob(t *testing.T) {
	for _, withValue := range []bool{false, true} {
		log := new(syncBuffer)
		inBubble(t, func(c *runtime.Config) { c.Log, c.LogToolErrors = zerolog.New(log), withValue }, func(f *fixture) {
			p := f.dial("alice")
			id := p.submit("demo.panic", `{}`)
			p.until("job.failed")
			synctest.Wait()
			want := map[string]any{"level": "error", "job_id": id, "session_id": p.session, "principal": "alice",
				"tool": "demo.panic@1.0.0", "trace_id": nil, "stack": nil}
			if withValue {
				want["panic"] = "demo.panic was called"
			}
			wantLine(t, log, "tool panicked", want)
			if text, code := lastError(t, log); text != "the tool panicked" || code != "INTERNAL" {
				t.Errorf("the log has the error %v with the code %v, want that the tool panicked and INTERNAL", text, code)
			}
			if got := strings.Contains(log.String(), "demo.panic was called"); got != withValue {
				t.Errorf("the log has the value of the panic: %t, want %t:\n%s", got, withValue, log)
			}
		})
	}
}

// Lines about refused handshakes are bounded, and say how many were left out.
func TestRefusedHandshakesDoNotFillTheLog(t *testing.T) {
	log := new(syncBuffer)
	inBubble(t, func(c *runtime.Config) { c.Log = zerolog.New(log) }, func(f *fixture) {
		refuse := f.rt.Upgrader().Refused
		for range 25 {
			refuse(transport.RefusedUpgrade{Check: transport.CheckPath, Status: 404, RemoteAddr: "192.0.2.1", Reason: errors.New("no path")})
		}
		if n := len(logLines(t, log, "WebSocket handshake refused")); n != 10 {
			t.Errorf("%d lines in a minute, want 10", n)
		}
		time.Sleep(time.Minute)
		refuse(transport.RefusedUpgrade{Check: transport.CheckPath, Status: 404, RemoteAddr: "192.0.2.1", Reason: errors.New("no path")})
		lines := logLines(t, log, "WebSocket handshake refused")
		if last := lines[len(lines)-1]; len(lines) != 11 || last["omitted"] != 15.0 || last["level"] != "warn" || last["check"] != "path" || last["reason"] != "no path" {
			t.Errorf("after a minute: %d lines, the last one is %v", len(lines), last)
		}
		gauge(t, f, "arcp_upgrades_refused_total", `"path"`, 26)
	})
}

func TestRejectedHandshakesHaveAReason(t *testing.T) {
	inBubble(t, func(c *runtime.Config) { c.MaxSessions = 1 }, func(f *fixture) {
		f.dial("alice")
		f.connect(nil).send("session.open", fmt.Sprintf(`{"auth":{"scheme":"bearer","token":"alice-%s"},"client":{"kind":"t","version":"1"}}`, token))
		f.resume("rt_nothing", 0)
		synctest.Wait()
		gauge(t, f, "arcp_handshakes_rejected_total", `"limit"`, 1)
		gauge(t, f, "arcp_handshakes_rejected_total", `"resume_window"`, 1)
		gauge(t, f, "arcp_handshakes_total", `"rejected"`, 2)
	})
}
