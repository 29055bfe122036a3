package conformance

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/arcpd/arcpd/arcp"
)

func written(t *testing.T, f Format, r *Report) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, f, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// A report shows no secret, in any format, and also not the text of a server that repeats it.
func TestReportsShowNoSecrets(t *testing.T) {
	report := &Report{Results: runChecks(t, fakeTarget(t), testCheck("x.fails", func(t *checkRun) {
		t.Open()
		t.Failf("%s: got %s", "the server does not repeat "+fakeToken, fakeToken)
	}))}
	for _, f := range Formats {
		text := written(t, f, report)
		if strings.Contains(text, fakeToken) || regexp.MustCompile(`rt_[0-9A-Z]{10}`).MatchString(text) {
			t.Errorf("%s shows a secret:\n%s", f, text)
		}
		if f != FormatBadge && !strings.Contains(text, "redacted") {
			t.Errorf("%s does not show the failed check:\n%s", f, text)
		}
	}
}

// hostile is a text of a server that tries to be markup.
const hostile = "</pre></details><script>alert(1)</script> | ` **b** @everyone [x](javascript:1) \"' ]]> &amp;"

func hostileReport() *Report {
	r := sample()
	r.Runtime.Kind = hostile
	r.URL = "ws://" + hostile
	for i := range r.Results {
		res := &r.Results[i]
		res.Reason, res.Got, res.Rule, res.Sent = hostile, hostile, hostile, hostile
		for j := range res.Transcript {
			res.Transcript[j].Text = hostile
		}
	}
	return r
}

// Texts of a server stay texts: they close no element and begin no link.
func TestReportsEscapeTexts(t *testing.T) {
	for _, f := range []Format{FormatMarkdown, FormatHTML, FormatBadge} {
		text := written(t, f, hostileReport())
		for _, bad := range []string{"<script", "</details><script"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s contains %s:\n%s", f, bad, text)
			}
		}
	}
	before, _, _ := strings.Cut(written(t, FormatMarkdown, hostileReport()), "<pre>") // inside it everything is text
	for _, bad := range []string{"**b**", "[x](", "@everyone", "` "} {
		if strings.Contains(before, bad) {
			t.Errorf("the Markdown contains %s:\n%s", bad, before)
		}
	}
	for _, f := range []Format{FormatJUnit, FormatBadge} {
		wellFormed(t, written(t, f, hostileReport()))
	}
}

func wellFormed(t *testing.T, text string) {
	t.Helper()
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatalf("not well-formed: %v\n%s", err, text)
		}
	}
}

// The page needs no other file and no script.
func TestHTMLIsSelfContained(t *testing.T) {
	text := written(t, FormatHTML, sample())
	for _, bad := range []string{"<script", "src=", "href=", "@import", "url("} {
		if strings.Contains(text, bad) {
			t.Errorf("the page contains %s", bad)
		}
	}
	for _, want := range []string{"prefers-color-scheme: dark", "<details>", "jobs.life", "job.failed 3, want job.completed"} {
		if !strings.Contains(text, want) {
			t.Errorf("the page does not contain %s", want)
		}
	}
}

func TestMarkdownFitsAComment(t *testing.T) {
	r := sample()
	failed := r.Results[1]
	r.Results = nil
	for i := range 400 {
		res := failed
		res.ID, res.Got = fmt.Sprintf("jobs.n%d", i), fmt.Sprintf("nack %d", i)
		res.Transcript = make([]Entry, maxEntries)
		r.Results = append(r.Results, res)
	}
	text := written(t, FormatMarkdown, r)
	if len(text) > 60<<10 || !regexp.MustCompile(`[0-9]+ more defects are in the other reports`).MatchString(text) {
		t.Errorf("a report of %d bytes does not fit a comment, or hides that it was cut", len(text))
	}
}

// One defect has all checks that fail for the same reason. Ids do not tell defects apart.
func TestDefects(t *testing.T) {
	r := &Report{Results: []Result{
		{ID: "a.1", Level: Should, Status: Failed, Rule: "r", Got: "nack job_01M7ZCNHXFFHZTM8C0GY2956EY"},
		{ID: "a.2", Level: May, Status: Failed, Title: "other", Got: "nack"},
		{ID: "a.3", Level: Must, Status: Failed, Rule: "r", Got: "nack job_01M7ZCNHXFFHZTM8C0GY2956EZ"},
		{ID: "a.4", Level: Must, Status: Passed},
		{ID: "a.5", Level: Must, Status: Failed, Rule: "s", Reason: "first line\nsecond"},
	}}
	var got []string
	for _, d := range r.defects() {
		var ids []string
		for _, res := range d.Results {
			ids = append(ids, res.ID)
		}
		got = append(got, fmt.Sprintf("%s %s %s %s", d.Level, d.Rule, d.Got, strings.Join(ids, " ")))
	}
	want := []string{"must r nack job_… a.1 a.3", "must s first line a.5", "may other nack a.2"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("defects are %q, want %q", got, want)
	}
}

