package settings

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/arcpd/arcpd/arcp"
	"github.com/arcpd/arcpd/auth"
)

// Source is the source of a value.
type Source string

// The sources in the order of their precedence.
const (
	FromFlag    Source = "flag"
	FromEnv     Source = "environment"
	FromFile    Source = "file"
	FromDefault Source = "default"
)

// Value is the effective value of one setting.
type Value struct {
	*Setting
	Source   Source
	variable string // name of the variable of FromEnv
	raw      any    // value before parsing
	value    any
}

// Format writes the name and the source, but not the value, which may be secret.
func (v Value) Format(f fmt.State, _ rune) {
	_, _ = fmt.Fprintf(f, "%s from %s", v.Name, v.Source) // the caller of a Formatter receives no error
}

// Values holds the effective values of all settings, in the order of Table. It is immutable.
type Values struct {
	File     string   // path of the configuration file; empty: no file
	Warnings []string // about unknown variables
	entries  []Value
	doc      *document // nil: no file
}

// Format writes the output of AppendYAML.
func (v *Values) Format(f fmt.State, _ rune) {
	_, _ = f.Write(v.AppendYAML(nil)) // the caller of a Formatter receives no error
}

func (v *Values) get(name string) Value {
	for _, e := range v.entries {
		if e.Name == name {
			return e
		}
	}
	panic("settings: no setting " + name)
}

// Text returns the value of a Text setting.
func (v *Values) Text(name string) string { return v.get(name).value.(string) }

// On returns the value of a Switch.
func (v *Values) On(name string) bool { return v.get(name).value.(bool) }

// Number returns the value of a Number.
func (v *Values) Number(name string) int { return v.get(name).value.(int) }

// Duration returns the value of a Duration.
func (v *Values) Duration(name string) time.Duration { return v.get(name).value.(time.Duration) }

// Size returns the value of a Size.
func (v *Values) Size(name string) int64 { return v.get(name).value.(int64) }

// List returns the value of a List that is not secret.
func (v *Values) List(name string) []string { return v.get(name).value.([]string) }

// Secret returns the value of a secret Text.
func (v *Values) Secret(name string) auth.Secret { return v.get(name).value.(auth.Secret) }

// Secrets returns the value of a secret List.
func (v *Values) Secrets(name string) []auth.Secret { return v.get(name).value.([]auth.Secret) }

// Block returns the decoded value of a Block, or nil.
func (v *Values) Block(name string) any { return v.get(name).value }

// WithoutEffect lists the Later settings that a source sets.
func (v *Values) WithoutEffect() (names []string) {
	for _, s := range Table {
		if s.Later && v.IsSet(s.Name) {
			names = append(names, s.Name)
		}
	}
	return names
}

// IsSet reports whether a source other than the default sets a setting.
func (v *Values) IsSet(name string) bool { return v.get(name).Source != FromDefault }

// Where returns the source of a setting's value for messages, such as a flag or a file with its key.
func (v *Values) Where(name string) string { return v.where(v.get(name)) }

func (v *Values) where(e Value) string {
	switch e.Source {
	case FromEnv:
		return e.variable
	case FromFile:
		line, column := v.doc.position(Position{Path: []string{e.Name}})
		return fmt.Sprintf("%s:%d:%d: %s", v.File, line, column, e.Name)
	}
	return "--" + e.Name
}

// originText returns the source of a value for an error message, with the unparsed value unless it is secret.
func (v *Values) originText(e Value) string {
	where := v.where(e)
	if e.Secret || e.Kind == Block || e.Kind == Switch {
		return where
	}
	return fmt.Sprint(where, " ", e.raw)
}

// Changed lists the settings that differ between v and next: those that SIGHUP applies, and those that need a
// restart.
func (v *Values) Changed(next *Values) (reloaded, restart []string) {
	for i, e := range v.entries {
		if reflect.DeepEqual(e.value, next.entries[i].value) {
			continue
		}
		if e.Reload {
			reloaded = append(reloaded, e.Name)
		} else {
			restart = append(restart, e.Name)
		}
	}
	return reloaded, restart
}

