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

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/draft/strict"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/store/mem"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/transport"
)

// A client of each library uses every message.
func TestDraftLibrariesUseEveryMessage(t *testing.T) {
	for i := range draftLibraries {
		lib := &draftLibraries[i]
		t.Run(string(lib.name), func(t *testing.T) {
			inBubble(t, nil, func(f *fixture) { f.converse(lib) })
		})
	}
	if len(draftLibraries) != len(strict.Libraries) {
		t.Errorf("%d libraries, want the %d of package strict", len(draftLibraries), len(strict.Libraries))
	}
}

func (f *fixture) converse(lib *draftLibrary) {
	p, watcher := f.dialDraft(lib, "alice"), f.dialDraft(lib, "alice")
	if frame := p.run("demo.echo", `{"x":1}`); frame.Type != "job.result" || string(frame.Payload.Result) != `{"x":1}` {
		f.Errorf("demo.echo ends with %s", frame.raw)
	}
	steps := p.accepted("demo.progress", `{"steps":3,"interval_ms":1}`, "")
	p.end(steps)
	p.counted(steps, 3)
	p.run("demo.emit", `{"count":5,"bytes":10}`)
	if frame := p.run("demo.fail", `{"code":"PERMISSION_DENIED","message":"no"}`); frame.Payload.Code != "PERMISSION_DENIED" || frame.Payload.FinalStatus != "error" {
		f.Errorf("demo.fail ends with %s", frame.raw)
	}
	f.refusals(p, watcher)
	f.retries(p, watcher)

	long := p.accepted("demo.count", `{"to":1000,"interval_ms":10}`, "")
	p.until("progress", func(frame *draftFrame) bool { return frame.Payload.Kind == "progress" })
	p.cancel(long)
	if frame := p.end(long); frame.Payload.Code != "CANCELLED" {
		f.Errorf("the cancelled job ends with %s", frame.raw)
	}
	status := p.list(2)
	if status[long] != "cancelled" || status[steps] != "success" {
		f.Errorf("listed: %v", status)
	}

	watched := p.accepted("demo.count", `{"to":20,"interval_ms":50}`, "")
	p.until("progress", func(frame *draftFrame) bool { return frame.Payload.Kind == "progress" })
	watcher.follow(watched)
	watcher.end(watched)
	watcher.counted(watched, 20)
	if (watcher.followed >= 20) != (lib.name == strict.PHP) || p.followed > 0 {
		f.Errorf("%d frames of the follower and %d of the submitter are wrapped", watcher.followed, p.followed)
	}
	p.end(watched)
	p.counted(watched, 20)
	watcher.send("session.ack", "", fmt.Sprintf(`"last_processed_seq":%d`, watcher.seq))
	watcher.pong()
	watcher.close("session.close")

	p.close(f.breakAndResume(p))
}

// TestDraftLargeFrames has jobs with large events and results. Results are sent inline, in chunks to
// clients with the feature, or as a failure; no frame is larger than the libraries read.
func TestDraftLargeFrames(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	for i := range draftLibraries[:largeLibraries()] {
		t.Run(string(draftLibraries[i].name), func(t *testing.T) {
			for _, chunks := range []bool{true, false} {
				lib := draftLibraries[i]
				if !chunks {
					lib.hello = strings.NewReplacer(`,"result_chunk":true`, "", `,"result_chunk"`, "").Replace(lib.hello)
				}
				inBubble(t, nil, func(f *fixture) {
					p := f.dialDraft(&lib, "alice")
					p.run("demo.emit", `{"count":3,"bytes":262144}`)
					for _, size := range []int{490 << 10, 900 << 10} {
						for _, letter := range []string{"é", "\\n"} {
							input := `{"s":"` + strings.Repeat(letter, size/len(letter)) + `"}`
							frame := p.run("demo.echo", input)
							if (frame.Type != "job.result" || frame.Payload.Result == nil && frame.Payload.Output == nil && frame.Payload.ResultID == "") && (chunks || size < 490<<10) {
								t.Errorf("%s: a result of %d bytes with %s: %.300s", lib.name, size, letter, frame.raw)
							}
						}
					}
					p.close("session.close")
				})
			}
		})
	}
}

