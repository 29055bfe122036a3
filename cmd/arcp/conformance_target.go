package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
	"github.com/arcpd/arcpd/conformance"
)

// conformanceSubject holds the flags of `arcp conformance run` that describe a server that is not arcpd.
type conformanceSubject struct {
	flags *pflag.FlagSet // of the command

	file string // value of --mapping
	exec string // value of --exec

	mapping *conformance.Mapping // content of file; nil: none
	command []string             // words of exec; nil: none
}

func (s *conformanceSubject) add(cmd *cobra.Command) {
	s.flags = cmd.Flags()
	s.flags.StringVar(&s.file, "mapping", "",
		"YAML `FILE` that describes the server: names of its tools, tokens, commands that start it, checks that it is known to fail")
	s.flags.StringVar(&s.exec, "exec", "",
		"`COMMAND` that starts a server, with one connection: its standard input and output, a frame on each line")
}

// resolve reads the mapping file and the command, and resolves the target of the command.
func (s *conformanceSubject) resolve(a *app, t *target) (err error) {
	if t.token != "" {
		t.tokenFrom = "the token is the one of --token: give a token of this server"
	}
	if s.file != "" {
		if s.mapping, err = conformance.ReadMapping(s.file, a.env); err != nil {
			if list, ok := err.(interface{ Unwrap() []error }); ok {
				err = settings.Join(list.Unwrap()...) // a line for each mistake
			}
			return &exitError{exitUsage, err}
		}
		t.url = cmp.Or(t.url, s.mapping.URL)
		if t.token == "" && s.mapping.Token != "" {
			t.token, t.tokenFrom = s.mapping.Token, fmt.Sprintf("the token is the one of `token` in %s: give a token of this server there, or --token", s.file)
		}
	}
	if s.exec == "" {
		err = t.resolve(a)
		t.tokenOfVariable(a) // also for a unix socket: another server may not identify the user
		return err
	}
	switch {
	case s.flags.Changed("url"), s.flags.Changed("context"), s.mapping != nil && s.mapping.URL != "":
		return usagef("--exec starts the server itself: leave --url, --context and `url` of the mapping file out")
	case s.mapping != nil && s.mapping.Start != nil:
		return usagef("--exec and `start` of the mapping file both start a server: give one of them")
	}
	if s.command, err = splitWords(s.exec); err != nil {
		return usagef("--exec: %w", err)
	}
	token := cmp.Or(t.token, a.env("ARCP_TOKEN")) // the token file of a running arcp dev is not read
	t.url = defaultURL                            // is not used
	err = t.resolve(a)
	t.url, t.token = "", token
	return err
}

// configure fills the target from the command and from the mapping file; the flags take precedence.
func (s *conformanceSubject) configure(tg *conformance.Target) {
	tg.Exec = s.command
	if s.mapping != nil {
		s.mapping.Configure(tg)
	}
}

// start starts the server if the mapping file says how. Call stop after an error too.
func (s *conformanceSubject) start(ctx context.Context, tg *conformance.Target) (stop func(), err error) {
	if s.mapping == nil {
		return func() {}, nil
	}
	stop, err = s.mapping.Serve(ctx, tg)
	if err != nil {
		err = &exitError{exitUnreachable, err}
	}
	return stop, err
}

// splitWords splits a command line at white space. Quotes and backslashes have their usual meaning; nothing else
// has one.
func splitWords(line string) (words []string, err error) {
	var word strings.Builder
	var quote rune
	within, escaped := false, false
	for _, c := range line {
		switch {
		case escaped:
			word.WriteRune(c)
			escaped = false
		case c == '\\' && quote != '\'':
			escaped, within = true, true
		case quote != 0 && c == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(c)
		case c == '\'' || c == '"':
			quote, within = c, true
		case strings.ContainsRune(" \t\n", c):
			if within {
				words = append(words, word.String())
			}
			word.Reset()
			within = false
		default:
			word.WriteRune(c)
			within = true
		}
	}
	if within {
		words = append(words, word.String())
	}
	switch {
	case quote != 0 || escaped:
		return nil, errors.New("a quote or a backslash at the end is not complete")
	case len(words) == 0 || words[0] == "":
		return nil, errors.New("the command has no program")
	}
	return words, nil
}

// mappingSample is a mapping file with every key.
const mappingSample = `# Names of the tools on the server, by their names in the checks. A skipped check
# says what its tool does. A name with a version, demo.echo@1.0.0, stands for itself.
tools:
  demo.echo: their.echo
  demo.sleep: their.slow

# The server. --url, --token, --principal, --other-token, --observer-token,
# --frame-limit and --ack-window take precedence.
url: ws://127.0.0.1:7000/arcp
principal: alice
token: {env: THEIR_TOKEN}
other_token: {file: other.token}
observer_token: {file: observer.token}
frame_limit: 1048576
ack_window: 64

# The command that serves until it is ended. It runs in the directory of this file.
start: [their-server, --port, "7000"]

# The command that ends the server and starts it again with the same data, or the
# word start: the server is killed, and ` + "`start`" + ` runs again.
restart: start

# Checks that the server is known to fail. They do not fail the run.
known:
  - {check: jobs.life, reason: job.started comes late in version 1.2}
`

// newConformanceMapping is a topic of the help.
func newConformanceMapping() *cobra.Command {
	return &cobra.Command{Use: "mapping", Short: "The file of --mapping",
		Long: "The file of `arcp conformance run --mapping FILE` is in YAML. Every key can be left out:\n\n  " +
			strings.ReplaceAll(strings.ReplaceAll(strings.TrimSpace(mappingSample), "\n", "\n  "), "\n  \n", "\n\n")}
}
