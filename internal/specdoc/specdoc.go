// Package specdoc writes the tables of SPEC.md from the catalogs of package arcp.
package specdoc

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/arcpd/arcpd/arcp"
)

// Tables returns the tables as Markdown, by name: messages, codes, capabilities, job-states.
func Tables() map[string]string {
	return map[string]string{
		"messages":     messageTable(),
		"codes":        codeTable(),
		"capabilities": capabilityTable(),
		"job-states":   jobStateTable(),
	}
}

const (
	blockStart = "<!-- generated: "
	blockName  = " -->"
	blockEnd   = "<!-- end -->"
)

// Update replaces the blocks of a document with Tables. A block begins with a line
// <!-- generated: NAME --> and ends with a line <!-- end -->. Each table must have exactly one.
func Update(doc []byte) ([]byte, error) {
	tables := Tables()
	var out bytes.Buffer
	for rest := string(doc); ; {
		before, block, found := strings.Cut(rest, blockStart)
		out.WriteString(before)
		if !found {
			break
		}
		name, block, named := strings.Cut(block, blockName)
		_, after, ended := strings.Cut(block, blockEnd)
		table, known := tables[name]
		switch {
		case !named || !ended:
			return nil, fmt.Errorf("update spec: a generated block has no end")
		case !known:
			return nil, fmt.Errorf("update spec: no table is called %q, or it is there twice", name)
		}
		delete(tables, name)
		fmt.Fprintf(&out, "%s%s%s\n%s%s", blockStart, name, blockName, table, blockEnd)
		rest = after
	}
	for name := range tables {
		return nil, fmt.Errorf("update spec: the block %q is missing", name)
	}
	return out.Bytes(), nil
}

// table returns a Markdown table. The first row is the header.
func table(rows [][]string) string {
	var b strings.Builder
	for i, row := range rows {
		b.WriteString("| " + strings.Join(row, " | ") + " |\n")
		if i == 0 {
			b.WriteString("|" + strings.Repeat(" --- |", len(row)) + "\n")
		}
	}
	return b.String()
}

// code returns s as Markdown code; for "" a dash.
func code[S ~string](s S) string {
	if s == "" {
		return "–"
	}
	return "`" + string(s) + "`"
}

func messageTable() string {
	rows := [][]string{{"type", "direction", "a client may send it when", "needs", "envelope members", "delivery", "handled", "section"}}
	for i := range arcp.Catalog {
		s := &arcp.Catalog[i]
		phase := "–"
		if s.From&arcp.FromClient != 0 {
			phase = s.Phase.String()
		}
		members := code(strings.Join(s.Scope.Members(), "` `"))
		rows = append(rows, []string{code(s.Type), s.From.String(), phase, code(s.Need), members, s.Delivery.String(), handled(s), s.Section})
	}
	return table(rows)
}

// handled returns whether the runtime handles a type that a client sends.
func handled(s *arcp.Spec) string {
	answer := "no"
	switch {
	case s.From&arcp.FromClient == 0:
		return "–"
	case s.Served || s.Phase&arcp.InOpening != 0:
		return "yes"
	case s.Quiet:
		answer = "ignored"
	}
	if s.Worker {
		answer += "; of workers: §7.8"
	}
	return answer
}

func codeTable() string {
	rows := [][]string{{"code", "retryable", "sent as", "meaning"}}
	for _, c := range arcp.Codes {
		retryable := "no"
		if c.Retryable {
			retryable = "yes"
		}
		sent := "itself"
		if c.Canonical != "" {
			sent = code(c.Canonical)
		}
		rows = append(rows, []string{code(c.Code), retryable, sent, c.Use})
	}
	return table(rows)
}

func capabilityTable() string {
	rows := [][]string{{"member", "type", "meaning"}}
	for _, f := range arcp.Features {
		rows = append(rows, []string{code(f), "boolean", featureUse[f]})
	}
	for _, m := range otherCapabilities {
		rows = append(rows, []string{code(m.name), m.kind, m.use})
	}
	return table(rows)
}

