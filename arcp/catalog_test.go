package arcp_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math/bits"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

// The types of the RFC dialect with their sender: c the client, r the runtime, b both.
const rfcTypes = `
session.open c, session.challenge r, session.authenticate c, session.accepted r, session.unauthenticated r,
session.rejected r, session.refresh r, session.evicted r, session.close b, session.closed r, session.resume c,
session.resumed r, session.ping b, session.pong b, session.ack c, session.list_jobs c, session.jobs r,
ping b, pong b, ack b, nack b, cancel b, cancel.accepted r, cancel.refused r, interrupt b, resume c, backpressure b,
checkpoint.create c, checkpoint.restore c,
tool.invoke b, tool.result b, tool.error b, job.accepted r, job.started r, job.progress b, job.heartbeat b,
job.checkpoint b, job.result_chunk b, job.completed r, job.failed r, job.cancelled r, job.schedule c,
job.subscribe c, job.subscribed r, job.unsubscribe c, workflow.start c, workflow.complete r, agent.delegate c, agent.handoff b,
stream.open b, stream.chunk b, stream.close b, stream.error b,
human.input.request b, human.input.response b, human.choice.request b, human.choice.response b, human.input.cancelled r,
permission.request b, permission.grant b, permission.deny b,
lease.granted r, lease.refresh c, lease.extended r, lease.revoked b,
subscribe c, subscribe.accepted r, subscribe.event r, unsubscribe b, subscribe.closed r,
artifact.put b, artifact.ref r, artifact.fetch c, artifact.release c,
event.emit b, log b, metric b, trace.span b`

// The types that carry event_seq when they are the event of a job.
const sequencedTypes = `
job.accepted, job.started, job.progress, job.checkpoint, job.result_chunk, job.completed, job.failed, job.cancelled,
workflow.complete, tool.result, tool.error, stream.open, stream.chunk, stream.close, stream.error,
log, metric, trace.span, event.emit, artifact.ref, permission.request, lease.granted, lease.extended, lease.revoked,
human.input.request, human.choice.request, human.input.cancelled`

func list(s string) []string {
	items := strings.Split(s, ",")
	for i := range items {
		items[i] = strings.TrimSpace(items[i])
	}
	slices.Sort(items)
	return items
}

func TestCatalogHasEveryTypeOnce(t *testing.T) {
	var got []string
	for i := range arcp.Catalog {
		s := &arcp.Catalog[i]
		got = append(got, string(s.Type)+" "+map[arcp.Direction]string{arcp.FromClient: "c", arcp.FromRuntime: "r", arcp.Both: "b"}[s.From])
		if arcp.Lookup(s.Type) != s {
			t.Errorf("Lookup(%s) is another row", s.Type)
		}
	}
	slices.Sort(got)
	if want := list(rfcTypes); !slices.Equal(got, want) {
		t.Errorf("the catalog has\n%v\nwant\n%v", got, want)
	}
	if arcp.Lookup("session.hello") != nil {
		t.Error("Lookup knows a type of the other dialect")
	}
}

func TestSequencedTypesHaveOneBitEach(t *testing.T) {
	var got []string
	var all arcp.TypeSet
	for i := range arcp.Catalog {
		s := &arcp.Catalog[i]
		if s.Delivery == arcp.Plain {
			if s.Bit != 0 {
				t.Errorf("%s is plain and has a bit", s.Type)
			}
			continue
		}
		got = append(got, string(s.Type))
		if bits.OnesCount64(uint64(s.Bit)) != 1 || all&s.Bit != 0 {
			t.Errorf("%s has the bit %#x, which is not one of its own", s.Type, s.Bit)
		}
		all |= s.Bit
	}
	slices.Sort(got)
	if want := list(sequencedTypes); !slices.Equal(got, want) {
		t.Errorf("sequenced are\n%v\nwant\n%v", got, want)
	}
	if all&(arcp.RuntimeMetrics|arcp.DraftChunks) != 0 {
		t.Errorf("a type has the bit of the metrics of the runtime, or of the chunks of the draft dialect")
	}
	if set := arcp.Visible(func(f arcp.Feature) bool { return f != arcp.FeatureMetrics }); set != all|arcp.DraftChunks {
		t.Errorf("Visible without metrics = %#x, want %#x", set, all)
	}
	all |= arcp.RuntimeMetrics | arcp.DraftChunks
	if everything := arcp.Visible(func(arcp.Feature) bool { return true }); everything != all {
		t.Errorf("Visible with everything = %#x, want %#x", everything, all)
	}
}