// Clients that answer pings, or have no heartbeat, stay connected for hours.
func TestDraftClientsStayConnected(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	for i := range draftLibraries {
		t.Run(string(draftLibraries[i].name), func(t *testing.T) {
			for _, heartbeat := range []bool{true, false} {
				lib := draftLibraries[i]
				if !heartbeat {
					lib.hello = strings.NewReplacer(`"heartbeat":true,`, "", `"heartbeat",`, "").Replace(lib.hello)
				}
				inBubble(t, nil, func(f *fixture) {
					p := f.dialDraft(&lib, "alice")
					if frame := p.run("demo.sleep", `{"ms":3000000}`); frame.Type != "job.result" {
						t.Errorf("%s: demo.sleep ends with %s", lib.name, frame.raw)
					}
					if p.pings > 0 != heartbeat {
						t.Errorf("%s: %d pings with heartbeat %v", lib.name, p.pings, heartbeat)
					}
					p.close("session.bye")
				})
			}
		})
	}
}

// A client ends its subscription to a job, and subscribes again.
func TestDraftUnsubscribeEndsTheEvents(t *testing.T) {
	for i := range draftLibraries {
		lib := &draftLibraries[i]
		t.Run(string(lib.name), func(t *testing.T) {
			inBubble(t, nil, func(f *fixture) {
				p, watcher := f.dialDraft(lib, "alice"), f.dialDraft(lib, "alice")
				job := p.accepted("demo.count", `{"to":100,"interval_ms":50}`, "")
				watcher.follow(job)
				watcher.until("progress", func(frame *draftFrame) bool { return frame.Payload.Kind == "progress" })
				watcher.send("job.unsubscribe", fmt.Sprintf(`"job_id":%q,`, job), fmt.Sprintf(`"job_id":%q`, job))
				synctest.Wait() // job.unsubscribe has no answer
				watcher.pong()  // after events that were on their way
				time.Sleep(time.Second)
				if frames := watcher.pong(); len(frames) > 0 {
					t.Errorf("%s: after job.unsubscribe: %s", lib.name, frames[0].raw)
				}
				clear(watcher.progress)
				watcher.follow(job)
				watcher.end(job)
				watcher.counted(job, 100)
				watcher.close("session.close")
				p.end(job)
			})
		})
	}
}

// TestDraftFollowEndsWithThePermission takes from alice the permission to see ann while alice follows a job. What the
// session has numbered by then is omitted in its place, and nothing of the job follows.
func TestDraftFollowEndsWithThePermission(t *testing.T) {
	seeing := strings.Replace(people, `roles: [client]`, `roles: [client], sees: [ann]`, 1)
	for i := range draftLibraries {
		lib := &draftLibraries[i]
		t.Run(string(lib.name), func(t *testing.T) {
			inBubble(t, func(c *runtime.Config) { c.Auth = auth.NewSet(loadPeople(t, seeing)) }, func(f *fixture) {
				owner, p := f.dialDraft(lib, "ann"), f.dialDraft(lib, "alice")
				job := owner.accepted("demo.count", `{"to":100,"interval_ms":1000}`, "")
				p.follow(job)
				p.until("progress", func(frame *draftFrame) bool { return frame.Payload.Kind == "progress" })
				p.abort()
				time.Sleep(3 * time.Second)
				f.cfg.Auth.Reload(loadPeople(t, people))
				f.rt.Reauthenticate()
				time.Sleep(3 * time.Second)
				p = p.resumed()
				first := p.until("an event", func(frame *draftFrame) bool { return frame.EventSeq != nil })
				synctest.Wait()
				for _, frame := range append(p.pong(), first) {
					if !strings.Contains(frame.raw, `"event_omitted"`) {
						t.Errorf("%s: after the permission: %s", lib.name, frame.raw)
					}
				}
				time.Sleep(5 * time.Second)
				if frames := p.pong(); len(frames) > 0 {
					t.Errorf("%s: after the follow: %s", lib.name, frames[0].raw)
				}
			})
		})
	}
}

// TestDraftLongLists lists jobs whose leases together do not fit in a frame.
func TestDraftLongLists(t *testing.T) {
	if testing.Short() {
		t.Skip("takes long: left out with -short")
	}
	for i := range draftLibraries {
		lib := &draftLibraries[i]
		t.Run(string(lib.name), func(t *testing.T) {
			inBubble(t, nil, func(f *fixture) {
				p := f.dialDraft(lib, "alice")
				lease := `,"lease_request":{"fs.read":["` + strings.Repeat("/"+strings.Repeat("x", 200)+`","`, 200) + `/last"]}`
				for range 40 {
					p.end(p.accepted("demo.echo", `{}`, lease))
				}
				if jobs := p.list(1000); len(jobs) != 40 {
					t.Errorf("%s: %d jobs are listed, want 40", lib.name, len(jobs))
				}
				p.close("session.close")
			})
		})
	}
}

