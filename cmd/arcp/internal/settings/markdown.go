package settings

import "fmt"

// documentHead and documentTail are the text of docs/configuration.md around the table.
const (
	documentHead = `# Configuration

Each setting is a flag of ` + "`arcp serve` and `arcp dev`" + `, a key of the configuration file, and an
environment variable. The order of precedence is: flag, variable, file, default.

| command | |
|---|---|
| ` + "`arcp config init [FILE]`" + ` | writes a configuration file with every setting as a comment |
| ` + "`arcp config check [FILE]`" + ` | prints every mistake with file, line and column; exit code 2 if there is one |
| ` + "`arcp config print`" + ` | prints the values in effect and their sources; secrets are masked |

` + "`--config` or `ARCP_CONFIG`" + ` names the configuration file. Otherwise it is the first of these:

1. ` + "`./arcp.yaml`" + `
2. ` + "`arcp/arcp.yaml`" + ` in the configuration directory of the user, such as ` + "`~/.config`" + `
3. ` + "`/etc/arcp/arcp.yaml`" + `

## Reload

SIGHUP reads the file and the files that it names again. ` + "`arcp dev`" + ` does so by itself when the
configuration file changes.

- The settings that are marked below take effect. A warning names others that have changed.
- A file with a mistake changes nothing. Each mistake is logged with its line.
- The log names the settings and tools that have changed, and says whether the auth file and the
  certificate have.

[configuration-tools.md](configuration-tools.md#reload) says how tools change.

## Settings

The variable ` + "`ARCP_TOKEN`" + ` has the token of client commands. A server reads it only if there is no
` + "`ARCP_SERVER_TOKEN`" + ` and the value has the form NAME=TOKEN, as earlier versions had it.

A duration is ` + "`90s`, `10m` or `7d`, a size `64KiB`, `8MiB` or a number of bytes" + `. A list is
repeated as a flag, and has commas in a variable. A block is only in the file.

`
	documentTail = `[configuration-tools.md](configuration-tools.md) has the keys of ` + "`tools`" + `, and
[workflows.md](workflows.md) those of ` + "`workflows`" + `.
`
)

// AppendDocument appends docs/configuration.md.
func AppendDocument(dst []byte) []byte {
	dst = append(dst, documentHead...)
	for i := range Sections {
		dst = fmt.Appendf(dst, "### %s\n\n", Sections[i].Title)
		dst = append(appendTable(dst, Sections[i].Settings), '\n')
	}
	return append(dst, documentTail...)
}

// appendTable appends the table of settings.
func appendTable(dst []byte, list []Setting) []byte {
	dst = append(dst, "| setting | environment | kind | default | reload | what it does |\n|---|---|---|---|---|---|\n"...)
	for i := range list {
		s := &list[i]
		if s.Later {
			continue
		}
		reload, env := "", code(s.Env())
		if s.Reload {
			reload = "SIGHUP"
		}
		if s.Kind == Block {
			env = ""
		}
		dst = fmt.Appendf(dst, "| `%s` | %s | %s | %s | %s | %s |\n", s.Name, env, s.Kind, code(s.Default), reload, s.Help)
	}
	return dst
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}
