package toolset

import (
	"fmt"
	"strings"

	"github.com/arcpd/arcpd/cmd/arcp/internal/settings"
)

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
