package conformance

import (
	"fmt"
	"slices"
	"sync"

	"github.com/arcpd/arcpd/arcp"
)

// findings are the rules of frames that the server violated in a run. There is at most one for each
// rule. It is safe for concurrent use.
type findings struct {
	mu     sync.Mutex
	frames int                 // all frames
	broken map[string]*finding // by id of the check
	spoken map[string]bool     // ids of checks whose subject was received
	first  func()              // called at the first violation; nil: nothing is called
}

// finding is one violated rule.
type finding struct {
	frames     int
	during     string // id of the check that received the first frame
	first      string // what the first frame has instead
	transcript []Entry
}

// judge counts a frame, the rules that speak of it, and each rule of a chosen level that it violates.
// The first violation of a rule is recorded with the transcript. f is nil for a frame without a type.
func (run *checkRun) judge(rules []rule, f *judged, broken []violation) {
	fs := run.findings
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.frames++
	if f != nil {
		fs.speak(rules, f)
	}
	var transcript []Entry
	counted := map[*rule]bool{}
	for _, b := range broken {
		if counted[b.rule] || !run.judges(b.rule.level) {
			continue
		}
		counted[b.rule] = true
		if transcript == nil {
			transcript = run.tr.entries()
		}
		fs.add(b.rule.checkID(), finding{during: run.id, first: run.tr.redact(b.text), transcript: transcript})
	}
}

// speak records the rules that speak of a frame.
func (fs *findings) speak(rules []rule, f *judged) {
	if fs.spoken == nil {
		fs.spoken = map[string]bool{}
	}
	inside := f.inside()
	for i := range rules {
		r := &rules[i]
		id := r.checkID()
		if s, limited := subjects[id]; limited && !fs.spoken[id] && r.spokenOf(s, f, inside) {
			fs.spoken[id] = true
		}
	}
}

// add counts a frame that violates a rule.
func (fs *findings) add(id string, first finding) {
	if fs.broken == nil {
		fs.broken = map[string]*finding{}
		if fs.first != nil {
			fs.first()
		}
	}
	if fs.broken[id] == nil {
		fs.broken[id] = &first
	}
	fs.broken[id].frames++
}

// any reports whether a rule was violated.
func (fs *findings) any() bool {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	return len(fs.broken) > 0
}

// result returns the outcome of a check of the group frames.
func (fs *findings) result(c *Check) Result {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	res := c.result(Passed)
	switch found := fs.broken[c.ID]; {
	case found != nil:
		res.Status, res.Transcript = Failed, found.transcript
		res.Got, res.During = found.first, found.during
		res.Reason = fmt.Sprintf("%s (in %d of %d frames)", found.first, found.frames, fs.frames)
	case fs.frames == 0:
		res.Status, res.Reason = Skipped, "no frame was received"
	default:
		if s, limited := subjects[c.ID]; limited && !fs.spoken[c.ID] {
			res.Status, res.Reason = Skipped, s.missing
		}
	}
	return res
}

// frameResults returns the outcomes of the checks of the group frames: those that are selected, and
// every violated rule.
func (r *runner) frameResults(d arcp.Dialect, selected []Check) []Result {
	var list []Result
	for _, c := range Checks(d) {
		if !c.frames || !slices.Contains(r.opts.levels(), c.Level) {
			continue
		}
		chosen := slices.ContainsFunc(selected, func(s Check) bool { return s.ID == c.ID })
		if res := r.findings.result(&c); chosen || res.Status == Failed {
			list = append(list, res)
		}
	}
	for i := range list {
		r.target.Mapping.judge(&list[i])
		r.publish(list[i])
	}
	return list
}

func (r *rule) checkID() string {
	id := framesGroup + "." + r.id
	if r.draft {
		id = draftPrefix + id
	}
	return id
}
