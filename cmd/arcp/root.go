package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

func newRoot(a *app) *cobra.Command {
	root := &cobra.Command{
		Use:   "arcp",
		Short: "An ARCP runtime and client",
		Long: "arcp runs tools as durable jobs for clients that speak ARCP over a WebSocket,\n" +
			"and is a client itself. Start with `arcp dev`, or watch `arcp demo`.",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return onlyCommands(cmd, args)
			}
			return cmd.Help()
		},
	}
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.stderr)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error { return flagError(cmd, a.args, err) })
	for i := range commandGroups {
		root.AddGroup(&commandGroups[i])
	}
	addGroup(root, "run", newDev(a), newServe(a), newDemo(a), newMCP(a), newConfig(a))
	addGroup(root, "work", newInvoke(a), newJobs(a), newWorkflow(a), newSchedule(a), newArtifacts(a), newTail(a), newTop(a))
	addGroup(root, "answer", newApprovals(a), newInput(a))
	addGroup(root, "look", newTools(a), newWorkers(a), newAgents(a), newSessions(a), newResources(a), newContext(a))
	addGroup(root, "operate", newDoctor(a), newBackup(a), newToken(a), newConformance(a), newBench(a))
	root.AddCommand(newVersion(a), newExitCodes(), newOutput(), newEnvironment())
	refuseUnknownHelp(root, &a.helpErr)
	setUsage(root)
	root.Version = thisBuild().String()
	root.SetVersionTemplate("{{.Version}}\n")
	return root
}

// action returns the RunE of a command. It adds the exit code to an error.
func action(do func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error { return withExitCode(do(cmd, args)) }
}

// flagError adds a suggestion to the error of an unknown flag. If the subcommand does not exist, the error
// names the subcommand instead.
func flagError(cmd *cobra.Command, args []string, err error) error {
	path := strings.Fields(cmd.CommandPath())
	if rest := args[min(len(path)-1, len(args)):]; len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
		if err := unknownCommand(cmd, rest[:1]); err != nil {
			return err
		}
	}
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		flag := invalid.GetFlag()
		return usagef("--%s: %q %s", flag.Name, invalid.GetValue(), wantedValue(flag.Value.Type(), invalid.Unwrap()))
	}
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "unknown flag: --"); ok {
		if near := nearestFlag(cmd.Flags(), name); near != "" {
			return usagef("unknown flag --%s; did you mean --%s?", name, near)
		}
	}
	return usagef("%s; `%s --help` lists the flags", text, cmd.CommandPath())
}

// wantedValue says why a flag of a type refuses a value, and which values it has. err is of the parser.
func wantedValue(kind string, err error) string {
	switch {
	case errors.Is(err, strconv.ErrRange):
		return "is too large or too small"
	case kind == "duration":
		return "is not a duration such as 90s, 10m or 7d"
	case strings.HasPrefix(kind, "uint"):
		return "is not a whole number of 0 or more"
	case strings.HasPrefix(kind, "int"):
		return "is not a whole number"
	case kind == "bool":
		return "is not true or false"
	}
	return "is refused: " + err.Error()
}

func nearestFlag(flags *pflag.FlagSet, name string) string {
	var names []string
	flags.VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return settings.Nearest(name, names)
}

// groupAnnotation marks a command that only has subcommands.
const groupAnnotation = "group"

// newGroup returns a command that only has subcommands.
func newGroup(name, short string) *cobra.Command {
	return &cobra.Command{Use: name, Short: short, Args: cobra.ArbitraryArgs, RunE: onlyCommands,
		Annotations: map[string]string{groupAnnotation: name}}
}

// isGroup reports whether a command only has subcommands.
func isGroup(cmd *cobra.Command) bool {
	return cmd.Annotations[groupAnnotation] != "" || !cmd.HasParent()
}

// onlyCommands is the RunE of a command that only has subcommands.
func onlyCommands(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usagef("%s needs a subcommand: %s", cmd.CommandPath(), strings.Join(commandNames(cmd), ", "))
	}
	names := commandNames(cmd)
	if near := settings.Nearest(args[0], names); near != "" {
		return usagef("unknown command %q; did you mean %s %s?", args[0], cmd.CommandPath(), near)
	}
	return usagef("unknown command %q; the subcommands of %s are %s", args[0], cmd.CommandPath(), strings.Join(names, ", "))
}

// noArgs refuses arguments.
func noArgs(cmd *cobra.Command, args []string) error { return argsBetween(0, 0)(cmd, args) }

// argsBetween checks the number of arguments.
func argsBetween(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usagef("wrong number of arguments (%d); usage: `%s`", len(args), cmd.UseLine())
		}
		return nil
	}
}

func commandNames(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return names
}

// oneOf refuses a flag value outside of the choices.
func oneOf(flag, value string, choices ...string) error {
	if slices.Contains(choices, value) {
		return nil
	}
	return fmt.Errorf("--%s: %q is not one of %s", flag, value, strings.Join(choices, ", "))
}