// TestDraftTimedOut lists a job that has run too long. Its status is timed_out in the draft dialect,
// and failed in the RFC's. The words timed_out and error of a filter exclude each other.
func TestDraftTimedOut(t *testing.T) {
	for i := range draftLibraries {
		lib := &draftLibraries[i]
		t.Run(string(lib.name), func(t *testing.T) {
			inBubble(t, nil, func(b *fixture) {
				p := b.dialDraft(lib, "alice")
				late := p.accepted("demo.sleep", `{"ms":600000}`, `,"max_runtime_sec":1`)
				if f := p.end(late); f.Payload.Code != "TIMEOUT" {
					t.Errorf("%s: %s, want TIMEOUT", lib.name, f.raw)
				}
				failed := p.run("demo.fail", `{"code":"PERMISSION_DENIED","message":"no"}`).JobID
				if status := p.list(1); status[late] != "timed_out" || status[failed] != "error" {
					t.Errorf("%s: listed: %v", lib.name, status)
				}
				for word, job := range map[string]string{"timed_out": late, "error": failed} {
					p.send("session.list_jobs", "", fmt.Sprintf(`"filter":{"status":[%q]}`, word))
					page := p.until("session.jobs", func(f *draftFrame) bool { return f.Type == "session.jobs" }).Payload
					if len(page.Jobs) != 1 || page.Jobs[0].JobID != job || page.Jobs[0].Status != word {
						t.Errorf("%s: the filter %s lists %+v, want %s", lib.name, word, page.Jobs, job)
					}
				}
				q := b.dialDraft(lib, "alice")
				request := q.send("job.subscribe", fmt.Sprintf(`"job_id":%q,`, late), fmt.Sprintf(`"job_id":%q`, late))
				f := q.until("job.subscribed", func(f *draftFrame) bool { return f.CorrelationID == request })
				if !strings.Contains(f.raw, `"current_status":"timed_out"`) {
					t.Errorf("%s: the subscribe of a job that ran out of time is answered by %s, want timed_out", lib.name, f.raw)
				}
				rfc := b.dial("alice")
				rfc.send("session.list_jobs", `{"filter":{"status":["timed_out"]}}`)
				if page := rfc.until("session.jobs"); !strings.Contains(string(page.Payload), `"status":"failed"`) || !strings.Contains(string(page.Payload), late) {
					t.Errorf("the RFC's dialect lists %s", page.Payload)
				}
			})
		})
	}
}

// A client answers the question of its job with approval.answer. The call ends in the write of the job,
// and is accepted before its end all the same.
func TestDraftAnswersAQuestion(t *testing.T) {
	for i := range draftLibraries {
		lib := &draftLibraries[i]
		t.Run(string(lib.name), func(t *testing.T) {
			inBubble(t, nil, func(f *fixture) {
				p := f.dialDraft(lib, "alice")
				job := p.accepted("demo.ask", `{"prompt":"how many?"}`, "")
				question := p.until("the question", func(frame *draftFrame) bool { return frame.Payload.Body.Details.ApprovalID != "" })
				answer := p.accepted("approval.answer", fmt.Sprintf(`{"request_id":%q,"value":7}`, question.Payload.Body.Details.ApprovalID), "")
				if frame := p.end(answer); frame.Type != "job.result" {
					t.Errorf("%s: approval.answer ends with %s, want a result", lib.name, frame.raw)
				}
				if frame := p.end(job); !strings.Contains(frame.raw, `"value":7`) {
					t.Errorf("%s: demo.ask ends with %s, want the value 7", lib.name, frame.raw)
				}
			})
		})
	}
}

// Chunks of thoughts, logs and metrics are events of these kinds. Chunks of other streams have no number.
func TestDraftChunksOfStreams(t *testing.T) {
	for i := range draftLibraries {
		lib := &draftLibraries[i]
		t.Run(string(lib.name), func(t *testing.T) {
			inBubble(t, nil, func(f *fixture) {
				p := f.dialDraft(lib, "alice")
				for kind, sent := range map[string]bool{"thought": true, "log": true, "metric": true, "text": false, "binary": false, "event": false} {
					p.accepted("demo.stream", fmt.Sprintf(`{"kind":%q,"chunks":2}`, kind), "")
					chunks := 0
					p.until("job.result", func(f *draftFrame) bool {
						if f.Payload.Kind == kind {
							chunks++
						}
						return f.Type == "job.result"
					})
					if want := map[bool]int{true: 2, false: 0}[sent]; chunks != want {
						t.Errorf("%s: a stream of the kind %s has %d events, want %d", lib.name, kind, chunks, want)
					}
				}
			})
		})
	}
}