func TestVisibleHidesTypesWithoutTheirFeature(t *testing.T) {
	hidden := func(features ...arcp.Feature) (types []string) {
		set := arcp.Visible(func(f arcp.Feature) bool { return slices.Contains(features, f) })
		for i := range arcp.Catalog {
			if s := &arcp.Catalog[i]; s.Bit&^set != 0 {
				types = append(types, string(s.Type))
			}
		}
		return types
	}
	streams := []string{"stream.open", "stream.chunk", "stream.close", "stream.error"}
	human := []string{"human.input.request", "human.choice.request", "human.input.cancelled"}
	checkpoint, chunk := []string{"job.checkpoint"}, []string{"job.result_chunk"}
	for _, c := range []struct {
		features []arcp.Feature
		want     []string
	}{
		{nil, slices.Concat(checkpoint, chunk, streams, human)},
		{[]arcp.Feature{arcp.FeatureStreaming}, slices.Concat(checkpoint, chunk, human)},
		{[]arcp.Feature{arcp.FeatureHumanInput, arcp.FeatureCheckpoints}, slices.Concat(chunk, streams)},
		{arcp.Features, nil},
	} {
		if got := hidden(c.features...); !slices.Equal(got, c.want) {
			t.Errorf("with %v hidden are %v, want %v", c.features, got, c.want)
		}
	}
}

// The columns of a row do not contradict each other.
func TestCatalogRowsAreConsistent(t *testing.T) {
	quiet := []string{"log", "metric", "trace.span", "event.emit", "ack", "nack", "pong", "session.pong"}
	for i := range arcp.Catalog {
		s := &arcp.Catalog[i]
		if fromClient := s.From&arcp.FromClient != 0; fromClient != (s.Phase != 0) {
			t.Errorf("%s: direction %s, phase %s", s.Type, s.From, s.Phase)
		}
		if s.Quiet != slices.Contains(quiet, string(s.Type)) {
			t.Errorf("%s: Quiet = %v", s.Type, s.Quiet)
		}
		if s.Need != "" && (!slices.Contains(arcp.Features, s.Need) || s.From == arcp.FromClient) {
			t.Errorf("%s needs %q", s.Type, s.Need)
		}
		if s.Type.Terminal() && s.Delivery != arcp.Sequenced {
			t.Errorf("%s ends a job and is plain", s.Type)
		}
		if !strings.HasPrefix(s.Section, "§3.") {
			t.Errorf("%s: section %q", s.Type, s.Section)
		}
		if accepted := s.Phase&arcp.InAccepted != 0; s.Phase != 0 && accepted != slices.Contains(s.Scope.Members(), "session_id") {
			t.Errorf("%s: phase %s, members %v", s.Type, s.Phase, s.Scope.Members())
		}
	}
}

func source(t *testing.T) map[string]*ast.File {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files := make(map[string]*ast.File)
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = f
	}
	return files
}

func TestPayloadsHaveDocs(t *testing.T) {
	docs := make(map[string]string)
	for _, file := range source(t) {
		for _, decl := range file.Decls {
			if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.TYPE {
				for _, spec := range d.Specs {
					ts := spec.(*ast.TypeSpec)
					docs[ts.Name.Name] = d.Doc.Text() + ts.Doc.Text()
				}
			}
		}
	}
	for i := range arcp.Catalog {
		name := arcp.Catalog[i].PayloadName()
		if !strings.HasPrefix(docs[name], name+" ") {
			t.Errorf("the doc comment of %s (%s) is %q", name, arcp.Catalog[i].Type, docs[name])
		}
	}
}

