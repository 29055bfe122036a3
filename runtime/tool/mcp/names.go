package mcp

import (
	"errors"
	"fmt"
	"strings"
)

// maxName bounds a published name, so that there is room for a version within
// what a reference may have.
const maxName = 200

// published is the name a tool gets: the prefix, and the server's name in lower
// case with everything that names may not have replaced by an underscore.
func published(prefix, name string) (string, error) {
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
