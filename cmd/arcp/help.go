package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

// commandGroups are the groups of commands in the help, in their order.
var commandGroups = []cobra.Group{
	{ID: "run", Title: "Run a runtime:"},
	{ID: "work", Title: "Work with jobs:"},
	{ID: "answer", Title: "Answer jobs:"},
	{ID: "look", Title: "Look at a runtime:"},
	{ID: "operate", Title: "Operate and test a runtime:"},
}

// addGroup adds commands to a group.
func addGroup(root *cobra.Command, id string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = id
	}
	root.AddCommand(commands...)
}

// addTemplateFuncs adds the functions of templates, which cobra has in one map for all commands of the process.
var addTemplateFuncs = sync.OnceFunc(func() { cobra.AddTemplateFunc("flagUsages", flagUsages) })

// setUsage changes the template of cobra: a command that only has subcommands has no usage line of its own, and flags
// are grouped.
func setUsage(root *cobra.Command) {
	addTemplateFuncs()
	root.SetUsageTemplate(strings.NewReplacer(
		"{{if .Runnable}}", `{{if and .Runnable (not (index .Annotations "`+groupAnnotation+`"))}}`,
		"{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}", "{{flagUsages .LocalFlags}}",
	).Replace(root.UsageTemplate()))
}

// flagUsages returns the help of flags: first of those without a section, and then section by section, with titles.
func flagUsages(all *pflag.FlagSet) string {
	sections := make(map[string]*pflag.FlagSet)
	var titles []string // "" is the title of the flags without a section
	all.VisitAll(func(f *pflag.Flag) {
		title := ""
		if section := f.Annotations[settings.SectionAnnotation]; len(section) > 0 {
			title = section[0]
		}
		if sections[title] == nil {
			sections[title] = new(pflag.FlagSet)
			sections[title].SortFlags = all.SortFlags
			titles = append(titles, title)
		}
		sections[title].AddFlag(f)
	})
	slices.SortStableFunc(titles, func(a, b string) int { return cmp.Compare(min(len(a), 1), min(len(b), 1)) })
	var b strings.Builder
	for _, title := range titles {
		if title != "" {
			fmt.Fprintf(&b, "\n%s:\n", title)
		}
		b.WriteString(sections[title].FlagUsages())
	}
	return strings.TrimRight(b.String(), "\n")
}

// refuseUnknownHelp has root refuse the help of a command that does not exist. Cobra prints the help of its parent.
// The refusal of --help is stored in refusal.
func refuseUnknownHelp(root *cobra.Command, refusal *error) {
	print := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		if *refusal = unknownCommand(cmd, cmd.Flags().Args()); *refusal == nil {
			print(cmd, args)
		}
	})
	root.InitDefaultHelpCmd()
	help, _, _ := root.Find([]string{"help"}) // it was added by the line above
	printTopic := help.Run
	help.RunE = func(cmd *cobra.Command, args []string) error {
		parent, rest, err := root.Find(args)
		if err = cmp.Or(err, unknownCommand(parent, rest)); err == nil {
			printTopic(cmd, args)
		}
		return err
	}
}

// unknownCommand refuses arguments of a command that takes none but subcommands.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 || !cmd.HasAvailableSubCommands() || !isGroup(cmd) && cmd.ValidateArgs(args) == nil {
		return nil
	}
	return onlyCommands(cmd, args)
}

// helpWidth is the largest width of a line of the help, but for flags.
const helpWidth = 100

// wrapped breaks a text into lines of at most helpWidth.
func wrapped(text string) string {
	var b strings.Builder
	width := 0
	for i, word := range strings.Fields(text) {
		switch {
		case width+1+len(word) > helpWidth:
			b.WriteByte('\n')
			width = 0
		case i > 0:
			b.WriteByte(' ')
			width++
		}
		b.WriteString(word)
		width += len(word)
	}
	return b.String()
}

// exitMeanings are the meanings of the exit codes.
var exitMeanings = []struct {
	code    int
	meaning string
}{
	{exitOK, "success"},
	{exitFailed, "the job or the command failed"},
	{exitUsage, "wrong usage or configuration"},
	{exitAuth, "not authenticated: no token, or one that the runtime does not know"},
	{exitDenied, "denied"},
	{exitTimeout, "timed out"},
	{exitCancelled, "the job was cancelled"},
	{exitUnreachable, "the runtime cannot be reached"},
	{exitInterrupted, "interrupted"},
}

// newExitCodes is a topic of the help.
func newExitCodes() *cobra.Command {
	lines := []string{"Exit codes of arcp:", ""}
	for _, m := range exitMeanings {
		lines = append(lines, fmt.Sprintf("  %3d  %s", m.code, m.meaning))
	}
	lines = append(lines, "", "Most errors in the arguments or flags are text also with -o json: `arcp help output`.")
	return &cobra.Command{Use: "exit-codes", Short: "Exit codes of arcp", Long: strings.Join(lines, "\n")}
}

// newOutput is a topic of the help.
func newOutput() *cobra.Command {
	return &cobra.Command{Use: "output", Short: "Formats of -o, and what goes to standard error", Long: `Formats of -o:

  text   for people
  json   one document on one line; a list is {"items":[…]}, with next_cursor if more rows follow
  jsonl  an item of a list on each line
  yaml   the document of json as YAML; each event of ` + "`arcp tail`" + ` is a document of its own
  name   the identifier of each item, one on each line

Data goes to standard output. Events of a job that a command waits for, lost connections and errors
go to standard error. With json, jsonl and yaml these are JSON lines. Hints and warnings stay text.

An error in the arguments or flags is text with every format if it is found before -o is read, as
most are. Its exit code is 2, see ` + "`arcp help exit-codes`." + `

An error as JSON is {"error":{"exit":N,"message":TEXT}} with the exit code. An error of the runtime
also has its code, and, if known, retryable, details and job_id.`}
}

// newEnvironment is a topic of the help.
func newEnvironment() *cobra.Command {
	return &cobra.Command{Use: "environment", Short: "Environment variables that arcp reads", Long: `Environment variables of the commands that connect to a runtime:

  ARCP_CONTEXT   context with the URL and the token, as --context
  ARCP_URL       URL of the runtime, as --url
  ARCP_TOKEN     bearer token, as --token: the token alone, without a name
  ARCP_DIALECT   dialect that the command speaks, as --dialect
  ARCP_CA_FILE   file with certificates of authorities that are trusted for wss://, as --ca-file
  SSL_CERT_FILE  the same file, in place of the certificates of the system; not on macOS and Windows

Environment variables of ` + "`arcp serve` and `arcp dev`" + `:

  ARCP_CONFIG        configuration file, as --config
  ARCP_SERVER_TOKEN  tokens that the server accepts: NAME=TOKEN,…, as --token. An ARCP_TOKEN
                     with a = in it is read in the same way if ARCP_SERVER_TOKEN is not set;
                     that was its name in earlier versions.
  ARCP_SETTING       value of another setting: the name of its flag in upper case, with _ for -,
                     for example ARCP_MAX_FRAME for --max-frame. A flag takes precedence over
                     the variable, and the variable over the configuration file.
                     ` + "`arcp config print`" + ` shows each setting and its source.
  OTEL_…             export of spans with OpenTelemetry, for example OTEL_EXPORTER_OTLP_ENDPOINT

Environment variables of output:

  NO_COLOR       no colours, if it is not empty
  TERM=dumb      no colours and no progress bars

A command of a tool gets ARCP_JOB_ID and others: docs/configuration-tools.md lists them.`}
}