func TestOnlyCodecKnowsTheJSONLibrary(t *testing.T) {
	for name, file := range source(t) {
		for _, imp := range file.Imports {
			if strings.Contains(imp.Path.Value, "json") && name != "codec.go" {
				t.Errorf("%s imports %s", name, imp.Path.Value)
			}
		}
	}
}

func TestClassIsDecidedByTheName(t *testing.T) {
	for name, want := range map[arcp.Type]arcp.Class{
		"tool.invoke": arcp.ClassCore, "ping": arcp.ClassCore, "human.input.request": arcp.ClassCore,
		"session.hello": arcp.ClassUnknownCore, "job.submit": arcp.ClassUnknownCore, "tool.invoke.now": arcp.ClassUnknownCore, "ping.me": arcp.ClassUnknownCore,
		"arcpx.example.v1": arcp.ClassExtension, "arcpx.acme.workflow.v3": arcp.ClassExtension, "com.acme.workflow.v2": arcp.ClassExtension, "job.acme.v1": arcp.ClassExtension,
		"x-anything": arcp.ClassExperimental, "x-": arcp.ClassExperimental,
		"": arcp.ClassMalformed, "arcpx.example": arcp.ClassMalformed, "com.acme.workflow": arcp.ClassMalformed, "arcpx.foo.bar.v1.x": arcp.ClassMalformed, "1.2.v3": arcp.ClassMalformed,
		"nothing": arcp.ClassMalformed, "tool..invoke": arcp.ClassMalformed, "tool.": arcp.ClassMalformed, ".": arcp.ClassMalformed,
		"tool.in voke": arcp.ClassMalformed, "Tool.invoke": arcp.ClassMalformed, "tööl.invoke": arcp.ClassMalformed, "X-y": arcp.ClassMalformed,
	} {
		if got := arcp.Classify(name); got != want {
			t.Errorf("Classify(%q) = %d, want %d", name, got, want)
		}
	}
}

func TestExtensionNamesNeedNamespaceAndVersion(t *testing.T) {
	for name, want := range map[string]bool{
		"arcpx.example.v1": true, "arcpx.acme.workflow.v3": true, "com.acme.v1": true, "io.a-b.c_D9.v10": true, "abcdefgh.x.v1": true,
		"arcpx.v1": false, "arcpx.example": false, "com.acme": false, "c.acme.v1": false, "abcdefghi.x.v1": false, "Com.acme.v1": false, "c0m.acme.v1": false,
		"com.acme.v": false, "com.acme.1": false, "com.acme.V1": false, "com.acme.v1a": false, "com..v1": false, "com.a b.v1": false, "com.é.v1": false,
		"com.acme.v1.": false, "arcpx.foo.bar.v1.x": false, "": false, ".": false, "1.2.v3": false,
	} {
		if got := arcp.IsExtensionName(name); got != want {
			t.Errorf("IsExtensionName(%q) = %v, want %v", name, got, want)
		}
	}
}

func TestCodesParseToThemselves(t *testing.T) {
	const retryable = "RESOURCE_EXHAUSTED, UNAVAILABLE, DEADLINE_EXCEEDED, INTERNAL, ABORTED"
	if len(arcp.Codes) != 30 {
		t.Errorf("there are %d codes, want 30", len(arcp.Codes))
	}
	for _, c := range arcp.Codes {
		if got := c.Code.Retryable(); got != slices.Contains(list(retryable), string(c.Code)) {
			t.Errorf("%s: Retryable = %v", c.Code, got)
		}
		if got, ok := arcp.ParseCode(string(c.Code)); got != c.Code || !ok {
			t.Errorf("ParseCode(%s) = %s, %v", c.Code, got, ok)
		}
	}
	for in, want := range map[string]arcp.Code{"RATE_LIMITED": arcp.CodeResourceExhausted, "INTERNAL_ERROR": arcp.CodeInternal} {
		if got, ok := arcp.ParseCode(in); got != want || !ok {
			t.Errorf("ParseCode(%s) = %s, %v, want %s", in, got, ok, want)
		}
	}
	if got, ok := arcp.ParseCode("internal"); got != arcp.CodeUnknown || ok {
		t.Errorf("ParseCode(internal) = %s, %v", got, ok)
	}
}
