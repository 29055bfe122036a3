package toolset

import (
	"fmt"
	"slices"
	"strings"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

// hasMistake reports whether the list has a mistake in the value of one of the keys.
func hasMistake(list settings.Mistakes, keys ...string) bool {
	return slices.ContainsFunc(list, func(m settings.Mistake) bool {
		path := m.Path()
		return len(path) > 0 && slices.Contains(keys, path[0])
	})
}

// at returns a mistake at a path, in which dots separate the keys.
func at(path, format string, args ...any) error {
	return settings.MistakeAt(settings.Position{Path: strings.Split(path, ".")}, fmt.Sprintf(format, args...))
}
