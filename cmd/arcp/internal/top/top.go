// Package top draws the live view of `arcp top`: jobs that have not ended, questions that wait for
// people, agents, and rates.
package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"
)

// interval is the time between two snapshots.
const interval = time.Second

// Snapshot is the state of a runtime at a time, as one principal sees it.
type Snapshot struct {
	At        time.Time
	Counts    Counts
	Jobs      []Job // that have not ended, in the order of the view
	MoreJobs  bool  // there are more than Jobs
	Questions []Question
	Agents    []Agent
	Err       error // why the rest is missing; nil: it is complete
}

// Counts counts what has happened since the start of the program.
type Counts struct {
	Events, Ended, Failed uint64 // events; jobs that have ended, and those of them that have failed
}

// Job is a line of the view. LastEvent describes the last event.
type Job struct {
	ID, Tool, Status, LastEvent string
	Created                     time.Time
}

// Question is a line of the view.
type Question struct {
	ID, Kind, Asks string
	Created        time.Time
}

// Agent is a line of the view. Tools is the number of tools that it executes.
type Agent struct {
	Name, Principal, Status, Task string
	Tools                         int
	Updated                       time.Time
}

// Options are the parameters of Run. All are required.
type Options struct {
	Title string                             // names the runtime
	Fetch func(ctx context.Context) Snapshot // called again a second after it has returned
	Age   func(d time.Duration) string       // formats a duration
	In    io.Reader                          // keys
	Out   io.Writer                          // a terminal
	Extra []tea.ProgramOption                // for tests
}

// Run draws the view until q, Ctrl-C or the end of ctx, and returns nil then.
func Run(ctx context.Context, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	program := tea.NewProgram(&model{ctx: ctx, opts: o},
		append([]tea.ProgramOption{tea.WithContext(ctx), tea.WithInput(o.In), tea.WithOutput(o.Out), tea.WithoutSignalHandler()}, o.Extra...)...)
	_, err := program.Run()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return nil
	}
	return err
}

// model is the tea.Model of the view.
type model struct {
	ctx           context.Context
	opts          Options
	width, height int
	latest        *Snapshot // nil: none yet
	samples       []sample  // of the last seconds, the oldest first
}

// sample is the base of a rate.
type sample struct {
	at     time.Time
	counts Counts
}

// maxSamples is the number of samples from which rates are calculated.
const maxSamples = 6

// Init implements tea.Model.
func (m *model) Init() tea.Cmd { return m.fetch }

func (m *model) fetch() tea.Msg { return m.opts.Fetch(m.ctx) }

// fetchLater fetches a snapshot after the interval.
func (m *model) fetchLater() tea.Msg {
	select {
	case <-time.After(interval):
		return m.fetch()
	case <-m.ctx.Done():
		return nil
	}
}

// Update implements tea.Model.
func (m *model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case tea.KeyPressMsg:
		switch msg.String() {
		case "q", "esc", "ctrl+c":
			return m, tea.Quit
		}
	case Snapshot:
		m.add(msg)
		return m, m.fetchLater
	}
	return m, nil
}

func (m *model) add(s Snapshot) {
	if s.Err != nil && m.latest != nil { // the view keeps what was seen last
		m.latest.Err = s.Err
		return
	}
	m.latest = &s
	m.samples = append(m.samples, sample{s.At, s.Counts})
	if len(m.samples) > maxSamples {
		m.samples = m.samples[1:]
	}
}

// rates returns the events and ended jobs a second over the samples.
func (m *model) rates() (events, ended float64) {
	first, last := m.samples[0], m.samples[len(m.samples)-1]
	seconds := last.at.Sub(first.at).Seconds()
	if seconds <= 0 {
		return 0, 0
	}
	return float64(last.counts.Events-first.counts.Events) / seconds, float64(last.counts.Ended-first.counts.Ended) / seconds
}

