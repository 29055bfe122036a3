package engine

import (
	"context"
	"fmt"
	"testing"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/runtime/tool"
)

// think writes a thought with a role, one without, and one that the tool says is redacted. It emits the
// first two, and a text that is no object.
func think(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
	st, err := j.OpenStream(tool.StreamOptions{Kind: arcp.StreamThought})
	if err != nil {
		return nil, err
	}
	for _, thought := range []tool.Thought{{Role: "plan", Text: "a"}, {Text: "b"}, {Role: "other", Text: "c", Redacted: true}} {
		if err := st.WriteThought(thought); err != nil {
			return nil, err
		}
	}
	for _, data := range []string{`{"text":"a","role":"plan"}`, `{"text":"b"}`, `"c"`} {
		if err := j.Emit(arcp.StreamThought, arcp.Raw(data)); err != nil {
			return nil, err
		}
	}
	if err := j.Emit(arcp.StreamThought, arcp.Raw(`{"text":"d","role":["plan"]}`)); err != nil {
		return nil, err
	}
	return nil, j.Emit("plan", arcp.Raw(`{"text":"no thought"}`))
}

// thoughtTexts returns the texts of the thoughts of a log. A redacted text ends with a dash.
func thoughtTexts(frames []frame) (texts []string) {
	for _, f := range frames {
		switch f.Type {
		case arcp.StreamChunk:
			p, _ := arcp.DecodePayload[arcp.StreamChunkPayload](&f.Envelope)
			text := p.Content
			if string(p.Data) != string(arcp.AppendString(nil, text)) {
				text += " is not " + string(p.Data)
			}
			if p.Redacted {
				text += "-"
			}
			texts = append(texts, text)
		case arcp.EventEmit:
			p, _ := arcp.DecodePayload[arcp.EventEmitPayload](&f.Envelope)
			texts = append(texts, string(p.Data))
		}
	}
	return texts
}

// The text of a thought is recorded only if the lease has its role, or says nothing about thoughts.
func TestLeaseRedactsThoughts(t *testing.T) {
	const (
		plan     = `{"text":"a","role":"plan"}`
		text     = `{"text":"b"}`
		redacted = `{"text":"","redacted":true}`
		list     = `{"text":"d","role":["plan"]}`
		event    = `{"text":"no thought"}`
	)
	for raw, want := range map[string][]string{
		`{"fs.read":["/a"]}`:                             {"a", "b", "c-", plan, text, `"c"`, list, event},
		`{"thought.write":["*"]}`:                        {"a", "b", "c-", plan, text, `"c"`, redacted, event},
		`{"thought.write":[]}`:                           {"-", "-", "-", redacted, redacted, redacted, redacted, event},
		`{"thought_write":["plan"]}`:                     {"a", "-", "-", plan, redacted, redacted, redacted, event},
		`{"thought.write":["assistant_thought","oth*"]}`: {"-", "b", "c-", redacted, text, `"c"`, redacted, event},
	} {
		t.Run(raw, func(t *testing.T) {
			runEngine(t, nil, func(f *fixture) {
				f.tool("think", nil, think)
				f.submitLeased("think", raw, 0)
				if got := thoughtTexts(f.frames("sess_1")); fmt.Sprint(got) != fmt.Sprint(want) {
					t.Errorf("%q, want %q", got, want)
				}
			})
		})
	}
}

// A metric of a cost on a stream would not debit the budget.
func TestStreamRefusesCosts(t *testing.T) {
	runEngine(t, nil, func(f *fixture) {
		f.tool("spend", nil, func(_ context.Context, j tool.Job, _ arcp.Raw) (arcp.Raw, error) {
			st, err := j.OpenStream(tool.StreamOptions{Kind: arcp.StreamMetric})
			if err != nil {
				return nil, err
			}
			for _, name := range []string{"calls", "cost.budget.remaining"} {
				if err := st.WriteJSON(arcp.MetricPayload{Name: name, Value: "1", Unit: "USD"}); err != nil {
					return nil, err
				}
			}
			if err := st.WriteJSON(arcp.MetricPayload{Name: "cost.calls", Value: "1", Unit: "USD"}); code(err) != "INVALID_ARGUMENT" {
				t.Errorf("a cost: %v, want INVALID_ARGUMENT", err)
			}
			return nil, nil
		})
		f.submitLeased("spend", `{}`, 0)
		if frames := f.frames("sess_1"); frames[len(frames)-1].Type != arcp.JobCompleted {
			t.Errorf("the job ends with %s", frames[len(frames)-1].Type)
		}
	})
}
