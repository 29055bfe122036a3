package chaos

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// Kind is the demo tool of a task.
type Kind string

// The kinds have predictable events.
const (
	Echo     Kind = "demo.echo"
	Emit     Kind = "demo.emit"
	Progress Kind = "demo.progress"
	Count    Kind = "demo.count"
	Sleep    Kind = "demo.sleep"
	Fail     Kind = "demo.fail"
	Chunks   Kind = "demo.stream"
	Artifact Kind = "demo.artifact"
	Delegate Kind = "demo.delegate"
	Schedule Kind = "schedule.create"
	Workflow Kind = "chaos.workflow" // a workflow; the doc of Config.Effects has its steps
	Once     Kind = "chaos.once"     // has an effect, and fails if the server ends meanwhile
	Rerun    Kind = "chaos.again"    // has an effect, and runs again if the server ends meanwhile
)

// endsWithServer reports whether a restart ends jobs of the kind (SPEC.md §7.2).
func (k Kind) endsWithServer() bool {
	return k == Emit || k == Fail || k == Artifact || k == Once
}

// Task is the work that a submit requests.
type Task struct {
	Kind      Kind
	Arguments string
	N         int    // number of events, chunks or occurrences, or bytes of the artifact
	Marker    string // text in the arguments that identifies the submit; some kinds have no room for it
	Direct    bool
	Key       string        // idempotency key; empty: none
	Start     bool          // workflow.start submits the workflow
	Delegate  bool          // agent.delegate submits the task
	Child     *Task         // job that the tool calls, or that a schedule submits; nil: none
	Detach    bool          // the child continues after the end of the job
	Interval  time.Duration // between the occurrences of a schedule; 0: it has one occurrence
	Delay     time.Duration // until the one occurrence
}

// marker identifies a submit of a principal. The runtime copies the marker with data of the submit,
// so each frame shows the origin of its data.
func marker(principal string, session, n int) string {
	return fmt.Sprintf("%s%02d~%d", markerPrefix(principal), session, n)
}

// markerPrefix returns the prefix of the markers of a principal.
func markerPrefix(principal string) string { return "~" + principal + "~" }

// trace returns the trace id of a submit. It identifies the submit like a marker, in a form that both
// dialects keep.
func trace(principal string, session, n int) string {
	return fmt.Sprintf("%s%08x%08x", tracePrefix(principal), session, n)
}

// tracePrefix returns the prefix of the trace ids of a principal.
func tracePrefix(principal string) string {
	sum := sha256.Sum256([]byte(principal))
	return hex.EncodeToString(sum[:8])
}

// keyedTask returns the task for an idempotency key. It is the same in all sessions.
func keyedTask(principal string, n int, workflows bool) Task {
	t := randomTask(rand.New(rand.NewPCG(uint64(n), 0)), markerPrefix(principal)+fmt.Sprintf("key~%d", n), workflows)
	t.Key, t.Direct, t.Start, t.Delegate = fmt.Sprintf("key-%d", n), false, false, false
	return t
}

// randomTask returns a random task. Some tasks are workflows if the server has the workflow.
func randomTask(rnd *rand.Rand, mark string, workflows bool) Task {
	switch n := rnd.IntN(100); {
	case n < 3 && workflows:
		return workflowTask(rnd, mark)
	case n < 9:
		return delegateTask(rnd, mark)
	}
	if rnd.IntN(20) == 0 {
		return requestTask(mark)
	}
	t := plainTask(rnd, mark)
	t.Direct = rnd.IntN(12) == 0
	return t
}

