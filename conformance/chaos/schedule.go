package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/arcpd/arcpd/arcp"
)

// writeTime is the time after the timestamp of an event within which a busy server has stored it. A job has
// ended when its end is stored.
const writeTime = time.Second

// minInterval is the shortest interval in which a busy server is expected to fire an occurrence.
const minInterval = 2 * time.Second

// scheduleTask returns a random schedule. The rule of a schedule with several occurrences starts at the next
// full second.
func scheduleTask(rnd *rand.Rand, mark string) Task {
	child := Task{Kind: Echo, Marker: mark, Arguments: fmt.Sprintf(`{"mark":%q}`, mark)}
	if rnd.IntN(3) == 0 {
		return Task{Kind: Schedule, Marker: mark, N: 1, Delay: time.Duration(1+rnd.IntN(5)) * time.Second, Child: &child}
	}
	return Task{Kind: Schedule, Marker: mark, N: 2 + rnd.IntN(4), Interval: time.Duration(1+rnd.IntN(3)) * time.Second, Child: &child}
}

// schedulePayload returns the payload of job.schedule.
func (t *Task) schedulePayload() arcp.JobSchedulePayload {
	job := fmt.Sprintf(`{"tool":%q,"arguments":%s}`, t.Child.Kind, t.Child.Arguments)
	p := arcp.JobSchedulePayload{Job: arcp.ScheduledJob{Type: arcp.ToolInvoke, Payload: arcp.Raw(job)}}
	if t.Interval == 0 {
		p.When.After = new(arcp.Number(fmt.Sprint(t.Delay.Seconds())))
	} else {
		p.When.Every = fmt.Sprintf("FREQ=SECONDLY;INTERVAL=%d;COUNT=%d", t.Interval/time.Second, t.N)
	}
	return p
}

// scheduled checks the result of a schedule: each occurrence has fired or was skipped (SPEC.md §5.19).
func (ex *expectation) scheduled(value arcp.Raw) string {
	if ex.task.Interval == 0 { // it ends as its job does
		if ex.fired = 1; string(value) != ex.task.Child.Arguments {
			return fmt.Sprintf("a schedule completed with %s, its job is an echo of %s", value, ex.task.Child.Arguments)
		}
		return ""
	}
	var p arcp.ScheduleResult
	err := arcp.Unmarshal(value, &p)
	ex.fired = p.Fired
	if err != nil || p.Fired+p.Skipped != ex.task.N || p.Failed != 0 {
		return fmt.Sprintf("a schedule of %d occurrences completed with %s (%v)", ex.task.N, value, err)
	}
	return ""
}

// activity has the times of all events of a campaign, which show when the server was running.
type activity []time.Time

func newActivity(streams []*Stream) (all activity) {
	for _, s := range streams {
		for _, v := range s.Jobs {
			for _, e := range v.Events {
				all = append(all, e.Time)
			}
		}
	}
	slices.SortFunc(all, time.Time.Compare)
	return all
}

// between reports whether the server has made an event from one time until before another.
func (a activity) between(from, until time.Time) bool {
	i, _ := slices.BinarySearchFunc(a, from, time.Time.Compare)
	return i < len(a) && a[i].Before(until)
}

// running reports whether the server ran in each third of an interval.
func (a activity) running(from time.Time, d time.Duration) bool {
	third := d / 3
	for end := from.Add(d); from.Add(third).Compare(end) <= 0; from = from.Add(third) {
		if !a.between(from, from.Add(third)) {
			return false
		}
	}
	return true
}

// schedules checks the jobs of each schedule of a session: an occurrence fires at most once, and one that
// is due while the server runs and the previous job has ended is not lost.
func (c *comparison) schedules(s *Stream, all activity) {
	for id, v := range s.Jobs {
		if v.expected == nil || v.expected.task.Kind != Schedule || v.End == nil {
			continue
		}
		var jobs []*View
		for child, known := range s.Children {
			if known.Parent == id && s.Jobs[child] != nil {
				jobs = append(jobs, s.Jobs[child])
			}
		}
		slices.SortFunc(jobs, func(a, b *View) int { return a.Events[0].Time.Compare(b.Events[0].Time) })
		c.schedule(s, v, jobs, all)
	}
}

// schedule checks the jobs of one schedule, the earliest first.
func (c *comparison) schedule(s *Stream, v *View, jobs []*View, all activity) {
	task := &v.expected.task
	if task.Interval == 0 {
		c.oneOccurrence(s, v, jobs)
		return
	}
	start := ceilSecond(v.Events[0].Time)
	due := func(t time.Time) int { return min(int(t.Sub(start)/task.Interval)+1, task.N) } // occurrences until t
	for n, job := range jobs {
		if at := job.Events[0].Time; at.Before(start) || due(at) <= n {
			c.find(RuleSchedule, s.Observer, "%s: job %d was submitted at %s, the first occurrence is at %s, and then each %s", v.Job, n+1, at, start, task.Interval)
			return
		}
	}
	for n := 0; n < task.N && task.Interval >= minInterval; n++ {
		at := start.Add(time.Duration(n) * task.Interval)
		if at.Add(task.Interval).After(v.End.Time) && v.End.Type == arcp.JobCancelled {
			return
		}
		if !c.firedOrBusy(jobs, at, task.Interval) && all.running(at, task.Interval) {
			c.find(RuleSchedule, s.Observer, "%s: the occurrence %d at %s of each %s has no job, although the server was running; %s", v.Job, n+1, at, task.Interval, times(jobs))
		}
	}
}

// oneOccurrence checks the jobs of a schedule with one occurrence, which is not lost when it is late.
func (c *comparison) oneOccurrence(s *Stream, v *View, jobs []*View) {
	due := v.Events[0].Time.Add(v.expected.task.Delay - writeTime) // the delay begins before the time of job.accepted
	if len(jobs) > 1 || len(jobs) == 1 && jobs[0].Events[0].Time.Before(due) {
		c.find(RuleSchedule, s.Observer, "%s: one job is due, not before %s; %s", v.Job, due, times(jobs))
	}
}

// times returns when each job was submitted and ended.
func times(jobs []*View) (text string) {
	for _, job := range jobs {
		text += fmt.Sprintf("%s from %s until %s; ", job.Job, job.Events[0].Time, job.Events[len(job.Events)-1].Time)
	}
	return text
}

// firedOrBusy reports whether a job was submitted for the occurrence at a time, or was running then.
func (c *comparison) firedOrBusy(jobs []*View, at time.Time, interval time.Duration) bool {
	for _, job := range jobs {
		submitted := job.Events[0].Time
		fired := !submitted.Before(at) && submitted.Before(at.Add(interval))
		busy := submitted.Before(at) && (job.End == nil || job.End.Time.Add(writeTime).After(at))
		if fired || busy {
			return true
		}
	}
	return false
}

// ceilSecond returns the next full second.
func ceilSecond(t time.Time) time.Time {
	return t.Add(time.Second - time.Nanosecond).Truncate(time.Second)
}
