package agent

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// fakeProgram begins the name of a directory that makes the test program be one
// that does what the arguments of its jobs say. A number may follow: so many of its
// tools have names that cannot be offered.
const fakeProgram = "fake-"

// hangingProgram is one that promises heartbeats, if they are wanted, and sends none.
const hangingProgram = fakeProgram + "hangs-"

// listingProgram begins the name of one that has tools.list; what that answers
// follows, of the answers that lists has.
const listingProgram = fakeProgram + "lists-"

// lists are the values that a listing program answers one list after the other, the
// last one from then on; an empty one is a failure.
var lists = map[string][]string{
	"fails":   {``},
	"text":    {`"x, y"`},
	"other":   {`{"tools":["x"]}`},
	"strange": {`{"items":[{"id":"x"}]}`},
	"later":   {`{"items":[{"name":"x","version":"1.0.0","versions":["1.0.0"]}]}`, ``, `{"items":[{"name":"y"}]}`},
}

// script is the arguments of a job of the fake program.
type script struct {
	Hold bool    `json:"hold,omitempty"` // it is accepted only when another job is submitted
	Say  []frame `json:"say,omitempty"`
}

// frame is something that is said of a job; of the session if its type says so.
type frame struct {
	Type    arcp.Type `json:"type"`
	Payload arcp.Raw  `json:"payload,omitempty"`
	Parts   int       `json:"parts,omitempty"` // instead: so many parts of a result,
	Bytes   int       `json:"bytes,omitempty"` // each of so many bytes
}

type fake struct {
	seq, jobs, listed int
	held              *arcp.Envelope
	out               *bufio.Writer
}

func beFake(dir string) {
	f := &fake{out: bufio.NewWriter(os.Stdout)}
	in := bufio.NewReader(os.Stdin)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			os.Exit(0)
		}
		env, err := arcp.Decode(line)
		if err != nil {
			panic(err)
		}
		f.hear(dir, &env)
		f.out.Flush()
	}
}

func (f *fake) hear(dir string, env *arcp.Envelope) {
	switch env.Type {
	case arcp.SessionOpen:
		promise := `"capabilities":{`
		if p, err := arcp.DecodePayload[arcp.SessionOpenPayload](env); err == nil && p.Capabilities.Has(arcp.FeatureHeartbeat) && strings.HasPrefix(dir, hangingProgram) {
			promise = `"heartbeat_interval_sec":1,"capabilities":{"heartbeat":true,`
		}
		f.say(arcp.SessionAccepted, env.ID, "", `{"session_id":"sess_1","runtime":{"kind":"k","version":"1"},"resume_token":"abc",`+
			promise+`"agents":[`+fakeAgents(dir)+`]}}`)
	case arcp.SessionResume:
		f.say(arcp.SessionRejected, env.ID, "", `{"code":"RESUME_WINDOW_EXPIRED","message":"gone"}`)
	case arcp.ToolInvoke:
		f.invoke(dir, env)
	case arcp.Cancel:
		p, _ := arcp.DecodePayload[arcp.CancelPayload](env)
		fmt.Fprintln(os.Stderr, "cancel of", p.TargetID)
		f.say(arcp.CancelAccepted, env.ID, "", `{"target":"job","target_id":"`+p.TargetID+`"}`)
		f.say(arcp.JobCancelled, "", arcp.JobID(p.TargetID), `{"code":"CANCELLED"}`)
	}
}

func fakeAgents(dir string) string {
	n, _ := strconv.Atoi(strings.Split(dir, "-")[1]) // none: no number
	var agents strings.Builder
	agents.WriteString(`{"name":"x"}`)
	if strings.HasPrefix(dir, listingProgram) {
		agents.WriteString(`,{"name":"` + listTool + `"}`)
	}
	for i := range n {
		fmt.Fprintf(&agents, `,{"name":"B %d %s"}`, i, strings.Repeat("b", 1000))
	}
	return agents.String()
}