// featureUse describes each feature in a sentence.
var featureUse = map[arcp.Feature]string{
	arcp.FeatureStreaming:              "`stream.*` may be sent.",
	arcp.FeatureResultChunk:            "Results over 512 KiB come in `job.result_chunk`s.",
	arcp.FeatureArtifactRedirect:       "`artifact.fetch` of an artifact over 4 MiB is answered with a link for a download over HTTP.",
	arcp.FeatureDurableJobs:            "Jobs outlive connections and restarts.",
	arcp.FeatureCheckpoints:            "`job.checkpoint` may be sent, and checkpoints created and restored.",
	arcp.FeatureBinaryStreams:          "Binary content may come in binary frames (§6.7); the client has listed `sidecar`.",
	arcp.FeatureAgentHandoff:           "`agent.handoff` is understood.",
	arcp.FeatureHumanInput:             "`human.*` may be sent: a person answers the questions of jobs.",
	arcp.FeatureArtifacts:              "`artifact.*` is understood.",
	arcp.FeatureSubscriptions:          "`subscribe` and `job.subscribe` are understood.",
	arcp.FeatureScheduledJobs:          "`job.schedule` is understood.",
	arcp.FeatureInterrupt:              "`interrupt` is understood.",
	arcp.FeatureAnonymous:              "The scheme `none` is allowed, if both sides say so.",
	arcp.FeatureModelUse:               "Leases limit the models that may be used.",
	arcp.FeatureProvisionedCredentials: "`job.accepted` may carry credentials of the job.",
	arcp.FeatureRefresh:                "`session.refresh` will be answered.",
	arcp.FeatureHeartbeat:              "`session.ping` will be answered; silence ends the connection.",
	arcp.FeatureAck:                    "Events are acknowledged with `session.ack`; the window applies.",
	arcp.FeatureExecutes:               "The client runs tools: jobs may be given to it.",
	arcp.FeatureMetrics:                "The runtime's own metrics of a job are sent as its events.",
}

// otherCapabilities are the members that are not booleans.
var otherCapabilities = []struct{ name, kind, use string }{
	{"heartbeat_recovery", "`fail` or `block`", "What happens to a job whose heartbeats stop."},
	{"heartbeat_interval_seconds", "integer", "Seconds between job heartbeats."},
	{"ack_window", "integer", "Events sent ahead of what was acknowledged: asked for by the client, answered with what applies."},
	{"artifact_retention", "`{default_seconds, max_seconds}`", "How long artifacts are kept."},
	{"agents", "`[{name, versions?, default?}]`", "The tools and agents; a list of names is read too."},
	{"binary_encoding", "list of strings", "`base64`, and `sidecar` for binary frames (§6.7)."},
	{"extensions", "list of strings", "Extension types that may be sent."},
	{"features", "list of strings", "Features under the draft's names; the same as their booleans."},
	{"encodings", "list of strings", "`json`."},
	{"required", "list of strings", "From a client: the session is rejected with `UNIMPLEMENTED` if one of these is not offered."},
}

func jobStateTable() string {
	rows := [][]string{{"state", "ended", "meaning"}}
	for _, s := range arcp.JobStates {
		ended := "no"
		if s.Terminal() {
			ended = "yes"
		}
		rows = append(rows, []string{code(s), ended, jobStateUse[s]})
	}
	return table(rows)
}

// jobStateUse describes each state in a sentence.
var jobStateUse = map[arcp.JobState]string{
	arcp.StateAccepted:  "Durable, and not yet given to its tool.",
	arcp.StateQueued:    "Waits for capacity, for its time, or for the next attempt.",
	arcp.StateRunning:   "An attempt runs.",
	arcp.StateBlocked:   "An attempt waits for a person or for a heartbeat.",
	arcp.StatePaused:    "Stopped at a checkpoint by a shutdown; the next start of the runtime continues it.",
	arcp.StateCompleted: "Ended with a result.",
	arcp.StateFailed:    "Ended with an error.",
	arcp.StateCancelled: "Ended on request.",
}
