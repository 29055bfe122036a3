package codec

import (
	"bytes"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/store"
	"github.com/arcpd/arcpd/runtime/store/internal/sequence"
)

func drawID(t *rapid.T, prefix string) string {
	if rapid.Bool().Draw(t, "minted") {
		var u [16]byte
		copy(u[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "uuid"))
		return string(arcp.AppendIDBody([]byte(prefix), u))
	}
	return rapid.OneOf(rapid.String(), rapid.Just(prefix+"zzzz"), rapid.Just("")).Draw(t, "id")
}

func drawTime(t *rapid.T) time.Time {
	if rapid.Bool().Draw(t, "zero time") {
		return time.Time{}
	}
	return time.Unix(rapid.Int64Range(-1e11, 1e11).Draw(t, "sec"), rapid.Int64Range(0, 999_999_999).Draw(t, "nsec")).UTC()
}

func drawRaw(t *rapid.T) arcp.Raw {
	return append(arcp.Raw(nil), rapid.SliceOf(rapid.Byte()).Draw(t, "raw")...)
}

func drawJob(t *rapid.T) store.Job {
	str := rapid.String()
	return store.Job{
		ID: "job_1", Principal: str.Draw(t, "principal"), Session: arcp.SessionID(drawID(t, arcp.SessionPrefix)),
		SubmitID: arcp.MessageID(drawID(t, arcp.MessagePrefix)), Agent: str.Draw(t, "agent"), Arguments: drawRaw(t), Options: drawRaw(t),
		TraceID: str.Draw(t, "trace"), SpanID: str.Draw(t, "span"), ParentSpanID: str.Draw(t, "parent span"),
		Priority: arcp.Priority(str.Draw(t, "priority")), Parent: arcp.JobID(drawID(t, arcp.JobPrefix)),
		IdempotencyKey: str.Draw(t, "key"), Digest: str.Draw(t, "digest"), CreatedAt: drawTime(t),
		State: rapid.SampledFrom(arcp.JobStates).Draw(t, "state"), Attempt: rapid.Uint32().Draw(t, "attempt"), StartedAt: drawTime(t), EndedAt: drawTime(t),
		Code: arcp.Code(str.Draw(t, "code")), LastJSeq: rapid.Uint64().Draw(t, "jseq"), LastSeq: rapid.Uint64().Draw(t, "seq"),
	}
}

// strict checks that a value can be decoded, and no shortened or extended form of it.
func strict(t *rapid.T, b []byte, decode func([]byte) error) {
	t.Helper()
	if err := decode(b); err != nil {
		t.Fatalf("decode = %v", err)
	}
	for n := range b {
		if decode(b[:n:n]) == nil {
			t.Fatalf("%d of %d bytes are accepted", n, len(b))
		}
	}
	if decode(append(bytes.Clone(b), 0)) == nil {
		t.Fatal("a byte too many is accepted")
	}
	b[0]++
	if decode(b) == nil {
		t.Fatal("another version is accepted")
	}
}

// A row and a status of version 1 have no StartedAt.
func TestJobRowOfVersion1(t *testing.T) {
	want := store.Job{ID: "job_1", Agent: "echo@1", CreatedAt: unix(1, 2), State: arcp.StateRunning, Attempt: 3, EndedAt: time.Time{}, LastSeq: 4}
	version1 := func(b []byte) []byte {
		b[0] = 1
		return b[:len(b)-len(appendTime(nil, time.Time{}))]
	}
	got, err := DecodeJob("job_1", version1(AppendJob(nil, &want)))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("job, %v (-want +got):\n%s", err, diff)
	}
	status, err := DecodeStatus(version1(AppendStatus(nil, &sequence.Status{State: arcp.StateRunning, Attempt: 3})))
	if err != nil || status.Attempt != 3 || !status.StartedAt.IsZero() {
		t.Errorf("status %+v, %v", status, err)
	}
}

func TestJobRowDecodesAsEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawJob(t)
		b := AppendJob(nil, &want)
		got, _ := DecodeJob("job_1", b)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("job (-want +got):\n%s", diff)
		}
		strict(t, b, func(b []byte) error { _, err := DecodeJob("job_1", b); return err })
	})
}

func TestSessionRowDecodesAsEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := store.Session{ID: "sess_1", Principal: rapid.String().Draw(t, "principal"), Anonymous: rapid.Bool().Draw(t, "anonymous"),
			Version: rapid.String().Draw(t, "version"), ClientKind: rapid.String().Draw(t, "kind"),
			CreatedAt: drawTime(t), Identity: drawRaw(t), Acks: rapid.Bool().Draw(t, "acks"),
			Epoch: rapid.Uint32().Draw(t, "epoch"), Written: rapid.Uint64().Draw(t, "written"),
			Dialect: rapid.SampledFrom([]arcp.Dialect{arcp.DialectRFC, arcp.DialectDraft}).Draw(t, "dialect"), Profile: rapid.String().Draw(t, "profile")}
		for range rapid.IntRange(0, 3).Draw(t, "features") {
			want.Negotiated = append(want.Negotiated, rapid.SampledFrom(arcp.Features).Draw(t, "feature"))
		}
		copy(want.TokenHash[:], rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "hash"))
		for range rapid.IntRange(0, 3).Draw(t, "previous hashes") {
			want.PrevHashes = append(want.PrevHashes, [32]byte(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "previous hash")))
		}
		b := AppendSession(nil, &want)
		got, _ := DecodeSession("sess_1", b)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("session (-want +got):\n%s", diff)
		}
		strict(t, b, func(b []byte) error { _, err := DecodeSession("sess_1", b); return err })

		want.Dialect, want.Profile = arcp.DialectRFC, ""
		b = AppendSession(nil, &want)
		b[0], b = 3, b[:len(b)-2]
		got, err := DecodeSession("sess_1", b)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatalf("session of version 3: %v (-want +got):\n%s", err, diff)
		}
		want.Written = 0
		b = AppendSession(nil, &want)
		b[0], b = 2, b[:len(b)-3]
		got, err = DecodeSession("sess_1", b)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatalf("session of version 2: %v (-want +got):\n%s", err, diff)
		}
	})
}

func TestChunkDecodesAsEncoded(t *testing.T) {
	types := []arcp.Type{arcp.Log, arcp.JobProgress, "arcpx.test.thing", ""}
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.Uint64Range(1, 1<<40).Draw(t, "first")
		var want []*store.Event
		for i := range rapid.Uint64Range(1, 5).Draw(t, "events") {
			e := drawEvent(t, rapid.SampledFrom(types).Draw(t, "type"))
			e.JSeq, e.OriginSeq = first+i, rapid.Uint64().Draw(t, "originSeq")
			want = append(want, e)
		}
		b := AppendChunk(nil, want)
		if len(b) > ChunkSize(want)+64 {
			t.Fatalf("%d bytes, estimated %d", len(b), ChunkSize(want))
		}
		got, _ := DecodeChunk(b, first)
		for i := range got {
			if diff := cmp.Diff(string(want[i].Body), string(got[i].Body)); diff != "" {
				t.Fatal(diff)
			}
			got[i].Body = want[i].Body
			if diff := cmp.Diff(*want[i], got[i]); diff != "" {
				t.Fatalf("event %d (-want +got):\n%s", i, diff)
			}
		}
		n, originSeq, err := ChunkEnd(b)
		if last := want[len(want)-1]; err != nil || n != uint64(len(want)) || len(got) != len(want) || originSeq != last.OriginSeq {
			t.Fatalf("ChunkEnd = %d, %d, %v", n, originSeq, err)
		}
		strict(t, b, func(b []byte) error { _, err := DecodeChunk(b, first); return err })
	})
}

// drawEvent draws an event of a job, or one with any body.
func drawEvent(t *rapid.T, typ arcp.Type) *store.Event {
	at := drawTime(t)
	if rapid.Bool().Draw(t, "any body") {
		return &store.Event{Type: typ, Time: at, Body: drawRaw(t)}
	}
	ctx := store.JobContext{JobID: arcp.JobID(drawID(t, arcp.JobPrefix)), TraceID: rapid.SampledFrom([]string{"", "t1"}).Draw(t, "trace")}
	e := store.NewEvent(typ, at, &ctx, arcp.PriorityCritical, append(append([]byte(`{"m":`), rapid.StringN(0, 20, -1).Draw(t, "payload")...), '}'))
	id := rapid.SliceOfN(rapid.ByteRange('0', '1'), arcp.IDBodyLen, arcp.IDBodyLen).Draw(t, "message id")
	copy(e.Body[len(`"id":"msg_`):], id)
	return e
}