// The welcome waits for nothing. Some libraries give up after 5 s.
func TestDraftWelcomeComesAtOnce(t *testing.T) {
	for i := range draftLibraries {
		lib := &draftLibraries[i]
		t.Run(string(lib.name), func(t *testing.T) {
			inBubble(t, nil, func(f *fixture) {
				before := time.Now()
				p := f.dialDraft(lib, "alice")
				p.abort()
				p.resumed()
				if waited := time.Since(before); waited > time.Second {
					t.Errorf("%s: a session and its resume take %v", lib.name, waited)
				}
			})
		})
	}
}

// A submit above the bound of jobs is refused in the form that each library reads.
func TestDraftJobsAreBounded(t *testing.T) {
	for i := range draftLibraries {
		lib := &draftLibraries[i]
		t.Run(string(lib.name), func(t *testing.T) {
			inBubble(t, func(cfg *runtime.Config) { cfg.MaxJobsPerPrincipal = 1 }, func(f *fixture) {
				p := f.dialDraft(lib, "alice")
				running := p.accepted("demo.sleep", `{"ms":600000}`, "")
				p.submit("demo.echo", `{}`, "")
				p.refused("a job above the bound", "INTERNAL_ERROR")
				p.cancel(running)
				if frame := p.end(running); frame.Payload.Code != "CANCELLED" {
					t.Errorf("%s: the running job ends with %s, want CANCELLED", lib.name, frame.raw)
				}
				p.run("demo.echo", `{}`)
			})
		})
	}
}

// TestInventoryIsBounded has more tools than the answer to an open lists. It says how many there are,
// and tools.list has the others.
func TestInventoryIsBounded(t *testing.T) {
	const tools = 400
	change := func(c *runtime.Config) {
		withPeople(t)(c)
		for i := range tools {
			bulk, err := tool.NewRaw(tool.Capability{Name: fmt.Sprintf("bulk.%03d", i)}, func(context.Context, tool.Job, arcp.Raw) (arcp.Raw, error) { return arcp.Raw("1"), nil })
			if err = errors.Join(err, c.Tools.Register(bulk)); err != nil {
				t.Fatal(err)
			}
		}
	}
	var told struct{ Total, Included int }
	inBubble(t, change, func(b *fixture) {
		rfc := b.connect(nil)
		rfc.openHuman("alice", "")
		env := rfc.expect("session.accepted")
		accepted, err := arcp.DecodePayload[arcp.SessionAcceptedPayload](&env)
		if err != nil {
			t.Fatal(err)
		}
		extensions := map[string]json.RawMessage{}
		if err := json.Unmarshal(env.Extensions, &extensions); err != nil {
			t.Fatalf("%s: %v", env.Extensions, err)
		}
		if err := json.Unmarshal(extensions["arcpx.arcp.inventory.v1"], &told); err != nil || told.Total <= tools || told.Included != 256 || len(accepted.Capabilities.Agents) != 256 {
			t.Errorf("%d tools with %s, %v", len(accepted.Capabilities.Agents), env.Extensions, err)
		}
		for i := range draftLibraries {
			lib := &draftLibraries[i]
			p := b.connectDraft(lib, 0)
			p.hello("alice-"+token, "")
			for _, why := range []string{"hello", "resume"} {
				f := p.read()
				if f.Type != "session.welcome" || len(f.Payload.Capabilities.Agents) != told.Included {
					t.Errorf("%s: %s has %d tools: %s", lib.name, why, len(f.Payload.Capabilities.Agents), f.raw)
				}
				if string(f.Extensions["x-vendor.arcp.inventory.v1"]) != string(extensions["arcpx.arcp.inventory.v1"]) {
					t.Errorf("%s: %s: the extensions are %s", lib.name, why, f.Extensions)
				}
				p.session, p.token = f.Payload.SessionID, f.Payload.ResumeToken
				if why == "hello" {
					p.abort()
					p = b.connectDraft(lib, 1000)
					p.hello("alice-"+token, fmt.Sprintf(lib.resume, f.Payload.SessionID, f.Payload.ResumeToken, 0))
				}
			}
			listed := p.run("tools.list", `{"prefix":"bulk.3","limit":200}`)
			if n := strings.Count(string(listed.Payload.Result), `"bulk.3`); n != 100 {
				t.Errorf("%s: tools.list lists %d tools: %s", lib.name, n, listed.Payload.Result)
			}
			if f := p.run(fmt.Sprintf("bulk.%03d", tools-1), `{}`); f.Type != "job.result" {
				t.Errorf("%s: a tool that is not listed ends with %s", lib.name, f.raw)
			}
		}
	})
}