// list answers a call of tools.list.
func (f *fake) list(dir string, env *arcp.Envelope) {
	answers := lists[strings.Split(dir, "-")[2]]
	answer := answers[min(f.listed, len(answers)-1)]
	f.listed++
	if job := f.accept(env); answer == "" {
		f.say(arcp.JobFailed, "", job, `{"code":"UNAVAILABLE","message":"not now"}`)
	} else {
		f.say(arcp.JobCompleted, "", job, `{"value":`+answer+`}`)
	}
}

func (f *fake) invoke(dir string, env *arcp.Envelope) {
	p, err := arcp.DecodePayload[arcp.ToolInvokePayload](env)
	if err != nil {
		panic(err)
	}
	if p.Tool == listTool {
		f.list(dir, env)
		return
	}
	var s script
	if err := arcp.Unmarshal(p.Arguments, &s); err != nil {
		panic(err)
	}
	if s.Hold {
		kept := *env
		f.held = &kept
		fmt.Fprintln(os.Stderr, "held")
		return
	}
	if f.held != nil {
		f.accept(f.held)
		f.held = nil
	}
	job := f.accept(env)
	for _, fr := range s.Say {
		for i := range fr.Parts {
			f.say(arcp.JobResultChunk, "", job, fmt.Sprintf(`{"result_id":"r","chunk_seq":%d,"data":%q,"encoding":"utf8","more":%t}`,
				i, strings.Repeat("1", fr.Bytes), i+1 < fr.Parts))
		}
		of := job
		if fr.Type == arcp.EventEmit {
			of = ""
		}
		if fr.Parts == 0 {
			f.say(fr.Type, "", of, string(fr.Payload))
		}
		if fr.Type == arcp.SessionEvicted {
			f.out.Flush()
			os.Exit(0)
		}
	}
	f.out.Flush()
	fmt.Fprintln(os.Stderr, "said everything of", job)
}

func (f *fake) accept(env *arcp.Envelope) arcp.JobID {
	f.jobs++
	job := arcp.JobID(fmt.Sprintf("job_%d", f.jobs))
	f.say(arcp.JobAccepted, env.ID, job, `{"job_id":"`+string(job)+`","agent":"x@1.0.0"}`)
	return job
}

// say numbers what is said of a job.
func (f *fake) say(t arcp.Type, answers arcp.MessageID, job arcp.JobID, payload string) {
	env := arcp.Envelope{ARCP: arcp.Version, ID: arcp.NewMessageID(), Timestamp: time.Now(), Type: t, SessionID: "sess_1", CorrelationID: answers, Payload: arcp.Raw(payload)}
	if !strings.HasPrefix(string(t), "session.") && t != arcp.CancelAccepted {
		f.seq++
		env.EventSeq, env.JobID = uint64(f.seq), job
	}
	if _, err := f.out.Write(append(env.Append(nil), '\n')); err != nil {
		os.Exit(1) // nobody reads any more
	}
}

func newFake(t *testing.T) *fixture { return newBed(t, fakeProgram+"-"+rand.Text()) }

// runs runs a job of the fake program.
func (b *fixture) runs(ctx context.Context, job *fakeJob, s script) (string, *arcp.Error) {
	b.t.Helper()
	args, err := arcp.Marshal(s)
	if err != nil {
		b.t.Fatal(err)
	}
	return b.call(ctx, job, "kid.x@1.0.0", string(args))
}

// said waits until the log has a text.
func (b *fixture) said(text string) {
	b.t.Helper()
	for ctx := soon(b.t); !strings.Contains(b.log.String(), text); goruntime.Gosched() {
		if ctx.Err() != nil {
			b.t.Fatalf("nothing is said of %q; log:\n%s", text, b.log)
		}
	}
}

// The end of a session is not what the job came to.
func TestEvictedIsNotWhatTheJobSays(t *testing.T) {
	b := newFake(t)
	out, err := b.runs(soon(t), newJob(), script{Say: []frame{
		{Type: arcp.SessionEvicted, Payload: arcp.Raw(`{"code":"PERMISSION_DENIED","reason":"go away"}`)}}})
	if err == nil || err.Code != arcp.CodeAborted {
		t.Errorf("result = %s, %v, want ABORTED", out, err)
	}
}