// View implements tea.Model.
func (m *model) View() tea.View {
	v := tea.NewView(strings.Join(m.lines(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "arcp top"
	return v
}

// Most lines of questions and agents. Jobs get the rest of the screen.
const (
	maxQuestions = 5
	maxAgents    = 8
	minJobs      = 3
)

// lines returns the lines of the view, which fit on the screen.
func (m *model) lines() []string {
	if m.latest == nil {
		return m.fit([]string{"arcp top  " + m.opts.Title, "", "waiting for the runtime"})
	}
	s := m.latest
	events, ended := m.rates()
	lines := []string{
		fmt.Sprintf("arcp top  %s  %s", m.opts.Title, s.At.Local().Format(time.TimeOnly)),
		fmt.Sprintf("%d %s%s  %.1f events/s  %.1f jobs/s ended  %d ended, %d of them failed, since the start of this command",
			len(s.Jobs), map[bool]string{true: "job", false: "jobs"}[len(s.Jobs) == 1], map[bool]string{true: " and more"}[s.MoreJobs], events, ended, s.Counts.Ended, s.Counts.Failed),
	}
	if s.Err != nil {
		lines = append(lines, "no newer state: "+s.Err.Error())
	}
	var below []string
	below = append(below, m.section("QUESTION", s.questionRows(m.opts.Age), len(s.Questions), maxQuestions)...)
	below = append(below, m.section("AGENT", s.agentRows(m.opts.Age), len(s.Agents), maxAgents)...)
	below = append(below, "", "q quits")
	room := max(m.height-len(lines)-len(below)-2, minJobs)
	lines = append(lines, m.section("JOB", s.jobRows(m.opts.Age), len(s.Jobs), room)...)
	return m.fit(append(lines, below...))
}

func (s *Snapshot) jobRows(age func(time.Duration) string) [][]string {
	rows := [][]string{{"JOB", "TOOL", "STATUS", "AGE", "LAST EVENT"}}
	for _, j := range s.Jobs {
		rows = append(rows, []string{j.ID, j.Tool, j.Status, age(s.At.Sub(j.Created)), j.LastEvent})
	}
	return rows
}

func (s *Snapshot) questionRows(age func(time.Duration) string) [][]string {
	rows := [][]string{{"QUESTION", "KIND", "AGE", "ASKS"}}
	for _, q := range s.Questions {
		rows = append(rows, []string{q.ID, q.Kind, age(s.At.Sub(q.Created)), q.Asks})
	}
	return rows
}

func (s *Snapshot) agentRows(age func(time.Duration) string) [][]string {
	rows := [][]string{{"AGENT", "PRINCIPAL", "STATUS", "TOOLS", "CHANGED", "TASK"}}
	for _, a := range s.Agents {
		rows = append(rows, []string{a.Name, a.Principal, a.Status, fmt.Sprint(a.Tools), age(s.At.Sub(a.Updated)), a.Task})
	}
	return rows
}

// section returns an empty line, and a table of at most most rows below its header. Without rows it returns
// nothing but for jobs.
func (m *model) section(name string, rows [][]string, n, most int) []string {
	if n == 0 && name != "JOB" {
		return nil
	}
	left := 0
	if n > most {
		left = n - most + 1
		rows = rows[:1+most-1]
	}
	lines := append([]string{""}, align(rows)...)
	switch {
	case n == 0:
		lines = append(lines, "no job is waiting or running")
	case left > 0:
		lines = append(lines, fmt.Sprintf("… and %d more", left))
	}
	return lines
}

// align pads the cells of rows to columns.
func align(rows [][]string) (lines []string) {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			row[i] = printable(cell)
			width[i] = max(width[i], ansi.StringWidth(row[i]))
		}
	}
	for _, row := range rows {
		var b strings.Builder
		for i, cell := range row {
			b.WriteString(cell)
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", width[i]-ansi.StringWidth(cell)+2))
			}
		}
		lines = append(lines, b.String())
	}
	return lines
}

// printable removes control characters: cells have text of tools and of other clients.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r >= 0x7f && r < 0xa0 {
			return -1
		}
		return r
	}, s)
}

// fit cuts lines to the size of the screen.
func (m *model) fit(lines []string) []string {
	if m.height > 0 && len(lines) > m.height {
		lines = lines[:m.height]
	}
	if m.width > 0 {
		for i, l := range lines {
			lines[i] = ansi.Truncate(l, m.width, "…")
		}
	}
	return lines
}
