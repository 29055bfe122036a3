package main

import (
	"bytes"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

// newLog returns the log of the server. Its level is global, so a reload can change it.
func newLog(w io.Writer, v *settings.Values) zerolog.Logger {
	setLogLevel(v)
	if v.Text("log-format") == "console" {
		w = newConsoleLog(w)
	}
	return zerolog.New(w).Hook(zerolog.HookFunc(addTime))
}

// newConsoleLog returns a writer that prints records as text.
func newConsoleLog(w io.Writer) zerolog.ConsoleWriter {
	return zerolog.ConsoleWriter{Out: w, NoColor: !isTerminal(w) || noColor(), TimeFormat: "15:04:05.000",
		FieldsExclude: []string{stackField}, FormatExtra: appendStack}
}

// stackField is the field with the stack of a panic. The console prints it as lines below the record.
const stackField = "stack"

// appendStack appends the stack of a record, if it has one.
func appendStack(fields map[string]any, line *bytes.Buffer) error {
	stack, ok := fields[stackField].(string)
	if !ok {
		return nil
	}
	for text := range strings.Lines(strings.TrimSpace(stack)) {
		line.WriteString("\n    " + strings.TrimRight(text, "\n"))
	}
	return nil
}

// timeFormat is RFC 3339 with milliseconds.
const timeFormat = "2006-01-02T15:04:05.000Z"

// addTime adds the time to a line, in UTC.
func addTime(ev *zerolog.Event, _ zerolog.Level, _ string) {
	ev.Str(zerolog.TimestampFieldName, time.Now().UTC().Format(timeFormat))
}

// logStarting logs what the server starts with. The store is open, and no program has been started: tools has the
// number of tools without those of MCP servers and workers.
func (s *server) logStarting(tools int) {
	v := s.values
	ev := s.log.Info().Str("version", thisBuild().Version).Str("data", v.Text("data")).Int("tools", tools).
		Int("principals", s.auth.Principals()).Strs("dialects", []string{arcp.DialectRFC.String(), arcp.DialectDraft.String()}).
		Bool("tls", s.cert != nil).Int("max_connections", maxConnections(v)).Int("max_sessions", v.Number("max-sessions")).
		Int("max_jobs", v.Number("max-jobs")).Int64("max_data_bytes", s.maxData).Dur("retention_ms", v.Duration("retention"))
	ev = addTexts(ev, "config", v.File, "listen", s.ends.listen, "admin", s.ends.admin, "unix", s.ends.unix)
	if s.ends.stdio {
		ev = ev.Bool("stdio", true)
	}
	ev.Msg("starting")
}

// addTexts adds fields, given as names and values, without those that are empty.
func addTexts(ev *zerolog.Event, fields ...string) *zerolog.Event {
	for i := 0; i < len(fields); i += 2 {
		if fields[i+1] != "" {
			ev = ev.Str(fields[i], fields[i+1])
		}
	}
	return ev
}

// addList adds a field with texts, unless there are none.
func addList(ev *zerolog.Event, name string, list []string) *zerolog.Event {
	if len(list) > 0 {
		ev = ev.Strs(name, list)
	}
	return ev
}

// logReady logs that the server accepts connections. began is when its start began.
func (s *server) logReady(began time.Time) {
	ev := addTexts(s.log.Info(), "url", s.clientURL(), "admin", s.adminURL())
	ev.Int("tools", s.tools.count()).Dur("duration_ms", time.Since(began)).Msg("ready")
}

// logStopping logs why the server stops, for which jobs it waits, and how long.
func (s *server) logStopping(reason string) {
	list, n := s.rt.Load().ListActiveJobs(maxDrainJobs)
	ev := s.log.Info().Str("reason", reason).Int("jobs", n)
	if n > 0 {
		ev = ev.Strs("waits_for", jobsInTheWay(list, n))
	}
	ev.Dur("drain_ms", s.values.Duration("drain")).Msg("stopping")
}

func setLogLevel(v *settings.Values) {
	level, err := zerolog.ParseLevel(v.Text("log-level"))
	if err != nil { // impossible: the settings allow only levels of zerolog
		level = zerolog.InfoLevel
	}
	zerolog.SetGlobalLevel(level)
}

// httpLog logs messages of net/http, which are about peers, with the level debug.
func httpLog(l zerolog.Logger) *log.Logger {
	return log.New(debugWriter{l}, "", 0)
}

type debugWriter struct{ log zerolog.Logger }

func (w debugWriter) Write(line []byte) (int, error) {
	w.log.Debug().Str("component", "http").Msg(string(trimNewline(line)))
	return len(line), nil
}

func trimNewline(line []byte) []byte {
	if n := len(line); n > 0 && line[n-1] == '\n' {
		return line[:n-1]
	}
	return line
}

// isTerminal reports whether w is a terminal.
func isTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// terminalWidth returns the number of characters of a line of a terminal; 0: unknown.
func terminalWidth(w any) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil { // not a terminal
		return 0
	}
	return width
}

// noColor reports whether colours are disabled (no-color.org).
func noColor() bool { return os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" }

// redraws reports whether w is a terminal that can redraw its last line.
func redraws(w any) bool { return isTerminal(w) && os.Getenv("TERM") != "dumb" }