// A job that is cancelled before it was accepted there is cancelled when it is.
func TestCancelBeforeTheAcceptance(t *testing.T) {
	b := newFake(t)
	ctx, cancel := context.WithCancelCause(soon(t))
	ended := make(chan *arcp.Error, 1)
	go func() {
		_, err := b.runs(ctx, newJob(), script{Hold: true})
		ended <- err
	}()
	b.said("held")
	cancel(arcp.Errorf(arcp.CodeCancelled, "enough"))
	if out, err := b.runs(soon(t), newJob(), script{Say: []frame{{Type: arcp.JobCompleted, Payload: arcp.Raw(`{"value":1}`)}}}); err != nil || out != "1" {
		t.Errorf("another job: %s, %v", out, err)
	}
	b.said("cancel of job_1")
	if err := <-ended; err == nil || err.Code != arcp.CodeCancelled {
		t.Errorf("error = %v, want it cancelled", err)
	}
}

// A call that gave up a job may end after one that found it again.
func TestALaterCallOfTheSameJobStays(t *testing.T) {
	c := newCalls()
	accept := func(k *call) {
		c.hear(&arcp.Envelope{Type: arcp.JobAccepted, CorrelationID: k.request, JobID: "job_1", Payload: arcp.Raw(`{"job_id":"job_1"}`)})
	}
	early, late := c.begin(tool.NewJob(newJob())), c.begin(tool.NewJob(newJob()))
	accept(early)
	accept(late)
	c.end(early)
	if got, err := c.of("job_1"); err != nil || got != late.job {
		t.Errorf("the job's call is %v, %v, want the later one", got, err)
	}
	c.end(late)
	if _, err := c.of("job_1"); err == nil || len(c.asked)+len(c.jobs) != 0 {
		t.Errorf("%v, %d calls are left", err, len(c.asked)+len(c.jobs))
	}
}

func completed(payload string) frame {
	return frame{Type: arcp.JobCompleted, Payload: arcp.Raw(payload)}
}

func part(payload string) frame { return frame{Type: arcp.JobResultChunk, Payload: arcp.Raw(payload)} }

// A result that did not come whole is none.
func TestPartsThatAreMissing(t *testing.T) {
	b := newFake(t)
	const zero, one = `{"result_id":"r","chunk_seq":0,"data":"12","encoding":"utf8","more":true}`, `{"result_id":"r","chunk_seq":1,"data":"MzQ=","encoding":"base64"}`
	for name, c := range map[string]struct {
		say  []frame
		want string
	}{
		"whole":              {[]frame{part(zero), part(one), completed(`{"result_id":"r","result_size":4}`)}, "1234"},
		"size not said":      {[]frame{part(zero), part(one), completed(`{"result_id":"r"}`)}, "1234"},
		"begun anew":         {[]frame{part(`{"result_id":"q","chunk_seq":0,"data":"9","more":true}`), part(zero), part(one), completed(`{"result_id":"r"}`)}, "1234"},
		"first":              {[]frame{part(one), completed(`{"result_id":"r","result_size":2}`)}, ""},
		"last":               {[]frame{part(zero), completed(`{"result_id":"r","result_size":4}`)}, ""},
		"last, size unknown": {[]frame{part(zero), completed(`{"result_id":"r"}`)}, ""},
		"middle":             {[]frame{part(zero), part(`{"result_id":"r","chunk_seq":2,"data":"34"}`), completed(`{"result_id":"r","result_size":4}`)}, ""},
		"twice":              {[]frame{part(zero), part(zero), part(one), completed(`{"result_id":"r","result_size":4}`)}, ""},
		"all":                {[]frame{completed(`{"result_id":"r","result_size":4}`)}, ""},
		"another's":          {[]frame{part(zero), part(one), completed(`{"result_id":"s","result_size":4}`)}, ""},
	} {
		out, err := b.runs(soon(t), newJob(), script{Say: c.say})
		if c.want != "" && (err != nil || out != c.want) {
			t.Errorf("%s: %s, %v, want %s", name, out, err, c.want)
		}
		if c.want == "" && (err == nil || err.Code != arcp.CodeDataLoss) {
			t.Errorf("%s: %s, %v, want DATA_LOSS", name, out, err)
		}
	}
	if b.s.calls.held != 0 {
		t.Errorf("%d bytes are kept of jobs that have ended", b.s.calls.held)
	}
}

