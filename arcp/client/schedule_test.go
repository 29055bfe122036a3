package client_test

import (
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

func TestScheduleAddSendsJobSchedule(t *testing.T) {
	scripted(t, bearer, `
		C one: job.schedule {"job":{"type":"tool.invoke","payload":{"tool":"t","arguments":{"n":1},"cost_budget":["USD:5"]}},"when":{"at":"2030-01-02T15:04:05.000000Z"}}
		S: job.accepted corr=one job=job_1 seq=1 {"job_id":"job_1"}
		S: job.completed corr=one job=job_1 seq=2 {"value":7}
		C two: job.schedule {"when":{"every":"FREQ=DAILY"}}
		S: nack corr=two {"code":"INVALID_ARGUMENT","message":"every: no"}
		C three: job.schedule {"when":{"after":0}}
		S: nack corr=three {"code":"RESOURCE_EXHAUSTED","message":"too many","retryable":true}
	`, func(t *testing.T, c *client.Client, _ *fake) {
		invoke := client.InvokeParams{Tool: "t", Arguments: map[string]int{"n": 1}, Options: arcp.SubmitOptions{CostBudget: []string{"USD:5"}}}
		job, err := client.SchedulesOf(c).Add(t.Context(), client.ScheduleParams{InvokeParams: invoke,
			When: arcp.When{At: time.Date(2030, 1, 2, 15, 4, 5, 0, time.UTC)}})
		if err != nil {
			t.Fatal(err)
		}
		result, err := job.Wait(t.Context())
		want(t, "the job is the schedule", job.ID(), "job_1")
		want(t, "its result", string(result.Value), "7")
		want(t, "its error", err, nil)

		_, err = client.SchedulesOf(c).Add(t.Context(), client.ScheduleParams{InvokeParams: invoke, When: arcp.When{Every: "FREQ=DAILY"}})
		want(t, "the code of a refusal", wantAs[*client.RemoteError](t, "a refused rule", err).Code, arcp.CodeInvalidArgument)
		_, err = client.SchedulesOf(c).Add(t.Context(), client.ScheduleParams{InvokeParams: invoke, When: arcp.When{After: new(arcp.FloatNumber(0))}})
		want(t, "a refusal for now", wantAs[*client.RemoteError](t, "one schedule too many", err).Retryable, true)
	})
}

// Arguments that are not JSON are refused before anything is sent.
func TestScheduleAddRefusesArguments(t *testing.T) {
	scripted(t, bearer, "", func(t *testing.T, c *client.Client, f *fake) {
		_, err := client.SchedulesOf(c).Add(t.Context(), client.ScheduleParams{InvokeParams: client.InvokeParams{Tool: "t", Arguments: func() {}},
			When: arcp.When{Every: "FREQ=DAILY"}})
		if err == nil {
			t.Error("a schedule with a function as its arguments is accepted")
		}
		want(t, "frames after session.open", len(f.received), 1)
	})
}
