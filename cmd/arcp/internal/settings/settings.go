// Package settings defines the settings of the server in one table of sections. The flags, the ARCP_ environment
// variables, the keys of arcp.yaml and the output of `arcp config print` follow from the table.
//
// The effective value comes from the first of these sources: flag, environment, file, default. Only
// the effective value is parsed. Secrets have the type auth.Secret, and no error contains a secret.
package settings

import (
	"strconv"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp/draft"
	"github.com/arcpd/arcpd/auth"
	"github.com/arcpd/arcpd/runtime"
)

// Kind is the type of a setting's value.
type Kind uint8

// The kinds.
const (
	Text     Kind = iota
	Switch        // true or false
	Number        // a count, 0 or more
	Duration      // 600s, 10m; 0 is off
	Size          // bytes: 8MiB, 64KiB, 1000; 0 is off
	List          // repeatable; a list in a file, separated by commas in the environment
	Block         // structured, in a file only
)

// String returns the name of the kind in the help of flags.
func (k Kind) String() string {
	return [...]string{"text", "switch", "number", "duration", "size", "list", "block"}[k]
}

// Setting is a row of the table.
type Setting struct {
	Name    string // of the flag and the key; Env returns the name of the variable
	Kind    Kind
	Default string
	Help    string   // one line
	Choices []string // values of a Text; nil: any text
	Secret  bool     // never printed
	Reload  bool     // SIGHUP applies a change

	// Variable is the name of the environment variable, if it does not follow from Name.
	Variable string
	// OldVariable is a former name of the variable, for a List of NAME=VALUE. Another value is not
	// of the setting: client commands read the same variable. Variable takes precedence.
	OldVariable string

	// Alias is the setting that this one is another name of, or "". The help and the template only
	// have that setting.
	Alias string

	// Later marks a setting of a future version. Only the values in Accept, which have no
	// effect, are valid. The setting has no help and is not printed.
	Later  bool
	Accept []string
}

// Env is the name of the setting's environment variable.
func (s *Setting) Env() string {
	if s.Variable != "" {
		return s.Variable
	}
	return EnvPrefix + strings.ToUpper(strings.ReplaceAll(s.Name, "-", "_"))
}

// EnvPrefix is the prefix of all environment variables.
const EnvPrefix = "ARCP_"

func later(name string, kind Kind, def string, accept ...string) Setting {
	return Setting{Name: name, Kind: kind, Default: def, Later: true, Accept: append(accept, def)}
}

func count(n int) string { return strconv.Itoa(n) }

func seconds(d time.Duration) string { return strconv.Itoa(int(d/time.Second)) + "s" }

// oneOf lists two or more choices in a sentence: a, b or c.
func oneOf(choices []string) string {
	last := len(choices) - 1
	return strings.Join(choices[:last], ", ") + " or " + choices[last]
}

// Section is a group of settings, for the help of flags, the documentation and the template.
type Section struct {
	Title    string
	Settings []Setting
}

