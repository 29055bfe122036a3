package storetest

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
)

// killDir is the environment variable that makes this process a child of killChild. The child writes to
// the store in that directory until it is killed.
const killDir = "STORETEST_KILL_DIR"

const killRounds = 10

// testKilledProcessLosesNoAcknowledgedEvent kills a process at random moments, and checks that no
// acknowledged event is lost or changed.
func testKilledProcessLosesNoAcknowledgedEvent(t *testing.T, open Open) {
	if dir := os.Getenv(killDir); dir != "" {
		loadUntilKilled(t, open, dir)
		return
	}
	if testing.Short() {
		t.Skip("starts processes: left out with -short")
	}
	dir := t.TempDir()
	total := 0
	for round := range killRounds {
		killChild(t, dir, time.Duration(rand.IntN(60))*time.Millisecond)
		acks := readAcks(t, dir)
		if len(acks) <= total {
			t.Fatalf("round %d: the child has acknowledged nothing", round)
		}
		total = len(acks)
		d := &db{TB: t, Store: open(t, filepath.Join(dir, "store")), now: t0}
		checkAcks(d, acks)
		if err := d.Close(); err != nil {
			t.Fatalf("Close = %v", err)
		}
	}
	t.Logf("%d acknowledged writes", total)
}

// killChild runs this test in a child and kills it a moment after its first
// acknowledgement.
func killChild(t *testing.T, dir string, delay time.Duration) {
	t.Helper()
	pattern := "^" + strings.ReplaceAll(t.Name(), "/", "$/^") + "$"
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run="+pattern)
	cmd.Env = append(os.Environ(), killDir+"="+dir)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	before := ackSize(dir)
	if err := cmd.Start(); err != nil {
		t.Fatalf("start the child: %v", err)
	}
	exited := make(chan struct{})
	go func() { defer close(exited); _ = cmd.Wait() }() // fails: the child is killed
	for deadline := time.Now().Add(time.Minute); ackSize(dir) == before; time.Sleep(time.Millisecond) {
		select {
		case <-exited:
			t.Fatalf("the child ended by itself:\n%s", out.Bytes())
		default:
		}
		if time.Now().After(deadline) {
			t.Error("the child acknowledges nothing")
			break
		}
	}
	time.Sleep(delay)
	_ = cmd.Process.Kill()
	<-exited
}

func ackFile(dir string) string { return filepath.Join(dir, "acks") }

func ackSize(dir string) int64 {
	info, err := os.Stat(ackFile(dir))
	if err != nil {
		return 0
	}
	return info.Size()
}