// slowJob cannot take a log event before it is let.
type slowJob struct {
	*fakeJob
	let chan struct{}
}

func (j *slowJob) Emit(t arcp.Type, payload any) error {
	<-j.let
	return j.fakeJob.Emit(t, payload)
}

// A job that takes events slowly loses nothing of its result.
func TestALargeResultOfASlowJob(t *testing.T) {
	b := newFake(t)
	job := &slowJob{newJob(), make(chan struct{})}
	go func() {
		b.said("said everything of job_1")
		close(job.let)
	}()
	const parts, size = 200, 100_000 // more than is kept of its events
	args, err := arcp.Marshal(script{Say: []frame{{Type: arcp.Log, Payload: arcp.Raw(`{"level":"info","message":"m"}`)},
		{Parts: parts, Bytes: size}, completed(fmt.Sprintf(`{"result_id":"r","result_size":%d}`, parts*size))}})
	if err != nil {
		t.Fatal(err)
	}
	out, failure := b.tool("kid.x@1.0.0").Run(soon(t), tool.NewJob(job), args)
	if failure != nil || len(out) != parts*size {
		t.Errorf("%d bytes, %v, want %d", len(out), failure, parts*size)
	}
}

// What is kept of all jobs together is bounded, and one that has too much does not
// take the room of the next.
func TestMemoryOfAllJobs(t *testing.T) {
	b := newFake(t)
	b.s.calls.most = 100_000
	whole := script{Say: []frame{{Parts: 9, Bytes: 10_000}, completed(`{"result_id":"r","result_size":90000}`)}}
	for range 3 {
		if out, err := b.runs(soon(t), newJob(), script{Say: []frame{{Parts: 11, Bytes: 10_000}, completed(`{"result_id":"r","result_size":110000}`)}}); err == nil ||
			err.Code != arcp.CodeResourceExhausted || !err.Retryable {
			t.Errorf("%d bytes, %v, want it refused for now", len(out), err)
		}
		if out, err := b.runs(soon(t), newJob(), whole); err != nil || len(out) != 90_000 {
			t.Errorf("%d bytes, %v, want the result", len(out), err)
		}
	}
	job := &slowJob{newJob(), make(chan struct{})}
	go func() {
		defer close(job.let)
		lost := func() bool { k := b.s.calls.find("job_7"); return k != nil && k.hasLost() }
		for ctx := soon(t); !lost() && ctx.Err() == nil; {
			goruntime.Gosched()
		}
	}()
	logs := make([]frame, 200)
	for i := range logs {
		logs[i] = frame{Type: arcp.Log, Payload: arcp.Raw(`{"level":"info","message":"` + strings.Repeat("m", 1000) + `"}`)}
	}
	args, err := arcp.Marshal(script{Say: append(logs, completed(`{"value":7}`))})
	if err != nil {
		t.Fatal(err)
	}
	out, failure := b.tool("kid.x@1.0.0").Run(soon(t), tool.NewJob(job), args)
	said := job.everything()
	if failure != nil || string(out) != "7" || len(said) < 50 || len(said) > len(logs) || !strings.Contains(said[len(said)-1], "were lost") {
		t.Errorf("result = %s, %v after %d events, want that some are lost and that it is said", out, failure, len(said))
	}
	if out, err := b.runs(soon(t), newJob(), whole); err != nil || len(out) != 90_000 {
		t.Errorf("%d bytes, %v, want the result: the events were released", len(out), err)
	}
}

// A program that hangs is noticed: it is ended, and its jobs with it.
func TestAProgramThatHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	b := newBed(t, hangingProgram+rand.Text())
	if out, err := b.runs(soon(t), newJob(), script{}); err == nil || err.Code != arcp.CodeAborted {
		t.Errorf("result = %s, %v, want ABORTED", out, err)
	}
	b.said("nothing was heard")
}

