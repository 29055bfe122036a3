package main

import (
	"io"
	"log"
	"os"
	"time"

	"github.com/rs/zerolog"
	"golang.org/x/term"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

// newLog returns the log of the server. Its level is global, so a reload can change it.
func newLog(w io.Writer, v *settings.Values) zerolog.Logger {
	setLogLevel(v)
	if v.Text("log-format") == "console" {
		w = zerolog.ConsoleWriter{Out: w, NoColor: !isTerminal(w) || noColor(), TimeFormat: time.TimeOnly}
	}
	return zerolog.New(w).With().Timestamp().Logger()
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