// plainTask returns a random task without children.
func plainTask(rnd *rand.Rand, mark string) Task {
	t := Task{Marker: mark}
	switch n := rnd.IntN(100); {
	case n < 40:
		t.Kind = Echo
		t.Arguments = fmt.Sprintf(`{"mark":%q,"x":[1,2.50,"ü"],"n":%d}`, mark, rnd.IntN(1000))
	case n < 55:
		t.Kind, t.N = Emit, 20+rnd.IntN(300)
		t.Arguments = fmt.Sprintf(`{"count":%d,"bytes":%d,"interval_ms":%d}`, t.N, rnd.IntN(120), rnd.IntN(3))
	case n < 68:
		t.Kind, t.N = Progress, 5+rnd.IntN(40)
		t.Arguments = fmt.Sprintf(`{"steps":%d,"interval_ms":%d}`, t.N, rnd.IntN(20))
	case n < 80:
		t.Kind, t.N = Count, 5+rnd.IntN(40)
		t.Arguments = fmt.Sprintf(`{"to":%d,"interval_ms":%d}`, t.N, 5+rnd.IntN(50))
	case n < 86:
		t.Kind = Sleep
		t.Arguments = fmt.Sprintf(`{"ms":%d}`, rnd.IntN(3000))
	case n < 92:
		t.Kind, t.N = Chunks, rnd.IntN(40)
		t.Arguments = fmt.Sprintf(`{"name":%q,"chunks":%d,"bytes":%d,"interval_ms":%d}`, mark, t.N, 8+rnd.IntN(200), rnd.IntN(20))
	case n < 95:
		t.Kind, t.N = Artifact, rnd.IntN(100_000)
		t.Arguments = fmt.Sprintf(`{"bytes":%d,"media_type":"text/plain"}`, t.N)
	default:
		t.Kind = Fail
		t.Arguments = fmt.Sprintf(`{"code":"NOT_FOUND","message":%q}`, mark)
	}
	return t
}

// expectation tracks the events of a job in its submitting session and checks the next event.
type expectation struct {
	task    Task
	begun   bool // job.accepted was received, or is no event
	attempt int  // number of job.started events
	n       int  // number of tool events in this attempt
	point   int  // count at the last checkpoint; -1: the session receives no checkpoints

	streams  bool            // the session receives streams
	stream   arcp.StreamID   // open stream; empty: none
	closed   bool            // the stream was closed behind its last chunk
	artifact arcp.ArtifactID // announced artifact; empty: none

	steps map[string]string // last state of each step of a workflow
	fired int               // occurrences that fired, according to the result of a schedule
}

// newExpectation returns the expectation of the events that a session sees.
func newExpectation(t Task, s *Stream) *expectation {
	y := &expectation{task: t, begun: !s.sees(arcp.JobAccepted), streams: s.sees(arcp.StreamChunk)}
	if !s.sees(arcp.JobCheckpoint) {
		y.point = -1
	}
	return y
}

// check checks the next event and returns the violation, or "".
func (ex *expectation) check(env *arcp.Envelope) string {
	opening := env.Type == arcp.JobAccepted
	switch {
	case ex.task.Direct && (opening || env.Type == arcp.JobStarted):
		return fmt.Sprintf("%s of a direct job", env.Type)
	case !ex.task.Direct && opening == ex.begun:
		return fmt.Sprintf("%s where job.accepted was received before: %t", env.Type, ex.begun)
	}
	ex.begun = ex.begun || opening
	return ex.next(env)
}

// next checks an event after the order of job.accepted and job.started.
func (ex *expectation) next(env *arcp.Envelope) string {
	switch env.Type {
	case arcp.JobAccepted:
		return ""
	case arcp.JobStarted:
		return ex.started()
	case arcp.Log:
		return ex.logged(env)
	case arcp.JobProgress:
		return ex.progressed(env)
	case arcp.JobCheckpoint:
		return ex.saved()
	case arcp.EventEmit:
		return ex.emitted(env)
	case arcp.StreamOpen, arcp.StreamChunk, arcp.StreamClose, arcp.StreamError:
		return ex.streamed(env)
	case arcp.ArtifactRef:
		return ex.announced(env)
	}
	if ex.stream != "" {
		return fmt.Sprintf("%s before the end of the stream %s", env.Type, ex.stream)
	}
	switch env.Type {
	case arcp.JobCompleted, arcp.ToolResult, arcp.WorkflowComplete:
		return ex.completed(env)
	case arcp.JobFailed, arcp.ToolError:
		return ex.failed(env)
	case arcp.JobCancelled:
		return ""
	}
	return fmt.Sprintf("%s is not an event of %s", env.Type, ex.task.Kind)
}