// Clients of every library are told of a shutdown.
func TestDraftClientsLearnOfAShutdown(t *testing.T) {
	for i := range draftLibraries {
		lib := &draftLibraries[i]
		t.Run(string(lib.name), func(t *testing.T) {
			inBubble(t, nil, func(f *fixture) {
				p := f.dialDraft(lib, "alice")
				f.shutdown(time.Second)
				var types []string
				for {
					frame, err := p.next()
					if err != nil {
						p.closedBy("the shutdown", err, transport.CloseGoingAway)
						break
					}
					types = append(types, frame.Type)
				}
				if !slices.Contains(types, "session.bye") {
					t.Errorf("%s: sent %v, want session.bye", lib.name, types)
				}
			})
		})
	}
}

// refusals has requests fail.
func (f *fixture) refusals(p, other *draftPeer) {
	p.submit("nobody.there", `{}`, "")
	p.refused("an unknown agent", "AGENT_NOT_AVAILABLE")
	p.submit("demo.progress", `{"steps":"three"}`, "")
	p.refused("bad arguments", "INVALID_REQUEST")
	p.send("job.submit", "", `"agent":7`)
	p.refused("a bad payload", "INVALID_REQUEST")
	p.send("job.subscribe", `"job_id":"job_01JZ0000000000000000000009",`, `"job_id":"job_01JZ0000000000000000000009"`)
	p.refused("an unknown job", "JOB_NOT_FOUND")
	p.send("session.list_jobs", "", `"cursor":"none of the runtime"`)
	p.refused("a bad cursor", "")
	p.send("job.cancel", `"job_id":"job_01JZ0000000000000000000009",`, "")
	p.refused("the cancel of an unknown job", "")

	// Others run meanwhile.
	running := p.accepted("demo.count", `{"to":1000,"interval_ms":10}`, "")
	p.submit("nobody.there", `{}`, "")
	p.refused("an unknown agent", "AGENT_NOT_AVAILABLE")
	for range 150 { // more than a client may send that cannot be decoded
		p.send("x-vendor.acme.hi", "", "")
	}
	p.send("job.teleport", "", "")
	p.send("session.hello", "", fmt.Sprintf(p.lib.hello, "alice-"+token))
	p.pong()
	p.cancel(running)
	p.end(running)
	if len(other.pong()) > 0 {
		f.Error("another session is sent frames")
	}
}

// retries repeats a submit.
func (f *fixture) retries(p, other *draftPeer) {
	const key = `,"idempotency_key":"k"`
	job := p.accepted("demo.echo", `{"a":1,"b":2}`, key)
	p.end(job)
	if again := p.accepted("demo.echo", `{"b":2,"a":1}`, key); again != job {
		f.Errorf("%s: the retry has the job %s, want %s", p.lib.name, again, job)
	}
	p.pong()
	if again := other.accepted("demo.echo", `{"a":1,"b":2}`, key); again != job {
		f.Errorf("%s: the retry of another session has the job %s, want %s", p.lib.name, again, job)
	}
	if frame := other.end(job); string(frame.Payload.Result) != `{"a":1,"b":2}` {
		f.Errorf("%s: the retry ends with %s", p.lib.name, frame.raw)
	}
	p.submit("demo.echo", `{"a":3}`, key)
	p.refused("another request with the key", "DUPLICATE_KEY")
}