// The events of a short job, as version 1 of a chunk has them.
func TestChunkOfVersion1(t *testing.T) {
	b := []byte("\x01\x02\x05\x01\x03log\x00\x04\x07\x0a\x03{1}\x00\x02\x08\x00\x03{2}")
	want := []store.Event{
		{Type: arcp.Log, Time: time.Unix(2, 7).UTC(), Body: []byte("{1}"), JSeq: 4, OriginSeq: 5},
		{Type: arcp.Log, Time: time.Unix(3, 8).UTC(), Body: []byte("{2}"), JSeq: 5, OriginSeq: 5},
	}
	got, err := DecodeChunk(b, 4)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if n, last, err := ChunkEnd(b); n != 2 || last != 5 || err != nil {
		t.Errorf("ChunkEnd = %d, %d, %v", n, last, err)
	}
}

// What the bodies of a job have in common is stored once.
func TestChunkIsSmall(t *testing.T) {
	ctx := store.JobContext{JobID: "job_01M8D769GCE2FTCP08KYFJV47E", TraceID: "b388fe662999e6ffaf5306b787745cb8", SpanID: "4aafbc7405ebff5b"}
	var events []*store.Event
	size := 0
	for i := range 100 {
		e := store.NewEvent(arcp.Log, time.Unix(int64(i), 0), &ctx, "", []byte(`{"level":"info","message":"hello"}`))
		events, size = append(events, e), size+len(e.Body)
	}
	if n := len(AppendChunk(nil, events)); n > size/10 {
		t.Errorf("a chunk of %d bytes for bodies of %d", n, size)
	}
}

func TestRunsDecodeAsEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []sequence.Run
		seq := rapid.Uint64Range(1, 1<<40).Draw(t, "first")
		names := []arcp.JobID{"job_1", arcp.JobID(drawID(t, arcp.JobPrefix))}
		corrs := []arcp.MessageID{"", arcp.MessageID(drawID(t, arcp.MessagePrefix))}
		for range rapid.IntRange(1, 10).Draw(t, "runs") {
			r := sequence.Run{First: seq, Job: rapid.SampledFrom(names).Draw(t, "job"), CorrelationID: rapid.SampledFrom(corrs).Draw(t, "corr"),
				Forwarded: rapid.Bool().Draw(t, "forwarded"), JSeq: rapid.Uint64Range(1, 100).Draw(t, "jseq"), N: rapid.Uint64Range(1, 100).Draw(t, "n")}
			want = append(want, r)
			seq += r.N
		}
		b := AppendRuns(nil, want)
		got, err := DecodeRuns(nil, b, want[0].First)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatalf("%v; runs (-want +got):\n%s", err, diff)
		}
		if _, err := DecodeRuns(nil, b[:len(b)-1], 1); err == nil {
			t.Fatal("a short value is accepted")
		}
	})
}

// TestHeadOfRunsIsCutOff checks that the id before the runs of a feed can be cut off.
func TestHeadOfRunsIsCutOff(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := arcp.MessageID(drawID(t, arcp.MessagePrefix))
		rest := rapid.SliceOf(rapid.Byte()).Draw(t, "rest")
		b := AppendHead(nil, want)
		id, tail, err := CutHead(append(b[:len(b):len(b)], rest...))
		if err != nil || id != want || !bytes.Equal(tail, rest) {
			t.Fatalf("CutHead = %q, %q, %v; want %q, %q", id, tail, err, want, rest)
		}
		if _, _, err := CutHead(b[:len(b)-1]); err == nil {
			t.Fatal("a short value is accepted")
		}
	})
}

func TestSubmittedJobDecodesAsEncoded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := arcp.JobID(drawID(t, arcp.JobPrefix))
		b := AppendSubmitted(nil, want)
		if got, _ := DecodeSubmitted(b); got != want {
			t.Fatalf("DecodeSubmitted = %q, want %q", got, want)
		}
		strict(t, b, func(b []byte) error { _, err := DecodeSubmitted(b); return err })
	})
}

