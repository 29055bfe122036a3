package runtime_test

import (
	"testing"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/arcp/client"
)

// withSchedules runs a test with the client of each dialect.
func withSchedules(t *testing.T, test func(f *fixture, c *client.Client)) {
	t.Helper()
	for _, dialect := range []arcp.Dialect{arcp.DialectRFC, arcp.DialectDraft} {
		t.Run(dialect.String(), func(t *testing.T) {
			inBubble(t, nil, func(f *fixture) {
				l := &link{f: f}
				c, err := client.ConnectFunc(f.Context(), l.dial, client.Options{Dialect: dialect, Auth: client.Auth{Token: "alice-" + token}})
				if err != nil {
					f.Fatal(err)
				}
				defer c.Abort()
				test(f, c)
			})
		})
	}
}

// scheduled schedules a call of a tool.
func scheduled(f *fixture, c *client.Client, tool, args string, when arcp.When) *client.Job {
	f.Helper()
	job, err := client.SchedulesOf(c).Add(f.Context(), client.ScheduleParams{InvokeParams: client.InvokeParams{Tool: tool, Arguments: arcp.Raw(args)}, When: when})
	if err != nil {
		f.Fatal(err)
	}
	return job
}

func after(d time.Duration) arcp.When { return arcp.When{After: new(arcp.FloatNumber(d.Seconds()))} }

// A schedule of one time ends with the outcome of its job, at its time.
func TestClientSchedulesOneJob(t *testing.T) {
	withSchedules(t, func(f *fixture, c *client.Client) {
		begin := time.Now()
		job := scheduled(f, c, "demo.echo", `{"n":1}`, after(time.Hour))
		result, err := job.Wait(f.Context())
		if string(result.Value) != `{"n":1}` || err != nil || time.Since(begin) != time.Hour {
			f.Errorf(`result = %s, %v after %s, want {"n":1} after an hour`, result.Value, err, time.Since(begin))
		}
		job = scheduled(f, c, "demo.echo", `{"n":2}`, arcp.When{At: begin.Add(2 * time.Hour)})
		result, err = job.Wait(f.Context())
		if string(result.Value) != `{"n":2}` || err != nil || time.Since(begin) != 2*time.Hour {
			f.Errorf(`result = %s, %v after %s, want {"n":2} after two hours`, result.Value, err, time.Since(begin))
		}
		job = scheduled(f, c, "demo.fail", `{"code":"NOT_FOUND","message":"gone"}`, after(0))
		_, err = job.Wait(f.Context())
		wantCode(f.T, "the job of a schedule fails", err, arcp.CodeNotFound)
	})
}

// A schedule with a rule ends with counts.
func TestClientSchedulesByARule(t *testing.T) {
	withSchedules(t, func(f *fixture, c *client.Client) {
		job := scheduled(f, c, "demo.sleep", `{"ms":90000}`, arcp.When{Every: "FREQ=MINUTELY;COUNT=4"})
		result, err := job.Wait(f.Context())
		if err != nil {
			f.Fatal(err)
		}
		var got arcp.ScheduleResult
		if err := arcp.Unmarshal(result.Value, &got); err != nil {
			f.Fatal(err)
		}
		if want := (arcp.ScheduleResult{Fired: 2, Skipped: 2}); got != want {
			f.Errorf("result = %+v, want %+v: every second occurrence comes while a job runs", got, want)
		}
	})
}

func TestClientCancelsASchedule(t *testing.T) {
	withSchedules(t, func(f *fixture, c *client.Client) {
		job := scheduled(f, c, "demo.echo", `{}`, after(time.Hour))
		if err := c.Cancel(f.Context(), client.CancelParams{JobID: job.ID(), Reason: "not needed"}); err != nil {
			f.Fatal(err)
		}
		_, err := job.Wait(f.Context())
		wantCode(f.T, "a cancelled schedule", err, arcp.CodeCancelled)
	})
}

// A refusal is a RemoteError.
func TestClientIsRefusedSchedules(t *testing.T) {
	withSchedules(t, func(f *fixture, c *client.Client) {
		for _, test := range []struct {
			why, tool, args string
			when            arcp.When
			code            arcp.Code
		}{
			{"an unknown tool", "nope", `{}`, after(0), arcp.CodeAgentNotAvailable},
			{"wrong arguments", "demo.sleep", `{"ms":"long"}`, after(0), arcp.CodeInvalidArgument},
			{"a built-in tool", "tools.list", `{}`, after(0), arcp.CodeInvalidArgument},
			{"no time", "demo.echo", `{}`, arcp.When{}, arcp.CodeInvalidArgument},
			{"two times", "demo.echo", `{}`, arcp.When{Every: "FREQ=DAILY", After: after(0).After}, arcp.CodeInvalidArgument},
			{"a time in the past", "demo.echo", `{}`, arcp.When{At: time.Now().Add(-time.Second)}, arcp.CodeInvalidArgument},
			{"a wrong rule", "demo.echo", `{}`, arcp.When{Every: "FREQ=NEVER"}, arcp.CodeInvalidArgument},
		} {
			_, err := client.SchedulesOf(c).Add(f.Context(), client.ScheduleParams{InvokeParams: client.InvokeParams{Tool: test.tool, Arguments: arcp.Raw(test.args)}, When: test.when})
			wantCode(f.T, test.why, err, test.code)
		}
	})
}
