package settings

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/arcpd/arcpd/internal/yamlsyntax"
)

// document is a configuration file in YAML. A nil *document is no file.
type document struct {
	file   string         // path
	root   *yaml.Node     // mapping; nil: the file is empty
	values map[string]any // decoded root
}

// readDocument reads a configuration file. The error has every mistake in the form of the file. The document is nil
// if it cannot be read; of repeated keys it has the first.
func readDocument(file string) (*document, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("configuration file %s: %w; give the path of a file that can be read", file, cause(err))
	}
	d := &document{file: file}
	var top yaml.Node
	if err := yaml.Unmarshal(text, &top); err != nil {
		line, message := yamlsyntax.Mistake(text, err)
		return nil, NewMistake(file, line, 1, "", message)
	}
	if len(top.Content) == 0 || top.Content[0].ShortTag() == "!!null" {
		return d, nil
	}
	d.root = top.Content[0]
	if d.root.Kind != yaml.MappingNode {
		return nil, d.mistake(Position{}, "want settings and values, as in listen: 127.0.0.1:7777")
	}
	repeated := Join(d.repeatedKeys(d.root, nil)...)
	if err := d.root.Decode(&d.values); err != nil {
		return nil, Join(repeated, d.mistake(Position{}, strings.TrimPrefix(oneLine(err), "yaml: ")))
	}
	return d, repeated
}

// repeatedKeys returns a mistake for each key that its mapping has twice, and removes all but the first.
func (d *document) repeatedKeys(n *yaml.Node, path []string) (list []error) {
	switch n.Kind {
	case yaml.MappingNode:
		lines := make(map[string]int)
		var single []*yaml.Node
		for i := 0; i+1 < len(n.Content); i += 2 {
			key := n.Content[i]
			at := append(slices.Clip(path), key.Value)
			if first, ok := lines[key.Value]; ok {
				list = append(list, NewMistake(d.file, key.Line, key.Column, pathText(at), fmt.Sprintf("the key is also in line %d: remove one of them", first)))
			} else {
				single = append(single, key, n.Content[i+1])
				lines[key.Value] = key.Line
			}
			list = append(list, d.repeatedKeys(n.Content[i+1], at)...)
		}
		n.Content = single
	case yaml.SequenceNode:
		for i, item := range n.Content {
			list = append(list, d.repeatedKeys(item, append(slices.Clip(path), strconv.Itoa(i)))...)
		}
	}
	return list
}

// position returns the line and the column of a place, or of the part of its path that exists.
func (d *document) position(at Position) (line, column int) {
	if d == nil || d.root == nil {
		return 1, 1
	}
	n := d.root
	line, column = n.Line, n.Column
	for i, step := range at.Path {
		key, value := child(n, step)
		if value == nil {
			break
		}
		n, line, column = value, value.Line, value.Column
		last := i == len(at.Path)-1
		if key != nil && (at.OnKey && last || value.Kind == yaml.MappingNode && value.Style&yaml.FlowStyle == 0) {
			line, column = key.Line, key.Column // a block begins below its key
		}
	}
	return line, column
}

// child returns a member or an item of a node with its key; nil if there is none. A dash in a key counts as an
// underscore.
func child(n *yaml.Node, step string) (key, value *yaml.Node) {
	if n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	switch n.Kind {
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i < len(n.Content) {
			return nil, n.Content[i]
		}
	case yaml.MappingNode:
		same := strings.NewReplacer("-", "_")
		for i := 0; i+1 < len(n.Content); i += 2 {
			if k := n.Content[i]; k.Value == step || same.Replace(k.Value) == same.Replace(step) {
				key, value = k, n.Content[i+1]
				if k.Value == step {
					return key, value
				}
			}
		}
	}
	return key, value
}
