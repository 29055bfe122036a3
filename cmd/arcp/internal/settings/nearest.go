package settings

import (
	"strings"

	"github.com/agnivade/levenshtein"
)

// nearest returns the name of the setting that is most like key, and how many
// letters apart they are.
func nearest(key string) (string, int) {
	key = strings.ToLower(strings.NewReplacer("_", "-", ".", "-").Replace(key))
	names := make([]string, len(Table))
	for i := range Table {
		names[i] = Table[i].Name
	}
	return Closest(key, names)
}

// Closest returns the one of names that is most like name, and how many letters apart
// they are.
func Closest(name string, names []string) (best string, distance int) {
	distance = len(name) + 100
	for _, n := range names {
		if d := levenshtein.ComputeDistance(name, n); d < distance {
			best, distance = n, d
		}
	}
	return best, distance
}

// Nearest returns the one of names that name was probably meant to be, or "".
func Nearest(name string, names []string) string {
	best, distance := Closest(name, names)
	if distance > slip(name) {
		return ""
	}
	return best
}

// slip is how many letters off a name may be and still be taken for a typing
// mistake.
func slip(name string) int { return min(2, len(name)/3) }