func (ex *expectation) started() string {
	if ex.task.Kind == Schedule {
		return "job.started of a schedule"
	}
	if ex.attempt++; ex.attempt > 1 && ex.task.Kind.endsWithServer() {
		return fmt.Sprintf("attempt %d of %s, which a restart should have ended", ex.attempt, ex.task.Kind)
	}
	if ex.stream != "" {
		return fmt.Sprintf("attempt %d starts before the end of the stream %s", ex.attempt, ex.stream)
	}
	ex.n, ex.closed = 0, false
	if ex.task.Kind == Count {
		ex.n = max(ex.point, 0)
	}
	return ""
}

func (ex *expectation) logged(env *arcp.Envelope) string {
	var p struct {
		Attributes struct {
			N int `json:"n"`
		} `json:"attributes"`
	}
	if err := arcp.Unmarshal(env.Payload, &p); err != nil || ex.task.Kind != Emit {
		return fmt.Sprintf("a log of %s: %s (%v)", ex.task.Kind, env.Payload, err)
	}
	want := ex.n
	ex.n = p.Attributes.N + 1
	if p.Attributes.N != want {
		return fmt.Sprintf("log %d arrives, want log %d", p.Attributes.N, want)
	}
	return ""
}

func (ex *expectation) progressed(env *arcp.Envelope) string {
	p, err := arcp.DecodePayload[arcp.JobProgressPayload](env)
	if err != nil || ex.task.Kind != Progress && ex.task.Kind != Count {
		return fmt.Sprintf("progress of %s: %s (%v)", ex.task.Kind, env.Payload, err)
	}
	want := ex.n + 1
	ex.n = int(p.Current)
	anyStart := ex.task.Direct || ex.point < 0 && ex.attempt > 1 // the first event of the attempt is unknown
	if ex.n != want && !anyStart {
		return fmt.Sprintf("progress %d arrives, want %d", ex.n, want)
	}
	return ""
}

// saved checks a checkpoint. Its event does not contain the count: the count is in the event
// before.
func (ex *expectation) saved() string {
	if ex.task.Kind == Workflow && ex.point >= 0 {
		return ""
	}
	if ex.task.Kind != Count || ex.point < 0 {
		return fmt.Sprintf("a checkpoint of %s", ex.task.Kind)
	}
	want := ex.point + 1
	ex.point = ex.n
	if ex.n != want {
		return fmt.Sprintf("a checkpoint follows progress %d, want %d", ex.n, want)
	}
	return ""
}

// streamed checks an event of a stream.
func (ex *expectation) streamed(env *arcp.Envelope) string {
	if env.Type == arcp.StreamOpen && ex.task.Direct { // without job.started the attempt begins here
		ex.n, ex.closed = 0, false
	}
	if ex.task.Kind != Chunks || (env.Type == arcp.StreamOpen) != (ex.stream == "") || ex.closed || env.StreamID == "" {
		return fmt.Sprintf("%s of %s, whose stream is %q and closed: %t", env.Type, ex.task.Kind, ex.stream, ex.closed)
	}
	if env.Type == arcp.StreamOpen {
		ex.stream = env.StreamID
	}
	if env.StreamID != ex.stream {
		return fmt.Sprintf("%s of the stream %s, want %s", env.Type, env.StreamID, ex.stream)
	}
	var p struct {
		Sequence      int    `json:"sequence"`
		FinalSequence *int   `json:"final_sequence"`
		Data          string `json:"data"`
	}
	if err := arcp.Unmarshal(env.Payload, &p); err != nil {
		return err.Error()
	}
	switch env.Type {
	case arcp.StreamChunk:
		if number := fmt.Sprint(ex.n); p.Sequence != ex.n || !strings.HasPrefix(p.Data, number) || strings.Trim(p.Data[len(number):], ".\n") != "" {
			return fmt.Sprintf("chunk %d %q arrives, want chunk %d", p.Sequence, p.Data, ex.n)
		}
		ex.n++
	case arcp.StreamClose:
		ex.stream, ex.closed = "", true
		if last := ex.n - 1; last < 0 && p.FinalSequence != nil || last >= 0 && (p.FinalSequence == nil || *p.FinalSequence != last) {
			return fmt.Sprintf("the stream of %d chunks is closed with %s", ex.n, env.Payload)
		}
	case arcp.StreamError:
		ex.stream = ""
	}
	return ""
}

