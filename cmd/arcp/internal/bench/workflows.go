package bench

import (
	"fmt"
	"strings"
	"sync/atomic"
)

// workflowSteps is the number of steps of the workflow, one after the other.
const workflowSteps = 10

// WorkflowConfig is the configuration file of the runtimes, with the workflow of the row workflows.
func WorkflowConfig() []byte {
	var b strings.Builder
	b.WriteString("workflows:\n  - name: bench.workflow\n    steps:\n      s1: {tool: demo.echo, arguments: {n: 1}}\n")
	for n := 2; n <= workflowSteps; n++ {
		fmt.Fprintf(&b, "      s%d: {needs: [s%d], tool: demo.echo, arguments: {n: %d}}\n", n, n-1, n)
	}
	return []byte(b.String())
}

// workflows measures steps of workflows, one workflow at a time in each session.
func (r *run) workflows() (float64, error) {
	if err := r.open(eventSessions); err != nil {
		return 0, err
	}
	r.details[inFlight] = 1
	var steps atomic.Int64
	return r.measureRate(&steps, func(_ int, s *session) error { return s.workflows(endless, &steps) })
}

// workflows runs n workflows, one after the other, and adds their steps to ended.
func (s *session) workflows(n int, ended *atomic.Int64) error {
	d := s.dialect
	payload := strings.TrimSuffix(fmt.Sprintf(d.submitPayload, "bench.workflow", `{}`), "}") + `,"lease_request":{"tool.call":["demo.echo"]}}`
	submit, acks := d.prepare(d.submit, payload), d.newAcks(ackEach)
	for range n {
		if err := s.send(submit.next()); err != nil {
			return err
		}
		frame, err := s.await(d.accepted)
		if err != nil {
			return err
		}
		workflow := string(member(frame, jobKey))
		for id := ""; id != workflow; id = string(member(frame, jobKey)) {
			if frame, err = s.await(d.completed); err != nil { // also of its steps
				return err
			}
			if ack := acks.due(seqOf(frame)); ack != nil {
				if err := s.conn.Write(ack); err != nil {
					return err
				}
			}
		}
		ended.Add(workflowSteps)
	}
	return nil
}