// breakAndResume cuts the connection in the middle of a job and resumes the session. The result is the
// message with which the library leaves, and p is the new connection.
func (f *fixture) breakAndResume(p *draftPeer) string {
	job := p.accepted("demo.count", `{"to":40,"interval_ms":50}`, "")
	for len(p.progress[job]) < 10 {
		p.read()
	}
	p.abort()
	wrong := f.connectDraft(p.lib, 5000)
	wrong.hello("alice-"+token, fmt.Sprintf(p.lib.resume, p.session, "no token", p.seq))
	wrong.handshakeFails("a wrong resume token", "RESUME_WINDOW_EXPIRED")
	wrong = f.connectDraft(p.lib, 5100)
	wrong.hello("bob-"+token, fmt.Sprintf(p.lib.resume, p.session, p.token, p.seq))
	wrong.handshakeFails("the resume token of another principal", "RESUME_WINDOW_EXPIRED")
	wrong = f.connectDraft(p.lib, 5200)
	wrong.hello("nobody", fmt.Sprintf(p.lib.resume, p.session, p.token, p.seq))
	wrong.handshakeFails("a resume token with wrong credentials", "UNAUTHENTICATED")
	wrong = f.connectDraft(p.lib, 6000)
	wrong.hello("nobody", "")
	wrong.handshakeFails("a wrong token", "UNAUTHENTICATED")
	wrong = f.connectDraft(p.lib, 7000)
	wrong.send("session.hello", "", `"client":7`)
	wrong.handshakeFails("a bad payload", "INVALID_REQUEST")

	*p = *p.resumed()
	p.end(job)
	p.counted(job, 40)
	return "session.bye"
}

// TestDraftResumeMessage resumes sessions with the message session.resume, also of libraries with a
// timestamp in every frame.
func TestDraftResumeMessage(t *testing.T) {
	for i := range draftLibraries {
		lib := &draftLibraries[i]
		t.Run(string(lib.name), func(t *testing.T) {
			inBubble(t, nil, func(f *fixture) {
				p := f.dialDraft(lib, "alice")
				job := p.accepted("demo.count", `{"to":10,"interval_ms":50}`, "")
				p.until("progress", func(frame *draftFrame) bool { return frame.Payload.Kind == "progress" })
				p.abort()
				q := f.connectDraft(lib, 1000)
				q.seq, q.progress = p.seq, p.progress
				q.send("session.resume", "", fmt.Sprintf(`"session_id":%q,"resume_token":%q,"last_event_seq":%d`, p.session, p.token, p.seq))
				q.wantWelcome()
				q.submit("nobody.there", `{}`, "")
				q.refused("an unknown agent", "AGENT_NOT_AVAILABLE")
				q.end(job)
				q.counted(job, 10)
				q.close("session.close")
			})
		})
	}
}

// The server restarts during a job. The session keeps its dialect.
func TestDraftSessionSurvivesARestart(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		p := f.dialDraft(&draftLibraries[2], "alice")
		job := p.accepted("demo.count", `{"to":40,"interval_ms":50}`, "")
		for len(p.progress[job]) < 10 {
			p.read()
		}
		synctest.Wait() // the last step has its checkpoint, so that it is not repeated
		f.shutdown(0)
		f.serve.Wait()
		for {
			if _, err := p.next(); err != nil {
				break
			}
		}
		f.boot(nil)
		f.resume(p.token, p.seq).expect("session.welcome")
		q := p.resumed()
		q.end(job)
		q.counted(job, 40)
		q.close("session.close")
	})
}

// Clients of both dialects list and cancel the jobs of each other.
func TestDialectsShareJobs(t *testing.T) {
	for i := range draftLibraries {
		lib := &draftLibraries[i]
		t.Run(string(lib.name), func(t *testing.T) {
			inBubble(t, nil, func(f *fixture) {
				rfc, p := f.dial("alice"), f.dialDraft(lib, "alice")
				rfc.send("tool.invoke", `{"tool":"demo.count","arguments":{"to":1000,"interval_ms":10}}`)
				job := string(rfc.until("job.accepted").JobID)
				rfc.until("job.progress")
				if status := p.list(1); status[job] != "running" {
					f.Errorf("listed: %v", status)
				}
				p.follow(job)
				p.cancel(job)
				if frame := p.end(job); frame.Payload.Code != "CANCELLED" {
					f.Errorf("the cancelled job ends with %s", frame.raw)
				}
				rfc.until("job.cancelled")
				p.counted(job, len(p.progress[job]))

				job = p.accepted("demo.count", `{"to":1000,"interval_ms":10}`, "")
				rfc.send("session.list_jobs", `{"limit":1000}`)
				if page := rfc.until("session.jobs"); !strings.Contains(string(page.Payload), job) {
					f.Errorf("%s is not in %s", job, page.Payload)
				}
				rfc.send("job.subscribe", fmt.Sprintf(`{"job_id":%q,"history":true}`, job))
				rfc.until("job.subscribed")
				rfc.until("job.progress")
				rfc.send("cancel", fmt.Sprintf(`{"target":"job","target_id":%q}`, job))
				rfc.until("job.cancelled")
				if frame := p.end(job); frame.Payload.Code != "CANCELLED" {
					f.Errorf("the cancelled job ends with %s", frame.raw)
				}
				p.close("session.close")
			})
		})
	}
}

