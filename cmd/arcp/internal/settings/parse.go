package settings

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/arcpd/arcpd/auth"
)

// parse converts the raw value of a source to the type of the setting: a string, bool, int,
// time.Duration, int64 (a size), []string, auth.Secret or []auth.Secret.
func (s *Setting) parse(raw any) (any, error) {
	if s.Kind == Block {
		return raw, nil
	}
	if s.Kind == List {
		return s.parseList(raw)
	}
	text, err := scalar(raw)
	if err != nil {
		return nil, err
	}
	v, err := s.parseText(text)
	if err != nil && s.Secret {
		return nil, errors.New("not a valid value")
	}
	return v, err
}

func (s *Setting) parseText(text string) (any, error) {
	switch s.Kind {
	case Switch:
		return parseSwitch(text)
	case Number:
		return parseNumber(text)
	case Duration:
		return parseDuration(text)
	case Size:
		return ParseSize(text)
	}
	if len(s.Choices) > 0 && !slices.Contains(s.Choices, text) {
		return nil, fmt.Errorf("%q is none of %s", text, strings.Join(s.Choices, ", "))
	}
	if s.Secret {
		return auth.Secret(text), nil
	}
	return text, nil
}

func (s *Setting) parseList(raw any) (any, error) {
	texts, err := texts(raw)
	if err != nil || !s.Secret {
		return texts, err
	}
	var secrets []auth.Secret
	for _, t := range texts {
		secrets = append(secrets, auth.Secret(t))
	}
	return secrets, nil
}

// scalar returns the text of a raw value from a YAML file, a flag or a variable.
func scalar(raw any) (string, error) {
	switch raw := raw.(type) {
	case string:
		return raw, nil
	case bool, int, int64, uint64, float64:
		return fmt.Sprint(raw), nil
	case nil:
		return "", nil
	}
	return "", errors.New("one value is expected here, not a list or a group")
}

// texts reads a list. A single value is a list of one, and nil an empty list.
func texts(raw any) ([]string, error) {
	var items []any
	switch raw := raw.(type) {
	case []string:
		return raw[:len(raw):len(raw)], nil
	case []any:
		items = raw
	default:
		if raw != nil && raw != "" {
			items = []any{raw}
		}
	}
	var list []string
	for _, item := range items {
		text, err := scalar(item)
		if err != nil {
			return nil, errors.New("a list of plain values is expected here")
		}
		list = append(list, text)
	}
	return list, nil
}

func parseSwitch(text string) (any, error) {
	on, err := strconv.ParseBool(text)
	if err != nil {
		return nil, fmt.Errorf("%q is neither true nor false", text)
	}
	return on, nil
}

func parseNumber(text string) (any, error) {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return nil, fmt.Errorf("%q is not a whole number of 0 or more", text)
	}
	return n, nil
}

func parseDuration(text string) (any, error) {
	d, err := ParseDuration(text)
	if err != nil || d < 0 {
		return nil, fmt.Errorf("%q is not a duration such as 90s, 10m or 7d", text)
	}
	return d, nil
}

var units = []struct {
	suffix string
	bytes  int64
}{
	{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
	{"kB", 1e3}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1},
}

// ParseSize reads a number of bytes: 8MiB, 64KiB, 1.5GB, 1000.
func ParseSize(text string) (int64, error) {
	number, factor := text, int64(1)
	for _, u := range units {
		if rest, ok := strings.CutSuffix(text, u.suffix); ok {
			number, factor = strings.TrimSpace(rest), u.bytes
			break
		}
	}
	f, err := strconv.ParseFloat(number, 64)
	if err != nil || !(f >= 0 && f*float64(factor) < 1<<62) {
		return 0, fmt.Errorf("%q is not a size such as 8MiB or 64KiB", text)
	}
	return int64(f * float64(factor)), nil
}