// announced checks the artifact of a job.
func (ex *expectation) announced(env *arcp.Envelope) string {
	a, err := announcedArtifact(env)
	if err != nil || ex.task.Kind != Artifact || ex.artifact != "" || a.Size != uint64(ex.task.N) {
		return fmt.Sprintf("an artifact of %s after %q: %s (%v)", ex.task.Kind, ex.artifact, env.Payload, err)
	}
	ex.artifact = a.ArtifactID
	return ""
}

// announcedArtifact returns the artifact of artifact.ref. In the draft dialect only its address has the
// id.
func announcedArtifact(env *arcp.Envelope) (arcp.ArtifactObject, error) {
	p, err := arcp.DecodePayload[arcp.ArtifactRefPayload](env)
	a := cmp.Or(p.Artifact, p.ArtifactObject)
	if a.ArtifactID == "" {
		a.ArtifactID = arcp.ArtifactID(a.URI[strings.LastIndexByte(a.URI, '/')+1:])
	}
	return a, err
}

// produced checks the result of a job with a stream or an artifact.
func (ex *expectation) produced(value arcp.Raw) string {
	var p struct {
		Chunks   int             `json:"chunks"`
		Artifact arcp.ArtifactID `json:"artifact_id"`
	}
	err := arcp.Unmarshal(value, &p)
	switch {
	case err != nil:
		return err.Error()
	case ex.task.Kind == Artifact && (p.Artifact == "" || p.Artifact != ex.artifact):
		return fmt.Sprintf("completed with %s after the artifact %q", value, ex.artifact)
	case ex.task.Kind == Chunks && (p.Chunks != ex.task.N || ex.streams && (ex.n != ex.task.N || !ex.closed)):
		return fmt.Sprintf("completed with %s after %d of %d chunks, closed: %t", value, ex.n, ex.task.N, ex.closed)
	}
	return ""
}

func (ex *expectation) completed(env *arcp.Envelope) string {
	p, err := arcp.DecodePayload[arcp.JobCompletedPayload](env)
	switch {
	case err != nil:
		return err.Error()
	case ex.task.Kind == Fail:
		return "a job that has to fail was completed"
	case (env.Type == arcp.WorkflowComplete) != ex.task.Start:
		return fmt.Sprintf("%s of a job of workflow.start: %t", env.Type, ex.task.Start)
	case ex.task.Child != nil || ex.task.Kind == Workflow:
		return ex.concluded(p.Value)
	case ex.task.Kind == Once, ex.task.Kind == Rerun:
		return ""
	case ex.task.Kind == Echo && string(p.Value) != ex.task.Arguments:
		return fmt.Sprintf("the echo of %s is %s", ex.task.Arguments, p.Value)
	case ex.task.Kind == Chunks, ex.task.Kind == Artifact:
		return ex.produced(p.Value)
	case ex.n == 0 && ex.attempt > 1 && ex.task.Kind == Count && ex.point < 0:
		return "" // the last attempt resumed from the final checkpoint, which the session does not receive
	case ex.n != ex.task.N:
		return fmt.Sprintf("completed after %d of %d events", ex.n, ex.task.N)
	}
	return ""
}

func (ex *expectation) failed(env *arcp.Envelope) string {
	e, err := arcp.DecodePayload[arcp.Error](env)
	switch {
	case err != nil:
		return err.Error()
	case ex.task.Kind == Fail && e.Code == arcp.CodeNotFound && strings.Contains(e.Message, ex.task.Marker):
		return ""
	case env.Type == arcp.ToolError && e.Code == arcp.CodeCancelled: // the only final event for a cancelled direct job
		return ""
	case e.Code == arcp.CodeAborted && (ex.task.Kind.endsWithServer() || ex.task.Kind == Workflow):
		return ""
	case ex.task.Kind == Delegate: // ends as its child does
		return (&expectation{task: *ex.task.Child}).failed(env)
	}
	return fmt.Sprintf("%s failed with %s: %s", ex.task.Kind, e.Code, e.Message)
}