// TestResumeInOtherDialect refuses to attach to a session in the other dialect. The session can
// still be used and resumed. A session.resume is answered in the dialect of the session.
func TestResumeInOtherDialect(t *testing.T) {
	for i := range draftLibraries {
		lib := &draftLibraries[i]
		t.Run(string(lib.name), func(t *testing.T) {
			inBubble(t, nil, func(f *fixture) {
				rfc, rfcToken := f.dialToken("alice")
				wrong := f.connectDraft(lib, 0)
				wrong.hello("alice-"+token, fmt.Sprintf(lib.resume, rfc.session, rfcToken, 0))
				wrong.handshakeFails("a session of the RFC's dialect", "RESUME_WINDOW_EXPIRED")
				rfc.send("ping", `{}`)
				rfc.until("pong")
				_ = rfc.conn.Abort() // the test cuts the connection
				f.resume(rfcToken, 0).expect("session.resumed")

				p := f.dialDraft(lib, "alice")
				q := f.connect(nil)
				q.write(fmt.Sprintf(`{"arcp":"1.1","id":"msg_open","type":"session.open","session_id":%q,"timestamp":"2030-01-02T15:04:05Z",
					"payload":{"auth":{"scheme":"bearer","token":"alice-%s"},"client":{"kind":"test","version":"1"}}}`, p.session, token))
				q.expect("session.rejected")
				p.run("demo.echo", `{"x":1}`)
				p.abort()
				f.resume(p.token, p.seq).expect("session.welcome") // the token tells the dialect
				p.resumed().close("session.close")
			})
		})
	}
}

// write sends a frame as it is.
func (p *peer) write(frame string) {
	p.Helper()
	if err := errors.Join(p.conn.Write([]byte(frame)), p.conn.Flush()); err != nil {
		p.Fatal(err)
	}
}

// TestDraftResumeKeepsFollowedJobs has a client follow a job and resume its session. A library that
// fails all calls and jobs on a session.error is sent none while it follows the job.
func TestDraftResumeKeepsFollowedJobs(t *testing.T) {
	for i := range draftLibraries {
		lib := &draftLibraries[i]
		if lib.name != strict.TypeScript && lib.name != strict.Python && lib.name != strict.CSharp {
			continue
		}
		t.Run(string(lib.name), func(t *testing.T) {
			inBubble(t, nil, func(f *fixture) {
				owner, p := f.dialDraft(lib, "alice"), f.dialDraft(lib, "alice")
				job := owner.accepted("demo.count", `{"to":100,"interval_ms":50}`, "")
				p.follow(job)
				p.until("progress", func(frame *draftFrame) bool { return frame.Payload.Kind == "progress" })
				p.abort()
				p = p.resumed()
				p.send("job.subscribe", `"job_id":"job_01JZ0000000000000000000000",`, `"job_id":"job_01JZ0000000000000000000000"`)
				for _, frame := range p.pong() {
					if frame.Type == "session.error" {
						t.Errorf("%s: %s would fail the followed job", lib.name, frame.raw)
					}
				}
				p.end(job)
			})
		})
	}
}