// SARIF 2.1.0: members that the schema requires, and those that code scanning of GitHub requires.
func TestSARIFHasRequiredMembers(t *testing.T) {
	var log struct {
		Version string `json:"version"`
		Schema  string `json:"$schema"`
		Runs    []struct {
			Tool struct {
				Driver struct {
					Name  string `json:"name"`
					Rules []struct {
						ID    string                     `json:"id"`
						Short struct{ Text string }      `json:"shortDescription"`
						Conf  struct{ Level string }     `json:"defaultConfiguration"`
						Other map[string]json.RawMessage `json:"-"`
					} `json:"rules"`
				} `json:"driver"`
			} `json:"tool"`
			Invocations []struct {
				Successful *bool `json:"executionSuccessful"`
			} `json:"invocations"`
			Results []struct {
				RuleID    string                `json:"ruleId"`
				RuleIndex int                   `json:"ruleIndex"`
				Level     string                `json:"level"`
				Message   struct{ Text string } `json:"message"`
				Locations []struct {
					Physical struct {
						Artifact struct{ URI string }    `json:"artifactLocation"`
						Region   struct{ StartLine int } `json:"region"`
					} `json:"physicalLocation"`
				} `json:"locations"`
				Fingerprints map[string]string `json:"partialFingerprints"`
			} `json:"results"`
		} `json:"runs"`
	}
	r := sample()
	for i, l := range Levels {
		r.Results = append(r.Results, Result{ID: fmt.Sprintf("x.%d", i), Level: l, Status: Failed, Title: "t", Reason: "r", Section: "RFC §1"})
	}
	r.Results = append(r.Results, Result{ID: "cancel.running", Level: Must, Status: Failed, Title: "t", Reason: "r", Section: "RFC §10.4"})
	if err := json.Unmarshal([]byte(written(t, FormatSARIF, r)), &log); err != nil {
		t.Fatal(err)
	}
	run := log.Runs[0]
	if log.Version != "2.1.0" || log.Schema == "" || run.Tool.Driver.Name == "" || run.Invocations[0].Successful == nil {
		t.Errorf("a member of the log is missing: %+v", log)
	}
	if len(run.Tool.Driver.Rules) != len(r.Results) || len(run.Results) != r.Count(Failed) {
		t.Errorf("%d rules and %d results, want one for each of %d checks and %d failures", len(run.Tool.Driver.Rules), len(run.Results), len(r.Results), r.Count(Failed))
	}
	for _, rule := range run.Tool.Driver.Rules {
		if rule.ID == "" || rule.Short.Text == "" || rule.Conf.Level == "" {
			t.Errorf("a member of the rule %+v is missing", rule)
		}
	}
	levels := map[string]string{"x.0": "error", "x.1": "warning", "x.2": "note", "x.3": "note"}
	for _, res := range run.Results {
		at := res.Locations[0].Physical
		if run.Tool.Driver.Rules[res.RuleIndex].ID != res.RuleID || res.Message.Text == "" || at.Artifact.URI == "" || at.Region.StartLine < 1 || len(res.Fingerprints) == 0 {
			t.Errorf("a member of the result %+v is missing", res)
		}
		if want := levels[res.RuleID]; want != "" && res.Level != want {
			t.Errorf("%s has the level %s, want %s", res.RuleID, res.Level, want)
		}
		if res.RuleID == "cancel.running" && at.Artifact.URI != "conformance/scripts/cancel.txt" {
			t.Errorf("%s is in %s, want the file of the script", res.RuleID, at.Artifact.URI)
		}
	}
}

func TestBadge(t *testing.T) {
	result := func(l Level, s Status) Result { return Result{Level: l, Status: s} }
	for _, c := range []struct {
		results     []Result
		text, color string
	}{
		{nil, "draft: not judged", "#6e7781"},
		{[]Result{result(Must, Skipped)}, "draft: not judged", "#6e7781"},
		{[]Result{result(Must, Passed), result(Must, Skipped)}, "draft: 1 of 1 MUST", "#1a7f37"},
		{[]Result{result(Must, Passed), result(Should, Failed)}, "draft: 1 of 1 MUST", "#9a6700"},
		{[]Result{result(Must, Stale), result(Must, KnownDeviation)}, "draft: 1 of 2 MUST", "#9a6700"},
		{[]Result{result(Must, Passed), result(Must, Failed)}, "draft: 1 of 2 MUST", "#cf222e"},
	} {
		text, color := badgeText(&Report{Dialect: arcp.DialectDraft, Results: c.results})
		if text != c.text || color != c.color {
			t.Errorf("badge of %v = %q, %s, want %q, %s", c.results, text, color, c.text, c.color)
		}
	}
}
