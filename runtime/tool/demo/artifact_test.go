package demo

import (
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool/tooltest"
)

func TestArtifactIsPutOrCopied(t *testing.T) {
	job := tooltest.New(tooltest.Script{Artifacts: map[arcp.ArtifactID][]byte{"art_1": []byte("hello")}})
	for _, tt := range []struct{ args, content string }{
		{`{"bytes":3,"media_type":"text/plain"}`, "aaa"},
		{`{"bytes":4,"media_type":"text/plain","from":"art_1"}`, "hell"},
		{`{"bytes":9,"media_type":"text/plain","from":"art_1"}`, "hello"},
	} {
		out, err := job.Run(t.Context(), demo(t, "demo.artifact"), arcp.Raw(tt.args))
		if err != nil {
			t.Fatal(err)
		}
		list := job.Record().Artifacts
		last := list[len(list)-1]
		if string(last.Content) != tt.content || !strings.Contains(string(out), string(last.ArtifactID)) {
			t.Errorf("%s: returned %s and put %q", tt.args, out, last.Content)
		}
	}
	if _, err := job.Run(t.Context(), demo(t, "demo.artifact"), arcp.Raw(`{"bytes":1,"media_type":"a/b","from":"art_2"}`)); err == nil || err.Code != arcp.CodeNotFound {
		t.Errorf("an unknown artifact: %v", err)
	}
}
