package mcp

import (
	"errors"
	"fmt"
	"strings"
)

// maxName bounds a published name, with room for a version in a reference.
const maxName = 200

// publishedName returns the published name of a tool: the prefix, and the server's name in lower
// case with an underscore for each character that ARCP does not allow.
func publishedName(prefix, name string) (string, error) {
	if name == "" {
		return "", errors.New("it has no name")
	}
	if len(prefix)+len(name) > maxName {
		return "", fmt.Errorf("its name has more than %d bytes", maxName-len(prefix))
	}
	return prefix + strings.Map(nameRune, name), nil
}

func nameRune(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '.', r == '_', r == '-':
		return r
	case r >= 'A' && r <= 'Z':
		return r + 'a' - 'A'
	}
	return '_'
}
