package runtime_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/rs/zerolog"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/conformance/script"
	"github.com/arcpd/arcpd/runtime"
	"github.com/arcpd/arcpd/runtime/internal/digest"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/pebble"
	"github.com/arcpd/arcpd/runtime/tool"
	"github.com/arcpd/arcpd/transport"
)

// TestScripts performs the conversations of testdata/scripts, each on a runtime of its own in
// virtual time. The needs of a script configure the runtime, see settings; a script that needs
// durable is performed on a store in memory and on a durable one. Package
// conformance/script describes the language; scriptVerbs and scriptFuncs list the additions of the runtime.
// A short test performs every tenth conversation, in memory.
func TestScripts(t *testing.T) {
	files, err := script.ParseDir(os.DirFS("testdata/scripts"), func(name string) bool { return scriptVerbs[name] != nil })
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for i, c := range file.Checks {
			if testing.Short() && i%10 > 0 {
				continue
			}
			needs := slices.DeleteFunc(slices.Clone(c.Needs), func(word string) bool { return word == "durable" })
			t.Run(c.ID, func(t *testing.T) { runScript(t, c, needs, false) })
			if len(needs) < len(c.Needs) && !testing.Short() {
				t.Run(c.ID+" durable", func(t *testing.T) { runScript(t, c, needs, true) })
			}
		}
	}
}

// runScript performs a script on a runtime whose store is in memory or durable.
func runScript(t *testing.T, c *script.Check, needs []string, durable bool) {
	t.Parallel()
	h := &scriptHost{fixture: &fixture{T: t}, dir: t.TempDir(), durable: durable, sent: map[eventKey]string{}, cloud: &cloud{},
		gateway: &gateway{issued: map[arcp.JobID]string{}}}
	h.free.Store(1 << 40)
	h.configure = func(c *runtime.Config) {
		h.openStore(c.Store.(*recordingStore))
		h.apply(c, needs)
	}
	inBubble(t, h.configure, func(f *fixture) {
		h.fixture = f
		defer h.closeStore()
		defer h.unblock()
		if err := c.Run(h); err != nil {
			t.Error(err)
		}
		wantClosedSets(t, h.reg)
	})
}

// openStore opens a durable store anew, as the next process does.
func (h *scriptHost) openStore(st *recordingStore) {
	if !h.durable {
		return
	}
	h.Helper()
	if h.durableStore != nil {
		if err := h.durableStore.Close(); err != nil {
			h.Error(err)
		}
	}
	var err error
	if h.durableStore, err = pebble.Open(filepath.Join(h.dir, "store"), pebble.Options{}); err != nil {
		h.Fatal(err)
	}
	st.set(func() { st.Store = h.durableStore })
}

// closeStore closes a durable store behind the runtime.
func (h *scriptHost) closeStore() {
	h.shutdown(0)
	h.serve.Wait()
	if h.durableStore != nil {
		if err := h.durableStore.Close(); err != nil {
			h.Error(err)
		}
	}
}