// Sections lists the settings in the order of their output. It must not be changed.
var Sections = []Section{
	{"Listeners", []Setting{
		{Name: "listen", Default: "127.0.0.1:7777", Help: `address of the WebSocket listener; port 0 picks one, "" opens none`},
		{Name: "path", Default: "/arcp", Help: "path of the WebSocket"},
		{Name: "admin", Default: "127.0.0.1:7778",
			Help: `address of the listener for metrics, health and pprof; "" serves metrics and health on the main listener`},
		{Name: "admin-remote", Kind: Switch, Default: "false",
			Help: "other machines may reach the admin listener, which has no authentication; profiles and backups stay for this machine"},
		{Name: "unix", Help: "path of a unix socket to serve as well"},
		{Name: "stdio", Kind: Switch, Default: "false", Help: "serve one session on stdin and stdout; the listeners open only if they are set"},
		{Name: "allow-host", Kind: List, Help: "`HOST` the server is known by, beside loopback names, or * for any; may be repeated"},
		{Name: "allow-origin", Kind: List, Help: "web `ORIGIN` whose pages may connect, beside the server's own, or * for any; may be repeated"},
		{Name: "behind-proxy", Kind: Switch, Default: "false", Help: "a proxy in front ends TLS and sets X-Forwarded-For"},
	}},
	{"Authentication and TLS", []Setting{
		{Name: "token", Kind: List, Secret: true, Reload: true, Variable: EnvPrefix + "SERVER_TOKEN", OldVariable: EnvPrefix + "TOKEN",
			Help: "`NAME=TOKEN`: a bearer token of principal NAME; may be repeated; other users of the machine can read a flag, so use the variable or auth-file for lasting tokens"},
		{Name: "auth-file", Reload: true, Help: "YAML file of principals and issuers"},
		{Name: "runtime-id", Default: auth.DefaultRuntimeID, Help: "name of this runtime, the audience of signed JWTs"},
		{Name: "tls-cert", Reload: true, Help: "PEM file with the server's certificate chain"},
		{Name: "tls-key", Reload: true, Help: "PEM file with the certificate's key"},
		later("tls-client-ca", Text, ""),
	}},
	{"Tools", []Setting{
		{Name: "demo", Kind: Switch, Default: "false", Help: "offer the demo tools"},
		{Name: "tools", Kind: Block, Reload: true, Help: "more tools: a list of commands, MCP servers and programs that speak ARCP"},
		{Name: "workflows", Kind: Block, Reload: true, Help: "tools that consist of calls of other tools: a list of name, steps and more"},
		{Name: "provisioners", Kind: Block, Help: "what gives jobs credentials of their own: a list of name, kind, for and more"},
	}},
	{"Sessions and jobs", []Setting{
		{Name: "session-lease", Kind: Duration, Default: seconds(runtime.DefaultSessionLease),
			Help: "a client that gives no sign of life for so long is evicted; its session can be resumed"},
		{Name: "resume-window", Kind: Duration, Default: seconds(runtime.DefaultResumeWindow),
			Help: "how long a session without a connection can be resumed"},
		{Name: "heartbeat", Kind: Duration, Default: seconds(runtime.DefaultHeartbeat),
			Help: "interval of heartbeats of peers and jobs; 0 is off"},
		{Name: "heartbeat-recovery", Default: "fail", Choices: []string{"fail", "block"},
			Help: "what two missed heartbeats do to a job: fail or block"},
		{Name: "ack-window", Kind: Number, Default: "0",
			Help: "events sent ahead of what a client that acknowledges has acknowledged; 0 is no limit"},
		{Name: "require-model-lease", Kind: Switch, Default: "false", Help: "jobs whose lease does not name models may use none"},
		{Name: "preempt-expired", Kind: Switch, Default: "false", Help: "a job ends as soon as its lease does, not at its next operation"},
		{Name: "start-timeout", Kind: Duration, Default: "0", Reload: true,
			Help: "a job that waits so long without a connected worker or server of its tool fails, unless the worker declares another time; 0 is never"},
		{Name: "draft-profile", Default: "universal", Choices: draft.ProfileNames(),
			Help: "client library of the draft dialect that a client is taken for if its first frame does not tell: " + oneOf(draft.ProfileNames())},
		{Name: "drain", Kind: Duration, Default: "30s", Help: "how long running jobs get when the server stops"},
	}},
	{"Limits", []Setting{
		{Name: "rate", Kind: Number, Default: "0", Reload: true, Help: "frames a minute a connection may send; 0 is no limit"},
		{Name: "max-frame", Kind: Size, Default: "8MiB", Help: "largest frame accepted"},
		{Name: "max-connections", Kind: Number, Default: count(runtime.DefaultMaxConnections), Reload: true,
			Help: "connections at once; 0 is no limit"},
		{Name: "max-sessions", Kind: Number, Default: count(runtime.DefaultMaxSessions), Reload: true, Help: "sessions at once; 0 is no limit"},
		{Name: "max-sessions-per-principal", Kind: Number, Default: "0", Reload: true,
			Help: "sessions of one principal at once; 0 is three quarters of max-sessions, or no limit if max-sessions is below 1,000 or only one principal can connect"},
		{Name: "max-jobs", Kind: Number, Default: count(runtime.DefaultMaxJobs), Reload: true, Help: "jobs not ended at once; 0 is no limit"},
		{Name: "max-jobs-per-principal", Kind: Number, Default: "0", Reload: true,
			Help: "jobs not ended of one principal; 0 is three quarters of max-jobs, or no limit if max-jobs is below 1,000 or only one principal can connect"},
		{Name: "max-jobs-per-session", Kind: Number, Default: count(runtime.DefaultMaxJobsPerSession), Reload: true,
			Help: "jobs not ended of one session; 0 is no limit"},
		{Name: "max-arguments", Kind: Size, Default: "0", Reload: true,
			Help: "arguments of jobs that have not ended, which are in memory; 0 is a quarter of the machine's memory, or of its cgroup's"},
	}},
	{"Storage", []Setting{
		{Name: "data", Default: "", Help: `directory that keeps sessions, jobs and events, by default one of this user; ":memory:" keeps nothing`},
		{Name: "new-identity", Kind: Switch, Default: "false",
			Help: "take over a data directory whose store is of another runtime, or whose runtime key is lost; for one start"},
		{Name: "store", Default: "pebble", Choices: []string{"pebble", "postgres"}, Later: true, Accept: []string{"pebble"}},
		{Name: "postgres", Secret: true, Later: true, Accept: []string{""}},
		{Name: "secret-key-file",
			Help: "file with the keys that seal secrets, each a line of 64 hexadecimal digits, the first for new ones; default one in the data directory"},
		{Name: "retention", Kind: Duration, Default: seconds(runtime.DefaultRetention),
			Help: "how long finished jobs and their events are kept; 0 is for ever"},
		{Name: "max-data", Kind: Size, Default: "0",
			Help: "size of the stored data, of which artifacts may have half; above nine tenths of it the oldest finished jobs go early, and at it no jobs are accepted; " +
				"0 is a quarter of the memory of the machine or its cgroup for :memory:, and no limit for a directory"},
		{Name: "max-disk", Kind: Size, Default: "0", Alias: "max-data", Help: "another name of max-data"},
		{Name: "min-free", Kind: Size, Default: "512MiB", Help: "free disk space below which no jobs are accepted, and below half of it no sessions; 0 is off"},
		{Name: "replay-events", Kind: Number, Default: count(runtime.DefaultReplayEvents),
			Help: "events kept for replay to a session that never acknowledges; 0 is no limit"},
		{Name: "replay-bytes", Kind: Size, Default: "64MiB", Help: "and their bytes; 0 is no limit"},
		{Name: "backlog-bytes", Kind: Size, Default: "1GiB", Help: "events a session may leave behind before the oldest go; 0 is no limit"},
		{Name: "commit-delay", Kind: Duration, Default: "0",
			Help: "how long a commit waits for more writes under load, at most 150us; 0 is not at all"},
	}},
	{"Artifacts", []Setting{
		{Name: "max-artifact", Kind: Size, Default: "1GiB", Reload: true, Help: "content of an artifact; 0 is no limit"},
		{Name: "max-artifact-per-principal", Kind: Size, Default: "10GiB", Reload: true,
			Help: "content of the artifacts of one principal, each at least 4 KiB; 0 is no limit"},
		{Name: "artifact-url",
			Help: "`URL` under which clients reach the main listener for downloads of artifacts over 4 MiB, such as https://arcp.example/artifacts; default: no downloads"},
		{Name: "artifact-bucket",
			Help: "`BUCKET` or BUCKET/PREFIX of S3-compatible storage for the content of artifacts; default files in the data directory"},
		{Name: "artifact-endpoint", Default: "https://s3.amazonaws.com", Help: "URL of the storage of artifact-bucket"},
		{Name: "artifact-region", Help: "region of artifact-bucket; default: the storage is asked for it"},
		{Name: "artifact-access-key", Help: "access key for artifact-bucket; default the credentials of AWS in the environment, ~/.aws/credentials or the machine"},
		{Name: "artifact-secret-key", Secret: true, Help: "`env:NAME` or file:PATH, where the secret key for artifact-bucket is"},
	}},
	{"Logs", []Setting{
		{Name: "log-level", Default: "info", Choices: []string{"debug", "info", "warn", "error"}, Reload: true,
			Help: "least severe level that is logged: debug, info, warn or error"},
		{Name: "log-format", Default: "json", Choices: []string{"json", "console"}, Help: "json or console"},
		{Name: "log-tool-errors", Kind: Switch, Default: "false",
			Help: "log the texts of errors and panics of tools, which may repeat arguments and results"},
		later("otlp-endpoint", Text, ""),
	}},
}

// Table lists the settings of all sections. It must not be changed.
var Table = flatten(Sections)

func flatten(sections []Section) (all []Setting) {
	for i := range sections {
		all = append(all, sections[i].Settings...)
	}
	return all
}

// Lookup returns the setting with a name, or nil.
func Lookup(name string) *Setting {
	for i := range Table {
		if Table[i].Name == name {
			return &Table[i]
		}
	}
	return nil
}

// byEnv returns the setting of a variable with a value, or nil.
func byEnv(name, value string) *Setting {
	for i := range Table {
		s := &Table[i]
		if s.Env() == name || s.OldVariable == name && strings.Contains(value, "=") {
			return s
		}
	}
	return nil
}
