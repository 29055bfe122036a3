package proxy

import (
	"encoding/json"
	"slices"

	"github.com/arcpd/arcpd/arcp"
)

// draftListFaults are defects of session.list_jobs.
var draftListFaults = []Fault{
	{Defect: "session.list_jobs is answered twice", Checks: []string{"draft.list.answer"},
		newRewriter: duplicateWhere(isType(arcp.SessionJobs), frame.withNewID)},
	{Defect: "a listed job has the agent without its version", Checks: []string{"draft.list.entry"},
		newRewriter: editEntries(func(e map[string]any) map[string]any { e["agent"] = "demo.echo"; return e })},
	{Defect: "a listed job has no lease", Checks: []string{"draft.list.lease"},
		newRewriter: editEntries(func(e map[string]any) map[string]any { e["lease"] = map[string]any{}; return e })},
	{Defect: "every job that has ended is listed as a success", Checks: []string{"draft.list.status"},
		newRewriter: editEntries(func(e map[string]any) map[string]any {
			if e["status"] != "running" {
				e["status"] = "success"
			}
			return e
		})},
	{Defect: "filter.status is ignored", Checks: []string{"draft.list.filter-status", "draft.list.filter-together", "draft.list.filter-wrong"},
		newRewriter: editListFilter(func(filter map[string]any) { delete(filter, "status") })},
	{Defect: "filter.agent is ignored", Checks: []string{"draft.list.filter-agent", "draft.list.filter-together"},
		newRewriter: editListFilter(func(filter map[string]any) { delete(filter, "agent") })},
	{Defect: "filter.created_after and filter.created_before are ignored", Checks: []string{"draft.list.filter-time", "draft.list.filter-before", "draft.list.filter-after"},
		newRewriter: editListFilter(func(filter map[string]any) { delete(filter, "created_after"); delete(filter, "created_before") })},
	{Defect: "the newest job is listed first", Checks: []string{"draft.list.order", "draft.list.paging"},
		newRewriter: editReceived(arcp.SessionJobs, func(f frame) frame {
			jobs := f.entries()
			slices.Reverse(jobs)
			return f.withPayload("jobs", jobs)
		})},
	{Defect: "the limit of a page is ignored", Checks: []string{"draft.list.limit"},
		newRewriter: editSent(arcp.SessionListJobs, func(f frame) frame { return f.withPayload("limit", nil) })},
	{Defect: "a page without a limit or with a large one has no jobs", Checks: []string{"draft.list.limit-large"},
		newRewriter: func() rewriter {
			large := false
			return rewriter{
				out: func(f frame) []frame {
					if f.Type == arcp.SessionListJobs {
						limit := f.numberMember("limit")
						large = limit == 0 || limit > 1000
					}
					return []frame{f}
				},
				in: func(f frame) []frame {
					if f.Type == arcp.SessionJobs && large {
						f = f.withPayload("jobs", []any{}).withPayload("next_cursor", null)
					}
					return []frame{f}
				},
			}
		}},
	{Defect: "a cursor is ignored", Checks: []string{"draft.list.paging", "draft.list.cursor-wrong", "draft.list.cursor-filter"},
		newRewriter: editSent(arcp.SessionListJobs, func(f frame) frame { return f.withPayload("cursor", nil) })},
	{Defect: "the last page has a cursor", Checks: []string{"draft.list.last-page"},
		newRewriter: editReceived(arcp.SessionJobs, func(f frame) frame { return f.withPayload("next_cursor", "more") })},
	{Defect: "a session lists the jobs that it has submitted itself", Checks: []string{"draft.list.sessions"}, newRewriter: listOwn},
	{Defect: "a job that has ended is not listed", Checks: []string{"draft.list.ended", "draft.list.status"},
		newRewriter: editEntries(func(e map[string]any) map[string]any {
			if e["status"] != "running" {
				return nil
			}
			return e
		})},
	{Defect: "the end of a job is sent to each session that has listed the job", Checks: []string{"draft.list.read-only"}, newShared: followListed},
}

// entries returns the jobs of a page.
func (f frame) entries() []map[string]any {
	var p struct {
		Jobs []map[string]any `json:"jobs"`
	}
	if json.Unmarshal(f.Payload, &p) != nil {
		return nil
	}
	return p.Jobs
}

// editEntries returns rewriters that edit each listed job. A nil result removes the job.
func editEntries(edit func(entry map[string]any) map[string]any) func() rewriter {
	return editReceived(arcp.SessionJobs, func(f frame) frame {
		list := []map[string]any{}
		for _, e := range f.entries() {
			if e = edit(e); e != nil {
				list = append(list, e)
			}
		}
		return f.withPayload("jobs", list)
	})
}

// editListFilter returns rewriters that edit the filter of each session.list_jobs.
func editListFilter(edit func(filter map[string]any)) func() rewriter {
	return editSent(arcp.SessionListJobs, func(f frame) frame {
		var p struct {
			Filter map[string]any `json:"filter"`
		}
		if json.Unmarshal(f.Payload, &p) != nil || p.Filter == nil {
			return f
		}
		edit(p.Filter)
		return f.withPayload("filter", p.Filter)
	})
}

// listOwn removes the jobs that were not accepted on the connection from each page.
func listOwn() rewriter {
	own := map[any]bool{}
	return rewriter{in: func(f frame) []frame {
		switch f.Type {
		case arcp.JobAccepted:
			own[string(f.JobID)] = true
		case arcp.SessionJobs:
			jobs := slices.DeleteFunc(f.entries(), func(e map[string]any) bool { return !own[e["job_id"]] })
			f = f.withPayload("jobs", jobs)
		}
		return []frame{f}
	}}
}

// followListed sends the end of each job to the connections that have listed jobs.
func followListed() func() rewriter {
	var end frame
	return func() rewriter {
		listed := false
		return rewriter{in: func(f frame) []frame {
			switch {
			case f.Type == arcp.SessionJobs:
				listed = true
			case f.Type == jobError && f.event():
				end = f
			case f.Type == arcp.SessionPong && listed && end.event():
				return []frame{end.withNewID().with("session_id", f.SessionID).with("event_seq", 1), f}
			}
			return []frame{f}
		}}
	}
}