// settings are the words that a script may need. A word NAME=VALUE has a number as its value,
// of seconds where a time is configured.
var settings = map[string]func(h *scriptHost, c *runtime.Config, n int){
	"ack_window":    func(_ *scriptHost, c *runtime.Config, n int) { c.AckWindow = n },
	"backlog_bytes": func(_ *scriptHost, c *runtime.Config, n int) { c.BacklogBytes = int64(n) },
	"cloud":         func(h *scriptHost, c *runtime.Config, _ int) { withCloud(h.T, h.cloud)(c) }, // people, and clean-up handlers
	"disk":          func(h *scriptHost, c *runtime.Config, _ int) { h.watchDisk(c) },
	"gateway":       func(h *scriptHost, c *runtime.Config, _ int) { withGateway(h.T, h.gateway, &h.log)(c) },
	"handshake":     func(_ *scriptHost, c *runtime.Config, n int) { c.HandshakeTimeout = seconds(n) },
	"heartbeat":     func(_ *scriptHost, c *runtime.Config, n int) { c.Heartbeat = seconds(n) },
	"lease":         func(_ *scriptHost, c *runtime.Config, n int) { c.SessionLease = seconds(n) },
	"log": func(h *scriptHost, c *runtime.Config, _ int) {
		c.Log = zerolog.New(&h.log).Level(zerolog.TraceLevel)
	},
	"max_connections":            func(_ *scriptHost, c *runtime.Config, n int) { c.MaxConnections = n },
	"max_data":                   func(_ *scriptHost, c *runtime.Config, n int) { c.MaxData = int64(n) },
	"max_follows":                func(_ *scriptHost, c *runtime.Config, n int) { runtime.SetMaxFollows(c, n) },
	"max_frame":                  func(_ *scriptHost, c *runtime.Config, n int) { c.MaxFrame = int64(n) },
	"max_jobs":                   func(_ *scriptHost, c *runtime.Config, n int) { c.MaxJobs = n },
	"max_sessions":               func(_ *scriptHost, c *runtime.Config, n int) { c.MaxSessions = n },
	"max_sessions_per_principal": func(_ *scriptHost, c *runtime.Config, n int) { c.MaxSessionsPerPrincipal = n },
	"max_unauthenticated":        func(_ *scriptHost, c *runtime.Config, n int) { c.MaxUnauthenticated = n },
	"max_unauthenticated_per_ip": func(_ *scriptHost, c *runtime.Config, n int) { c.MaxUnauthenticatedPerIP = n },
	"people":                     func(h *scriptHost, c *runtime.Config, _ int) { withPeople(h.T)(c) },
	"rate":                       func(_ *scriptHost, c *runtime.Config, n int) { c.RatePerMin = n },
	"replay_bytes":               func(_ *scriptHost, c *runtime.Config, n int) { c.ReplayBytes = int64(n) },
	"replay_events":              func(_ *scriptHost, c *runtime.Config, n int) { c.ReplayEvents = n },
	"resume_window":              func(_ *scriptHost, c *runtime.Config, n int) { c.ResumeWindow = seconds(n) },
	"retention":                  func(_ *scriptHost, c *runtime.Config, n int) { c.Retention = seconds(n) },
	"session_idle":               func(_ *scriptHost, c *runtime.Config, n int) { c.SessionIdle = seconds(n) },
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

// apply applies the words of a script. An auth file that a step has loaded outlives a restart.
func (h *scriptHost) apply(c *runtime.Config, needs []string) {
	for _, word := range needs {
		name, value, _ := strings.Cut(word, "=")
		n, err := strconv.Atoi(cmp.Or(value, "0"))
		if err != nil || settings[name] == nil {
			h.Fatalf("there is no setting %s", word)
		}
		settings[name](h, c, n)
	}
	if h.auth == nil {
		h.auth = c.Auth
	}
	c.Auth = h.auth
}

// scriptHost is a runtime as scripts see it. It implements script.Host.
type scriptHost struct {
	*fixture
	configure    func(*runtime.Config)
	auth         *auth.Set
	dir          string              // of auth files
	sent         map[eventKey]string // event frames
	log          syncBuffer
	cloud        *cloud
	gateway      *gateway
	free         atomic.Uint64 // bytes of the disk
	full         atomic.Int64  // changes that were announced
	durable      bool
	durableStore store.Store   // the durable store
	commitGate   chan struct{} // holds commits; nil: none
	readGate     chan struct{} // holds the reads of jobs' rows; nil: none
	drained      chan struct{} // is closed when a shutdown in the background is over
}

// eventKey names an event of a session.
type eventKey struct {
	session arcp.SessionID
	seq     uint64
}

// maxWait bounds the wait of a step for a frame. An idle session ends earlier.
const maxWait = 30 * time.Hour

// scriptConn is a connection of a script.
type scriptConn struct {
	*peer
	host    *scriptHost
	catalog bool   // does not leave out tools.changed
	last    uint64 // number of the last event
}

func (c *scriptConn) WriteFrame(frame []byte) error {
	return errors.Join(c.conn.Write(frame), c.conn.Flush())
}

// ReadFrame implements script.Conn. The events of a connection have numbers without a gap, and
// an event that comes again is unchanged.
func (c *scriptConn) ReadFrame() ([]byte, error) {
	for {
		late := time.AfterFunc(maxWait, func() { _ = c.conn.Abort() })
		frame, err := c.conn.Read()
		if !late.Stop() {
			return nil, fmt.Errorf("nothing comes within %v", maxWait)
		}
		if closed, ok := errors.AsType[*transport.Error](err); ok && (!closed.Remote || closed.Code == 0) {
			return nil, fmt.Errorf("the connection ends: %w", closed.Err)
		}
		if err != nil {
			return nil, err
		}
		frame = bytes.Clone(frame)
		env, err := arcp.Decode(frame)
		if err != nil {
			return nil, fmt.Errorf("the frame %s: %w", frame, err)
		}
		if env.EventSeq > 0 {
			if c.last > 0 && env.EventSeq != c.last+1 {
				return nil, fmt.Errorf("event %d comes after event %d: %s", env.EventSeq, c.last, frame)
			}
			c.last = env.EventSeq
			key := eventKey{env.SessionID, env.EventSeq}
			if before, again := c.host.sent[key]; again && before != string(frame) {
				return nil, fmt.Errorf("an event has changed from %s to %s", before, frame)
			}
			c.host.sent[key] = string(frame)
		}
		if c.catalog || env.Type != arcp.EventEmit || !bytes.Contains(env.Payload, []byte(`"tools.changed"`)) {
			return frame, nil
		}
	}
}

// Drop implements script.Conn. The runtime has detached the session when it returns.
func (c *scriptConn) Drop() {
	_ = c.conn.Abort() // a connection that has ended is dropped
	synctest.Wait()
}

// Dial implements script.Host. A role is PRINCIPAL@ADDRESS; both may be left out. The
// operating system vouches for a connection without an address.
func (h *scriptHost) Dial(role string, _ script.Conn) (script.Conn, error) {
	_, address, elsewhere := strings.Cut(role, "@")
	p := h.connect(func(i *transport.Info) {
		if elsewhere {
			i.Local, i.RemoteAddr = false, address
		}
	})
	return &scriptConn{peer: p, host: h}, nil
}

// Open implements script.Host.
func (h *scriptHost) Open(role string) (script.Value, error) {
	name, _, _ := strings.Cut(role, "@")
	return value(map[string]any{"auth": map[string]any{"scheme": "bearer", "token": cmp.Or(name, "alice") + "-" + token},
		"client": map[string]any{"kind": "test", "version": "1"}}), nil
}

// Dialect implements script.Host.
func (h *scriptHost) Dialect(string) *script.Dialect { return script.RFC() }

// Restart implements script.Host.
func (h *scriptHost) Restart() error {
	h.shutdown(0)
	h.serve.Wait()
	h.boot(h.configure)
	return nil
}

// PollDeadline implements script.Host.
func (h *scriptHost) PollDeadline() time.Time { return time.Now().Add(maxWait) }

// House implements script.Host.
func (h *scriptHost) House() bool { return true }

// Var implements script.Host. The variable opening_NAME is the session.open of a principal.
func (h *scriptHost) Var(name string) (script.Value, bool) {
	if principal, ok := strings.CutPrefix(name, "opening_"); ok {
		v, _ := h.Open(principal) // no role is unknown
		return v, true
	}
	return nil, false
}

func value(v any) script.Value {
	raw, err := arcp.Marshal(v)
	if err != nil {
		panic(err) // v is made of texts and numbers
	}
	return raw
}

// plainText is the content of a string, or the JSON text of another value.
func plainText(v script.Value) (s string) {
	if arcp.Unmarshal(v, &s) == nil {
		return s
	}
	return string(v)
}

func number(v script.Value) float64 {
	n, _ := strconv.ParseFloat(string(v), 64) // 0 if v is no number
	return n
}

// Verb implements script.Host.
func (h *scriptHost) Verb(name string) func(script.Conn, []script.Value) (script.Value, error) {
	return func(c script.Conn, args []script.Value) (script.Value, error) {
		conn, _ := c.(*scriptConn)
		return scriptVerbs[name](h, conn, args)
	}
}

type verbFunc func(h *scriptHost, c *scriptConn, args []script.Value) (script.Value, error)

// withoutValue is a verb without a value.
func withoutValue(do func(h *scriptHost, c *scriptConn, args []script.Value)) verbFunc {
	return func(h *scriptHost, c *scriptConn, args []script.Value) (script.Value, error) {
		do(h, c, args)
		return nil, nil
	}
}

// scriptVerbs are the steps of the runtime's scripts. Of the server:
//
//	sleep SECONDS       lets virtual time pass
//	settle              waits until every goroutine waits
//	stop SECONDS        shuts down, jobs have SECONDS to end
//	drain SECONDS       begins a shutdown
//	finished            waits for the end of a shutdown that drain has begun
//	drained             waits for the ends of its connections, too
//	start               starts the runtime again on its store
//	kill                ends the runtime without another commit
//	fails TEXT          makes commits fail
//	hold, release       makes commits wait; lets them go on
//	delay_read SECONDS  delays the next read of a job's row
//	block, unblock      makes reads of jobs' rows wait; lets them go on
//	auth FILE           loads an auth file; tokens are written hash(NAME)
//	reauthenticate      looks at the credentials of the sessions again
//	limits LIMITS       changes limits
//	tools SOURCE NAMES  replaces the tools of a source
//	reserve PREFIX      reserves names of tools
//	reserve_for OWNER NAMES  reserves names of tools for one owner
//	disk BYTES          sets the free bytes of the disk
//	cloud STATE         makes clean-ups fail, hang, or work
//	gateway STATE       makes the provisioner refuse, keep what it is to revoke, or work
//	forget_log          forgets the log
//
// Of a connection:
//
//	catalogue           does not leave out tools.changed
//	breaks              reads up to the end of the connection, however it ends
//	hangup              closes with 1000
var scriptVerbs = map[string]verbFunc{
	"sleep": withoutValue(func(_ *scriptHost, _ *scriptConn, a []script.Value) {
		time.Sleep(time.Duration(number(a[0]) * float64(time.Second)))
	}),
	"settle": withoutValue(func(*scriptHost, *scriptConn, []script.Value) { synctest.Wait() }),
	"stop": withoutValue(func(h *scriptHost, _ *scriptConn, a []script.Value) {
		h.shutdown(seconds(int(number(a[0]))))
		h.serve.Wait()
	}),
	"drain": withoutValue(func(h *scriptHost, _ *scriptConn, a []script.Value) {
		h.drained = make(chan struct{})
		go func() { h.shutdown(seconds(int(number(a[0])))); close(h.drained) }()
		synctest.Wait()
	}),
	"finished": withoutValue(func(h *scriptHost, _ *scriptConn, _ []script.Value) { <-h.drained }),
	"drained":  withoutValue(func(h *scriptHost, _ *scriptConn, _ []script.Value) { <-h.drained; h.serve.Wait() }),
	"start":    withoutValue(func(h *scriptHost, _ *scriptConn, _ []script.Value) { h.boot(h.configure) }),
	"kill": withoutValue(func(h *scriptHost, _ *scriptConn, _ []script.Value) {
		synctest.Wait()
		h.st.set(func() { h.st.commitErr = errors.New("the process is gone") })
		h.shutdown(0)
		h.st.set(func() { h.st.commitErr = nil })
	}),
	"fails": withoutValue(func(h *scriptHost, _ *scriptConn, a []script.Value) {
		h.st.set(func() { h.st.commitErr = errors.New(plainText(a[0])) })
	}),
	"hold": withoutValue(func(h *scriptHost, _ *scriptConn, _ []script.Value) {
		h.commitGate = make(chan struct{})
		h.st.set(func() { h.st.commitGate = h.commitGate })
	}),
	"delay_read": withoutValue(func(h *scriptHost, _ *scriptConn, a []script.Value) {
		h.st.set(func() { h.st.nextReadTime = time.Duration(number(a[0]) * float64(time.Second)) })
	}),
	"block": withoutValue(func(h *scriptHost, _ *scriptConn, _ []script.Value) {
		h.readGate = make(chan struct{})
		h.st.set(func() { h.st.readGate = h.readGate })
	}),
	"release": withoutValue(func(h *scriptHost, _ *scriptConn, _ []script.Value) { h.unblock() }),
	"auth":    (*scriptHost).loadAuth,
	"reauthenticate": withoutValue(func(h *scriptHost, _ *scriptConn, _ []script.Value) {
		h.rt.Reauthenticate()
		synctest.Wait()
	}),
	"limits": func(h *scriptHost, _ *scriptConn, a []script.Value) (script.Value, error) {
		var l runtime.Limits
		err := arcp.Unmarshal(a[0], &l)
		h.rt.SetLimits(l)
		return nil, err
	},
	"tools": withoutValue(func(h *scriptHost, _ *scriptConn, a []script.Value) {
		var made []*tool.Tool
		for _, name := range texts(a[1]) {
			name, description, _ := strings.Cut(name, " ")
			made = append(made, plainTool(h, name, description))
		}
		h.replace(plainText(a[0]), made...)
	}),
	"reserve": withoutValue(func(h *scriptHost, _ *scriptConn, a []script.Value) { h.cfg.Tools.ReservePrefix(plainText(a[0])) }),
	"reserve_for": withoutValue(func(h *scriptHost, _ *scriptConn, a []script.Value) {
		h.cfg.Tools.ReserveFor(plainText(a[0]), plainText(a[1]))
	}),
	"disk":    withoutValue(func(h *scriptHost, _ *scriptConn, a []script.Value) { h.free.Store(uint64(number(a[0]))) }),
	"cloud":   withoutValue(func(h *scriptHost, _ *scriptConn, a []script.Value) { h.cloud.setState(plainText(a[0])) }),
	"gateway": withoutValue(func(h *scriptHost, _ *scriptConn, a []script.Value) { h.gateway.setState(plainText(a[0])) }),
	"forget_log": withoutValue(func(h *scriptHost, _ *scriptConn, _ []script.Value) {
		synctest.Wait()
		h.log.Reset()
	}),

	"catalogue": withoutValue(func(_ *scriptHost, c *scriptConn, _ []script.Value) { c.catalog = true }),
	"breaks": withoutValue(func(_ *scriptHost, c *scriptConn, _ []script.Value) {
		for _, err := c.conn.Read(); err == nil; _, err = c.conn.Read() {
		}
	}),
	"hangup": withoutValue(func(_ *scriptHost, c *scriptConn, _ []script.Value) {
		_ = c.conn.Close(transport.CloseNormal, "") // whether the farewell arrives does not matter
		synctest.Wait()
	}),
}

// unblock lets everything go on that a step has stopped.
func (h *scriptHost) unblock() {
	h.st.set(func() { h.st.commitGate, h.st.readGate, h.st.commitErr = nil, nil, nil })
	for _, c := range []*chan struct{}{&h.commitGate, &h.readGate} {
		if *c != nil {
			close(*c)
			*c = nil
		}
	}
	h.cloud.release()
}

// watchDisk has the runtime ask for the free bytes of a disk that steps fill.
func (h *scriptHost) watchDisk(c *runtime.Config) {
	c.FreeSpace = func() (uint64, error) { return h.free.Load(), nil }
	c.OnFull = func(bool) { h.full.Add(1) }
}

// jwtSecret is the key of the issuers in auth files.
var jwtSecret = []byte(strings.Repeat("s", 64))

// loadAuth loads an auth file; its issuers have the key file secret.
func (h *scriptHost) loadAuth(_ *scriptConn, args []script.Value) (script.Value, error) {
	name := filepath.Join(h.dir, "auth.yaml")
	err := errors.Join(os.WriteFile(filepath.Join(h.dir, "secret"), jwtSecret, 0o600), os.WriteFile(name, args[0], 0o600)) // JSON is YAML
	if err != nil {
		return nil, err
	}
	c, err := auth.Load(name, auth.Options{RuntimeID: auth.DefaultRuntimeID, CheckLease: runtime.CheckLease})
	if err == nil {
		h.auth.Reload(c)
	}
	return nil, err
}

func texts(v script.Value) (list []string) {
	_ = arcp.Unmarshal(v, &list) // a value that is no list has no items
	return list
}

// Func implements script.Host.
func (h *scriptHost) Func(name string) func([]script.Value) (script.Value, error) {
	f := scriptFuncs[name]
	if f == nil {
		return nil
	}
	return func(args []script.Value) (script.Value, error) { return f(h, args) }
}

// scriptFuncs are the functions of the runtime's scripts:
//
//	metric(NAME, LABEL)   the sum of a metric, over the label values that are given
//	session_row(ID)       last and trimmed numbers of a session in the store, and its identity
//	job_state(ID)         the state of a job in the store
//	keys(PREFIX)          the keys of records in the store
//	stored(TEXT)          whether a record or a feed has a text
//	stat()                numbers of the store
//	feed(PRINCIPAL)       last and trimmed numbers of a feed
//	ready()               why the runtime is not ready; ""
//	closed()              how often the store was closed, and the commits behind that
//	durable()             whether the last commit outlives a crash
//	hash(NAME)            the token of a principal as auth files have it
//	jwt(CLAIMS)           a token for 1 h that is signed with the key of auth files
//	proof(NAME, CHALLENGE)  of having the token of a principal
//	log()                 the records of the log
//	logged(TEXT)          how often the log has a text
//	audit()               the audit records since the last call: action, decision, actor, target
//	people()              how many sessions may be asked
//	cleaned(), called()   what the clean-up handler and the clean-up tool were called for
//	credentials()         how many credentials are not revoked
//	announced()           how many changes of the disk were announced
//	generation()          the generation of the tools
//	digest(VALUE)         the digest of the arguments of a call
//	base64(TEXT)          what a text in base64 encodes
var scriptFuncs = map[string]func(h *scriptHost, args []script.Value) (script.Value, error){
	"metric": func(h *scriptHost, a []script.Value) (script.Value, error) {
		label := ""
		if len(a) > 1 {
			label = strconv.Quote(plainText(a[1]))
		}
		synctest.Wait()
		return value(h.sum(plainText(a[0]), label)), nil
	},
	"session_row": func(h *scriptHost, a []script.Value) (script.Value, error) {
		synctest.Wait()
		row, err := h.st.Session(context.Background(), arcp.SessionID(plainText(a[0])))
		return value(map[string]any{"last": row.LastSeq, "trimmed": row.TrimmedTo, "identity": string(row.Identity)}), err
	},
	"job_state": func(h *scriptHost, a []script.Value) (script.Value, error) {
		synctest.Wait()
		row, err := h.st.Job(context.Background(), arcp.JobID(plainText(a[0])))
		return value(row.State), err
	},
	"keys": func(h *scriptHost, a []script.Value) (script.Value, error) {
		synctest.Wait()
		keys := []string{}
		err := h.st.Records(context.Background(), plainText(a[0]), "", func(r store.Record) bool { keys = append(keys, r.Key); return true })
		return value(keys), err
	},
	"stored": func(h *scriptHost, a []script.Value) (script.Value, error) {
		return value(h.inStore(plainText(a[0]))), nil
	},
	"stat": func(h *scriptHost, _ []script.Value) (script.Value, error) {
		synctest.Wait()
		st := h.st.Stat()
		return value(map[string]any{"jobs": st.Jobs, "sessions": st.Sessions}), nil
	},
	"feed": func(h *scriptHost, a []script.Value) (script.Value, error) {
		trimmed, last, err := h.st.FeedBounds(context.Background(), plainText(a[0]))
		return value(map[string]any{"trimmed": trimmed, "last": last}), err
	},
	"ready": func(h *scriptHost, _ []script.Value) (script.Value, error) {
		if err := h.rt.Ready(); err != nil {
			return value(err.Error()), nil
		}
		return value(""), nil
	},
	"closed": func(h *scriptHost, _ []script.Value) (script.Value, error) {
		return value(map[string]any{"times": h.st.closes, "late_commits": h.st.lateCommits}), nil
	},
	"durable": func(h *scriptHost, _ []script.Value) (v script.Value, err error) {
		h.st.set(func() { v = value(!h.st.unsynced) })
		return v, nil
	},
	"hash": func(_ *scriptHost, a []script.Value) (script.Value, error) {
		return value(auth.FileHash(auth.Secret(plainText(a[0]) + "-" + token))), nil
	},
	"jwt": signJWT,
	"proof": func(_ *scriptHost, a []script.Value) (script.Value, error) {
		return value(challengeAnswer(plainText(a[0]), plainText(a[1]))), nil
	},
	"log": func(h *scriptHost, _ []script.Value) (script.Value, error) {
		synctest.Wait()
		return value(h.log.records()), nil
	},
	"logged": func(h *scriptHost, a []script.Value) (script.Value, error) {
		synctest.Wait()
		return value(strings.Count(h.log.String(), plainText(a[0]))), nil
	},
	"audit": func(h *scriptHost, _ []script.Value) (script.Value, error) {
		synctest.Wait()
		return value(auditRecords(h.T, &h.log.Buffer)), nil
	},
	"people":  func(h *scriptHost, _ []script.Value) (script.Value, error) { return value(h.rt.People()), nil },
	"cleaned": func(h *scriptHost, _ []script.Value) (script.Value, error) { return value(h.cloud.cleaned()), nil },
	"called":  func(h *scriptHost, _ []script.Value) (script.Value, error) { return value(h.cloud.called()), nil },
	"credentials": func(h *scriptHost, _ []script.Value) (script.Value, error) {
		synctest.Wait()
		return value(h.gateway.live()), nil
	},
	"announced": func(h *scriptHost, _ []script.Value) (script.Value, error) {
		synctest.Wait()
		return value(h.full.Load()), nil
	},
	"generation": func(h *scriptHost, _ []script.Value) (script.Value, error) {
		return value(h.cfg.Tools.Generation()), nil
	},
	"base64": func(_ *scriptHost, a []script.Value) (script.Value, error) {
		raw, err := base64.RawURLEncoding.DecodeString(plainText(a[0]))
		return value(strings.ToValidUTF8(string(raw), "?")), err
	},
	"digest": func(_ *scriptHost, a []script.Value) (script.Value, error) {
		return value(digest.Of(a[0])), nil
	},
}

// signJWT signs the claims of a token for this runtime.
func signJWT(_ *scriptHost, args []script.Value) (script.Value, error) {
	claims := jwt.MapClaims{"iss": "home", "aud": auth.DefaultRuntimeID, "sub": "alice", "exp": time.Now().Add(time.Hour).Unix()}
	if err := arcp.Unmarshal(args[0], &claims); err != nil {
		return nil, err
	}
	signed, err := jwt.NewWithClaims(jwt.SigningMethodHS256, claims).SignedString(jwtSecret)
	return value(signed), err
}

// challengeAnswer is the answer of a principal's client to a challenge.
func challengeAnswer(name, challenge string) string {
	key := sha256.Sum256([]byte(name + "-" + token))
	mac := hmac.New(sha256.New, key[:])
	mac.Write([]byte(challenge))
	return hex.EncodeToString(mac.Sum(nil))
}

// setState makes clean-ups fail, hang or, for any other state, succeed.
func (c *cloud) setState(state string) {
	c.set(func() {
		c.fails, c.blockedUntil = state == "fails", nil
		if state == "hangs" {
			c.blockedUntil = make(chan struct{})
			c.blockers = append(c.blockers, c.blockedUntil)
		}
	})
}

// release ends the clean-ups that hang.
func (c *cloud) release() {
	c.set(func() {
		for _, blocker := range c.blockers {
			close(blocker)
		}
		c.blockers = nil
	})
}

// setState makes the provisioner refuse, fail to revoke or, for any other state, work.
func (g *gateway) setState(state string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuse, g.revokeFails = nil, state == "stuck"
	if state == "refuses" {
		g.refuse = arcp.Errorf(arcp.CodeResourceExhausted, "no more keys").RetryAfter(5)
	}
}

// records returns the records of the log.
func (b *syncBuffer) records() []arcp.Raw {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []arcp.Raw{}
	for line := range bytes.Lines(b.Bytes()) {
		list = append(list, arcp.Raw(bytes.TrimSpace(line)))
	}
	return list
}