// TestTextsInKeysKeepTheirOrder checks that strings in keys keep their order and can be cut off.
func TestTextsInKeysKeepTheirOrder(t *testing.T) {
	text := rapid.StringOf(rapid.SampledFrom([]rune{0, 1, 'a', 'b', 0xff}))
	rapid.Check(t, func(t *rapid.T) {
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		ka, kb := AppendKeyText(nil, a), AppendKeyText(nil, b)
		if got, rest, ok := CutKeyText(append(ka, 7)); !ok || got != a || len(rest) != 1 {
			t.Fatalf("CutKeyText = %q, %v, %v; want %q", got, rest, ok, a)
		}
		if (a < b) != (bytes.Compare(ka, kb) < 0) || a != b && bytes.HasPrefix(kb, ka) {
			t.Fatalf("%q and %q sort otherwise as keys", a, b)
		}
	})
}

func TestFollowDecodesAsEncoded(t *testing.T) {
	k := sequence.FollowKey{Session: "s", Job: "j", CorrelationID: "c"}
	some := arcp.Lookup(arcp.Log).Bit | arcp.Lookup(arcp.JobCompleted).Bit
	for _, want := range []sequence.FollowChange{
		{FollowKey: k, Unfollowed: true},
		{FollowKey: k, Types: ^arcp.TypeSet(0)},
		{FollowKey: k, Types: some, Forwarded: true},
		{FollowKey: k, Types: ^arcp.TypeSet(0), Plain: some, Forwarded: true},
		{FollowKey: k, Types: ^arcp.TypeSet(0), Plain: ^arcp.TypeSet(0), Forwarded: true},
	} {
		got, err := DecodeFollow(k, AppendFollow(nil, &want))
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%v; follow (-want +got):\n%s", err, diff)
		}
	}
}

// TestIDsInKeysKeepTheirOrder checks that ids in keys can be cut off whatever follows, and that
// minted ids keep their order.
func TestIDsInKeysKeepTheirOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawID(t, arcp.JobPrefix), drawID(t, arcp.JobPrefix)
		rest := rapid.SliceOf(rapid.Byte()).Draw(t, "rest")
		got, tail, ok := CutKeyID(append(AppendKeyID(nil, arcp.JobPrefix, a), rest...), arcp.JobPrefix)
		if !ok || got != a || !bytes.Equal(tail, rest) {
			t.Fatalf("CutKeyID = %q, %q, %v; want %q, %q", got, tail, ok, a, rest)
		}
		ka, kb := AppendKeyID(nil, arcp.JobPrefix, a), AppendKeyID(nil, arcp.JobPrefix, b)
		if a != b && (bytes.HasPrefix(ka, kb) || bytes.HasPrefix(kb, ka)) {
			t.Fatalf("the key of %q begins that of %q", a, b)
		}
		if ka[0] == kb[0] && (a < b) != (bytes.Compare(ka, kb) < 0) {
			t.Fatalf("%q and %q sort otherwise as keys", a, b)
		}
	})
}

// TestMintedIDsAreParsedAsInPackageARCP checks that ids are parsed as package arcp parses them.
func TestMintedIDsAreParsedAsInPackageARCP(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := rapid.StringMatching(`[0-8A-Za-z_]{25,27}`).Draw(t, "body")
		u, ok := parseBody(s)
		want, wantOK := arcp.ParseIDBody(s)
		if ok != wantOK || ok && u != want {
			t.Fatalf("parseBody(%q) = %x, %v; want %x, %v", s, u, ok, want, wantOK)
		}
	})
}

func FuzzDecode(f *testing.F) {
	j := store.Job{Principal: "ann", State: arcp.StateQueued}
	f.Add(AppendJob(nil, &j))
	f.Add(AppendChunk(nil, []*store.Event{{Type: arcp.Log, Body: []byte("{}")}}))
	f.Add(AppendChunk(nil, []*store.Event{store.NewEvent(arcp.Log, time.Unix(1, 0), new(store.JobContext), "", []byte("{}"))}))
	f.Add(AppendRuns(nil, []sequence.Run{{First: 1, Job: "job_1", JSeq: 1, N: 3}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = DecodeJob("job_1", b)
		_, _ = DecodeStatus(b)
		_, _ = DecodeSession("sess_1", b)
		_, _ = DecodeChunk(b, 1)
		_, _ = DecodeRuns(nil, b, 1)
		_, _ = DecodeFollow(sequence.FollowKey{}, b)
		_, _ = DecodeRecord("k", b)
		_, _, _ = DecodeHolder(b)
		_, _ = DecodeState(b)
		_, _, _ = CutKeyID(b, arcp.JobPrefix)
		_, _, _ = CutHead(b)
		_, _ = DecodeSubmitted(b)
	})
}
