package conformance

import (
	"fmt"
	"slices"
	"sync"

	"github.com/arcpd/arcpd/arcp"
)

// findings are the rules of frames that the server violated in a run. It is safe for concurrent
// use.
type findings struct {
	mu     sync.Mutex
	frames int                 // all frames
	broken map[string]*finding // by id of the check
}

// finding is one violated rule.
type finding struct {
	frames     int
	during     string // id of the check that received the first frame
	first      string // what the first frame has instead
	transcript []Entry
}

// judge counts a frame. Of the rules that it violates, the first one of a chosen level is recorded,
// once with the transcript.
func (run *checkRun) judge(broken []violation) {
	fs := run.findings
	fs.mu.Lock()
	defer fs.mu.Unlock()
	fs.frames++
	i := slices.IndexFunc(broken, func(b violation) bool { return slices.Contains(run.levels, b.rule.level) })
	if i < 0 {
		return
	}
	id := broken[i].rule.checkID()
	known := fs.broken[id]
	if known == nil {
		known = &finding{during: run.id, first: redact(broken[i].text, run.tr.secrets), transcript: run.tr.entries()}
		if fs.broken == nil {
			fs.broken = map[string]*finding{}
		}
		fs.broken[id] = known
	}
	known.frames++
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
