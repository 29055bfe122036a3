package settings

import (
	"fmt"
	"strings"
)

// templateHead explains the form of the template.
const templateHead = `## Configuration of arcp serve and arcp dev.
##
## Each line that begins with "# " is a setting with its default, or an example: remove the "# " to use it.
## Lines that begin with "##" are explanations. Flags and ARCP_ variables come before this file.
## arcp config check reports mistakes, arcp config print shows the values in effect.
## SIGHUP applies changes of the settings that are marked with it. arcp dev applies them by itself.
`

// examples are the values of Blocks in the template. They begin below the key.
var examples = map[string]string{
	"tools": `  # A command. It gets the arguments as JSON on standard input.
  - name: disk.free
    description: Free space of the file systems
    exec: [df, -h]
    output: text # json: it prints one JSON value
    side_effect: read
    limits: {timeout_ms: 60000, max_response_bytes: 1MiB, concurrency: 16}
    input_schema: {type: object, additionalProperties: false}
  # A command that another session with the role approver approves before each call.
  - name: mail.send
    exec: [./bin/send-mail]
    env: [HOME]
    side_effect: external_system
    approval: manual
  # A server of the Model Context Protocol that is started, with some of its tools.
  - mcp: {name: files, command: [./bin/files-mcp, --read-only]}
    prefix: files.
    allow: ["read_*", "list_*"]
  # A server of the Model Context Protocol that runs elsewhere.
  - mcp: {name: search, url: "https://mcp.example.org/mcp"}
    approval: none
  # A program that speaks ARCP as a worker on its standard streams.
  - worker: {name: text, command: [./bin/text-worker]}
    allow: ["text.*"]
`,
	"workflows": `  - name: disk.report
    steps:
      free: {tool: disk.free}
      send: {needs: [free], tool: mail.send, arguments: {text: "=steps.free.value"}}
`,
	"provisioners": `  - name: models
    kind: exec
    for: ["llm.*"]
    command: [/usr/local/bin/make-key]
`,
}

// columns bounds the lines of explanations in the template.
const columns = 100

// AppendTemplate appends a configuration file in which every setting is a comment. defaults replace the defaults of
// Sections.
func AppendTemplate(dst []byte, defaults map[string]string) []byte {
	dst = append(dst, templateHead...)
	for i := range Sections {
		dst = fmt.Appendf(dst, "\n## ---- %s ----\n", Sections[i].Title)
		for j := range Sections[i].Settings {
			if s := &Sections[i].Settings[j]; !s.Later && s.Alias == "" {
				dst = s.appendTemplate(append(dst, '\n'), defaults)
			}
		}
	}
	return dst
}

// appendTemplate appends the setting with its explanation.
func (s *Setting) appendTemplate(dst []byte, defaults map[string]string) []byte {
	help := strings.ReplaceAll(s.Help, "`", "")
	if s.Reload {
		help += " (SIGHUP)"
	}
	dst = appendWrapped(dst, help)
	if s.Kind != Block {
		return fmt.Appendf(dst, "# %s: %s\n", s.Name, s.templateValue(defaults))
	}
	dst = fmt.Appendf(dst, "# %s:\n", s.Name)
	for line := range strings.Lines(examples[s.Name]) {
		dst = append(dst, "# "+line...)
	}
	return dst
}

// templateValue returns the default as YAML.
func (s *Setting) templateValue(defaults map[string]string) string {
	value := s.Default
	if other, ok := defaults[s.Name]; ok {
		value = other
	}
	switch s.Kind {
	case List:
		return "[]"
	case Text:
		return yamlText(value)
	}
	return value
}

// appendWrapped appends a text as lines of explanations.
func appendWrapped(dst []byte, text string) []byte {
	line := "##"
	for word := range strings.FieldsSeq(text) {
		if len(line)+1+len(word) > columns {
			dst = append(dst, line+"\n"...)
			line = "##"
		}
		line += " " + word
	}
	return append(dst, line+"\n"...)
}