// A list of names that cannot be offered is no way to fill the log.
func TestComplaintsAreBounded(t *testing.T) {
	b := newBed(t, fmt.Sprintf("%s%d-%s", fakeProgram, maxTools-1, rand.Text()))
	if len(b.tools) != 1 {
		t.Errorf("%d tools, want one", len(b.tools))
	}
	log := b.log.String()
	if n := strings.Count(log, "a tool is not offered"); n != maxComplaints || !strings.Contains(log, fmt.Sprintf(`"more":%d,`, maxTools-1-maxComplaints)) {
		t.Errorf("%d complaints; log:\n%s", n, log)
	}
	if len(log) > maxComplaints*3*maxComplaint {
		t.Errorf("%d bytes of log", len(log))
	}
}

// A tool called tools.list that does not list the tools is no reason to offer none.
func TestAListThatIsNone(t *testing.T) {
	for name := range lists {
		if name == "later" {
			continue
		}
		b := newBed(t, listingProgram+name+"-"+rand.Text())
		if len(b.tools) != 1 || b.tools[0].Ref() != "kid.x@1.0.0" {
			t.Errorf("%s: offered are %v, want x", name, b.tools)
		}
		if err := b.s.Refresh(soon(t)); err != nil || len(b.tools) != 1 {
			t.Errorf("%s: %d tools after a refresh: %v", name, len(b.tools), err)
		}
		if log := b.log.String(); !strings.Contains(log, "the tools are not listed") {
			t.Errorf("%s: log:\n%s", name, log)
		}
	}
}

// A change of the tools is followed although they could not be listed at once.
func TestAListThatFailsIsTriedAgain(t *testing.T) {
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	b := newBed(t, listingProgram+"later-"+rand.Text())
	if _, err := b.runs(soon(t), newJob(), script{Say: []frame{{Type: arcp.EventEmit, Payload: arcp.Raw(`{"name":"tools.changed","data":{}}`)}, completed(`{"value":1}`)}}); err != nil {
		t.Fatal(err)
	}
	b.said("the tools stay as they were")
	has := func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.tools) == 1 && b.tools[0].Name == "kid.y"
	}
	for ctx := soon(t); !has(); goruntime.Gosched() {
		if ctx.Err() != nil {
			t.Fatalf("what came later is not offered; log:\n%s", b.log)
		}
	}
}

// While there is no program, as one that cannot be started again, a refresh has
// nothing to wait for.
func TestRefreshWithoutAProgram(t *testing.T) {
	b := newFake(t)
	b.s.cfg.Command = []string{"/nonexistent/program"}
	_, _ = b.runs(soon(t), newJob(), script{Say: []frame{{Type: arcp.SessionEvicted, Payload: arcp.Raw(`{"code":"UNAUTHENTICATED"}`)}}})
	for range 3 {
		began := time.Now()
		if err := b.s.Refresh(soon(t)); err != nil || time.Since(began) > exitGrace/2 {
			t.Errorf("%v after %s", err, time.Since(began))
		}
	}
}

// Tools that cannot be offered count, too.
func TestToolsThatAreTriedAreBounded(t *testing.T) {
	s, err := New(Config{Name: "kid", Command: []string{"true"}, Prefix: "kid."})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	s.cfg.Allows = func(string) bool { n++; return true }
	t.Setenv(dataVariable, fmt.Sprintf("%s%d-%s", fakeProgram, maxTools+500, rand.Text()))
	if s.cfg.Command[0], err = os.Executable(); err != nil {
		t.Fatal(err)
	}
	s.cfg.Env = []string{dataVariable}
	err = s.Start(soon(t), func([]*tool.Tool) error { return nil })
	t.Cleanup(s.Close)
	if err == nil || !strings.Contains(err.Error(), "more than 1000 tools") || n > maxTools+1 {
		t.Errorf("error = %v after %d tools", err, n)
	}
}

func TestSecondsDoNotOverflow(t *testing.T) {
	for n, want := range map[uint64]time.Duration{0: 0, 60: time.Minute, 1 << 34: 9_223_372_036 * time.Second, 1<<64 - 1: 9_223_372_036 * time.Second} {
		if got := seconds(n); got != want {
			t.Errorf("seconds(%d) = %s, want %s", n, got, want)
		}
	}
}