// loadUntilKilled commits echo jobs and long jobs in batches, and writes the acknowledged
// events to a file.
func loadUntilKilled(t *testing.T, open Open, dir string) {
	acks, err := os.OpenFile(ackFile(dir), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	d := &db{TB: t, Store: open(t, filepath.Join(dir, "store")), now: time.Now()}
	s := d.session(arcp.NewSessionID())
	long := arcp.NewJobID()
	d.do(store.NewWrite(&store.SubmitJob{Row: jobRow(long, s)}))
	for seq := uint64(0); ; {
		echo := arcp.NewJobID()
		row := jobRow(echo, s)
		row.IdempotencyKey, row.Digest = string(echo), "d"
		writes := []*store.Write{
			store.NewWrite(&store.SubmitJob{Row: row}, &store.AppendEvents{Events: d.events(echo, arcp.JobAccepted)}),
			store.NewWrite(&store.AppendEvents{Job: long, Attempt: 1, Events: d.events(long, arcp.JobProgress, arcp.JobCheckpoint, arcp.Log)}),
			d.completion(echo, 1),
			put(string(echo), 0, "done"),
		}
		d.batch(writes...)
		var line []byte
		for _, w := range writes[:3] {
			for _, e := range store.Find[*store.AppendEvents](w).Events {
				line = ackLine(line, s, &seq, e)
			}
		}
		if _, err := acks.Write(line); err != nil {
			t.Fatal(err)
		}
		if seq%60 == 0 {
			d.do(&store.Write{Ops: []store.Op{&store.TrimSession{Session: s, Seq: seq / 2}}, NoSync: true})
		}
	}
}

func ackLine(b []byte, s arcp.SessionID, seq *uint64, e *store.Event) []byte {
	given := uint64(0)
	if e.Type != arcp.JobCheckpoint {
		*seq++
		given = *seq
	}
	env := e.Body[bytes.Index(e.Body, []byte(`"job_id":"`))+10:]
	id := env[:bytes.IndexByte(env, '"')]
	return fmt.Appendf(b, "%s %d %s %d %d %d\n", s, given, id, e.JSeq, e.Time.UnixNano(), crc32.ChecksumIEEE(e.Body))
}

// ack is an event that was acknowledged.
type ack struct {
	session arcp.SessionID
	seq     uint64
	job     arcp.JobID
	jseq    uint64
	at      int64
	sum     uint32
}

// readAcks reads the acknowledged events. It removes an incomplete last line, so that the
// next child begins a new one.
func readAcks(t *testing.T, dir string) (acks []ack) {
	t.Helper()
	raw, err := os.ReadFile(ackFile(dir))
	if err != nil {
		t.Fatal(err)
	}
	if whole := bytes.LastIndexByte(raw, '\n') + 1; whole < len(raw) {
		if err := os.Truncate(ackFile(dir), int64(whole)); err != nil {
			t.Fatal(err)
		}
		raw = raw[:whole]
	}
	for line := range bytes.Lines(raw) {
		var a ack
		if _, err := fmt.Sscanf(string(line), "%s %d %s %d %d %d\n", &a.session, &a.seq, &a.job, &a.jseq, &a.at, &a.sum); err != nil {
			t.Fatalf("acknowledgement %q: %v", line, err)
		}
		acks = append(acks, a)
	}
	return acks
}

// checkAcks checks every acknowledged event in the log of its job and of its session.
func checkAcks(d *db, acks []ack) {
	d.Helper()
	logs, sessions := map[arcp.JobID][]*store.Event{}, map[arcp.SessionID]map[uint64]*store.Event{}
	for _, a := range acks {
		if logs[a.job] == nil {
			logs[a.job] = d.jobLog(a.job, 0)
		}
		if sessions[a.session] == nil {
			sessions[a.session] = map[uint64]*store.Event{}
			for _, x := range d.sessionLog(a.session, d.row(a.session).TrimmedTo) {
				sessions[a.session][x.Seq] = x.Event
			}
		}
		if log := logs[a.job]; uint64(len(log)) < a.jseq {
			d.Fatalf("%s has %d events, but %d was acknowledged", a.job, len(log), a.jseq)
		}
		d.checkAck(a, logs[a.job][a.jseq-1])
		e := sessions[a.session][a.seq]
		if e == nil && a.seq != 0 && a.seq > d.row(a.session).TrimmedTo {
			d.Fatalf("%s has lost number %d", a.session, a.seq)
		}
		if e != nil {
			d.checkAck(a, e)
		}
	}
	d.checkEnds(logs)
}

func (d *db) checkAck(a ack, e *store.Event) {
	if e.JSeq != a.jseq || e.Time.UnixNano() != a.at || crc32.ChecksumIEEE(e.Body) != a.sum {
		d.Fatalf("%s %d has become %d %s %s", a.job, a.jseq, e.JSeq, e.Time, e.Body)
	}
}

// checkEnds checks that batches are atomic.
func (d *db) checkEnds(logs map[arcp.JobID][]*store.Event) {
	for id, log := range logs {
		j := d.job(id)
		if j.LastJSeq != uint64(len(log)) {
			d.Fatalf("%s has %d events, its row says %d", id, len(log), j.LastJSeq)
		}
		if j.IdempotencyKey == "" {
			continue
		}
		rec, err := d.Get(context.Background(), string(id))
		if err != nil || string(rec.Value) != "done" || j.State != arcp.StateCompleted {
			d.Fatalf("%s is %s, its record is %q, %v", id, j.State, rec.Value, err)
		}
	}
}
