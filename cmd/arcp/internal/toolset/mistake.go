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

// below returns err as a mistake at a path.
func below(err error, path ...string) error {
	var list settings.Mistakes
	list.Add(err, path...)
	return list.OrNil()
}

// at returns a mistake at a path, in which dots separate the keys.
func at(path, format string, args ...any) error {
	return settings.MistakeAt(settings.Position{Path: strings.Split(path, ".")}, fmt.Sprintf(format, args...))
}
