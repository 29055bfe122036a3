package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"

	"github.com/arcpd/arcpd/arcp"
)

// outputFormat is a value of -o.
type outputFormat string

// The formats. With json, jsonl and yaml, errors on standard error are JSON lines; hints stay text.
const (
	formatText  outputFormat = "text"
	formatJSON  outputFormat = "json"  // one document on one line
	formatJSONL outputFormat = "jsonl" // one item of a list on each line
	formatYAML  outputFormat = "yaml"
	formatName  outputFormat = "name" // the identifier of each item, one on each line
)

// outputFormats are the formats of commands whose data has identifiers.
var outputFormats = []outputFormat{formatText, formatJSON, formatJSONL, formatYAML, formatName}

// outputFlag is the flag -o of a command.
type outputFlag struct {
	value   string
	formats []outputFormat
}

// addOutput adds -o to a command.
func addOutput(cmd *cobra.Command, formats ...outputFormat) *outputFlag {
	o := &outputFlag{formats: formats}
	words := texts(formats)
	last := len(words) - 1
	cmd.Flags().StringVarP(&o.value, "output", "o", string(formatText), strings.Join(words[:last], ", ")+" or "+words[last]+"; see arcp help output")
	completeWords(cmd, "output", words...)
	return o
}

// addDocumentOutput adds -o to a command whose data has no identifiers.
func addDocumentOutput(cmd *cobra.Command) *outputFlag {
	return addOutput(cmd, formatText, formatJSON, formatJSONL, formatYAML)
}

// setOutput sets the format of the command line.
func (a *app) setOutput(o *outputFlag) error {
	if err := oneOf("output", o.value, texts(o.formats)...); err != nil {
		return &exitError{exitUsage, err}
	}
	a.format = outputFormat(o.value)
	a.json = a.format != formatText && a.format != formatName
	return nil
}

// printOutcome prints the result of a command: v as JSON or YAML, or words as text. The first word is
// the identifier.
func (a *app) printOutcome(v any, words ...any) error {
	return a.printView(words[0], v, func() error {
		_, err := fmt.Fprintln(a.stdout, words...)
		return err
	})
}

// printView prints one thing: its identifier, v as JSON or YAML, or what text prints.
func (a *app) printView(id, v any, text func() error) error {
	switch {
	case a.format == formatName:
		return printName(a.stdout, id)
	case a.json:
		return a.printJSON(v)
	}
	return text()
}

// printName prints an identifier.
func printName(w io.Writer, id any) error {
	_, err := fmt.Fprintln(w, oneLine(fmt.Sprint(id)))
	return err
}

// printJSON prints a value as JSON, or with -o yaml as YAML.
func (a *app) printJSON(v any) error {
	line, err := arcp.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	return a.printRaw(line)
}

// printRaw prints JSON as it is, or with -o yaml as YAML.
func (a *app) printRaw(raw []byte) (err error) {
	if a.format != formatYAML {
		_, err = fmt.Fprintf(a.stdout, "%s\n", raw)
		return err
	}
	text, err := yamlOf(raw)
	if err != nil {
		return fmt.Errorf("encode output: %w", err)
	}
	_, err = a.stdout.Write(text)
	return err
}

// printItem prints one value of a sequence without an end. With -o yaml it is a document of its own.
func printItem(a *app, raw []byte) error {
	if a.format == formatYAML {
		if _, err := io.WriteString(a.stdout, "---\n"); err != nil {
			return err
		}
	}
	return a.printRaw(raw)
}

// yamlOf converts a JSON text to YAML. The members of objects stay in their order.
func yamlOf(raw []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	n, err := yamlNode(d)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	e := yaml.NewEncoder(&b)
	e.SetIndent(2)
	if err := e.Encode(n); err != nil {
		return nil, err
	}
	return b.Bytes(), e.Close()
}

// yamlNode reads the next value.
func yamlNode(d *json.Decoder) (*yaml.Node, error) {
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case json.Delim:
		return yamlCollection(d, v)
	case json.Number:
		return &yaml.Node{Kind: yaml.ScalarNode, Value: v.String()}, nil
	}
	n := new(yaml.Node)
	return n, n.Encode(token)
}

// yamlCollection reads the rest of an object or an array.
func yamlCollection(d *json.Decoder, start json.Delim) (*yaml.Node, error) {
	n := &yaml.Node{Kind: yaml.SequenceNode}
	if start == '{' {
		n.Kind = yaml.MappingNode
	}
	for d.More() { // an object is a sequence of names and values
		item, err := yamlNode(d)
		if err != nil {
			return nil, err
		}
		n.Content = append(n.Content, item)
	}
	_, err := d.Token()
	return n, err
}