// masked returns the value for printing. Secrets are masked, except for the NAME of NAME=TOKEN.
func (v Value) masked() any {
	switch value := v.value.(type) {
	case auth.Secret:
		if value == "" {
			return ""
		}
		return value.String()
	case []auth.Secret:
		masked := make([]string, len(value))
		for i, secret := range value {
			masked[i] = mask(secret)
		}
		return masked
	case time.Duration, int64:
		return fmt.Sprint(v.raw)
	}
	return v.value
}

// mask returns a masked secret, with the NAME of NAME=TOKEN. A token without a name may end in "=".
func mask(secret auth.Secret) string {
	name, token, ok := strings.Cut(secret.Reveal(), "=")
	if ok && strings.Trim(token, "=") != "" {
		return name + "=" + secret.String()
	}
	return secret.String()
}

// With returns a copy of v with the file of next and the values of next for the settings in names.
func (v *Values) With(next *Values, names []string) *Values {
	merged := *next
	merged.entries = slices.Clone(v.entries)
	for i, e := range next.entries {
		if slices.Contains(names, e.Name) {
			merged.entries[i] = e
		}
	}
	return &merged
}

// AppendYAML appends the values as a configuration file, with the source of each value in a comment.
func (v *Values) AppendYAML(dst []byte) []byte {
	for _, e := range v.entries {
		if e.Later {
			continue
		}
		line := e.Name + ": " + yamlText(e.masked())
		dst = fmt.Appendf(dst, "%-44s # %s\n", line, v.origin(e))
	}
	return dst
}

func (v *Values) origin(e Value) string {
	switch e.Source {
	case FromEnv:
		return "environment " + e.variable
	case FromFile:
		return "file " + v.File
	case FromFlag:
		return "flag --" + e.Name
	}
	return string(FromDefault)
}

func yamlText(shown any) string {
	switch shown := shown.(type) {
	case string:
		if plain(shown) {
			return shown
		}
		return string(arcp.AppendString(nil, shown))
	case []string:
		quoted := make([]string, len(shown))
		for i, s := range shown {
			quoted[i] = string(arcp.AppendString(nil, s))
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	case []any: // a Block; JSON is valid YAML
		if raw, err := arcp.Marshal(shown); err == nil {
			return string(raw)
		}
	}
	return fmt.Sprint(shown)
}

// plain reports whether YAML reads the text as a string without quotes.
func plain(s string) bool {
	if s == "" || strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/-_.") != "" {
		return false
	}
	switch strings.ToLower(s) {
	case "true", "false", "yes", "no", "on", "off", "null", "y", "n":
		return false
	}
	_, err := strconv.ParseFloat(s, 64)
	return err != nil && strings.Trim(s[:1], "-.") != ""
}

// AppendJSON appends the values as a JSON object: name → {value, source}.
func (v *Values) AppendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	first := true
	for _, e := range v.entries {
		if e.Later {
			continue
		}
		if !first {
			dst = append(dst, ',')
		}
		first = false
		dst = append(arcp.AppendString(append(dst, "\n  "...), e.Name), `: {"value": `...)
		dst = append(e.appendValue(dst), `, "source": `...)
		dst = append(arcp.AppendString(dst, v.origin(e)), '}')
	}
	return append(dst, "\n}\n"...)
}

func (v Value) appendValue(dst []byte) []byte {
	shown := v.masked()
	if list, ok := shown.([]string); ok && list == nil {
		shown = []string{}
	}
	out, err := arcp.AppendJSON(dst, shown)
	if err != nil { // values of every kind can be encoded
		return arcp.AppendString(dst, fmt.Sprint(shown))
	}
	return out
}

// CountSet returns the number of settings that a source other than the default sets.
func (v *Values) CountSet() (n int) {
	for _, e := range v.entries {
		if e.Source != FromDefault {
			n++
		}
	}
	return n
}