// TestDraftProfileAppliesToUnknownClients configures the library that clients are taken for if their first frame does not
// tell. Other clients are recognised as ever.
func TestDraftProfileAppliesToUnknownClients(t *testing.T) {
	unknown := draftLibrary{name: strict.Go, id: "anything-%d", hello: draftLibraries[0].hello, resume: resumeObject}
	python := &draftLibraries[slices.IndexFunc(draftLibraries, func(l draftLibrary) bool { return l.name == strict.Python })]
	for _, profile := range []string{"", "go"} {
		inBubble(t, func(c *runtime.Config) { withPeople(t)(c); c.DraftProfile = profile }, func(f *fixture) {
			p := f.dialDraft(&unknown, "alice")
			p.submit("nobody.there", `{}`, "")
			want := []string{"job.error", "job.error", "session.error"} // of the universal profile
			if profile == "go" {
				want = want[2:]
			}
			for _, typ := range want {
				if frame := p.read(); frame.Type != typ {
					t.Errorf("with the profile %q a submit is refused by %s, want %s", profile, frame.raw, typ)
				}
			}
			if frames := p.pong(); len(frames) > 0 {
				t.Errorf("with the profile %q, %d frames more: %s", profile, len(frames), frames[0].raw)
			}
			q := f.dialDraft(python, "alice")
			q.submit("nobody.there", `{}`, "")
			q.refused("an unknown agent", "AGENT_NOT_AVAILABLE")
		})
	}
	if _, err := runtime.New(t.Context(), runtime.Config{Store: mem.Open(mem.Options{}), Auth: new(auth.Set), DraftProfile: "cobol"}); err == nil || !strings.Contains(err.Error(), "DraftProfile") {
		t.Errorf("a profile that does not exist: %v", err)
	}
}

// TestDraftBrokenHello fails the handshake at once if the hello cannot be decoded.
func TestDraftBrokenHello(t *testing.T) {
	inBubble(t, nil, func(f *fixture) {
		before := time.Now()
		for why, frame := range map[string]string{
			"a hello that is cut":       `{"arcp":"1.1","id":"m1","type":"session.hello","payload":{"client"`,
			"a hello without an id":     `{"arcp":"1.1","type":"session.hello","payload":{}}`,
			"a hello that is no object": `["session.hello"]`,
			"a hello with two payloads": `{"arcp":"1.1","id":"m1","type":"session.hello","payload":{},"payload":{}}`,
		} {
			wrong := f.connectDraft(&draftLibraries[0], 8000)
			if err := errors.Join(wrong.conn.Write([]byte(frame)), wrong.conn.Flush()); err != nil {
				t.Fatal(err)
			}
			wrong.handshakeFails(why, "INVALID_REQUEST")
		}
		if waited := time.Since(before); waited > time.Second {
			t.Errorf("the answers take %v", waited)
		}
	})
}

// TestHostileFirstFrames has connections begin with frames that open no session, or that look like
// both dialects. Each costs its own connection only.
func TestHostileFirstFrames(t *testing.T) {
	frames := map[string]string{
		"both types":       `{"arcp":"1.1","id":"m1","type":"session.open","type":"session.hello","payload":{}}`,
		"hello as a text":  `{"arcp":"1.1","id":"m1","type":"ping","timestamp":"2030-01-02T15:04:05Z","payload":{"type":"session.hello"}}`,
		"neither":          `{"arcp":"1.1","id":"m1","type":"job.submit","payload":{"agent":"demo.echo"}}`,
		"draft's welcome":  `{"arcp":"1.1","id":"m1","type":"session.welcome","payload":{}}`,
		"hello, no id":     `{"arcp":"1.1","type":"session.hello","payload":{}}`,
		"hello, no object": `{"arcp":"1.1","id":"m1","type":"session.hello","payload":["session.hello"]}`,
		"other version":    `{"arcp":"9","id":"m1","type":"session.hello","payload":{}}`,
		"object":           `{}`,
		"list":             `["session.hello"]`,
		"text":             `"session.hello"`,
		"null":             `null`,
		"not JSON":         `session.hello`,
		"brackets":         strings.Repeat("[", 64<<10),
		"hello, brackets":  `{"arcp":"1.1","id":"m1","type":"session.hello","payload":` + strings.Repeat("[", 64<<10),
		"empty":            ``,
		"binary":           "\x00\xff session.hello",
	}
	inBubble(t, nil, func(f *fixture) {
		rfc, p := f.dial("alice"), f.dialDraft(&draftLibraries[0], "alice")
		for _, name := range slices.Sorted(maps.Keys(frames)) {
			hostile := f.connect(nil)
			hostile.write(frames[name])
			p.pong()
			rfc.send("ping", `{}`)
			rfc.until("pong")
			_ = hostile.conn.Abort() // it may have ended
		}

		rfc.send("session.hello", fmt.Sprintf(draftLibraries[0].hello, "alice-"+token))
		rfc.send("ping", `{}`)
		rfc.until("pong")
		p.send("session.open", "", `"auth":{"scheme":"none"}`)
		p.pong()
		p.run("demo.echo", `{}`)
	})
}
