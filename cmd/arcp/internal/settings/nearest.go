package settings

import (
	"strings"

	"github.com/agnivade/levenshtein"
)

// nearest returns the name of the setting with the smallest edit distance to key, and the distance.
func nearest(key string) (string, int) {
	key = strings.ToLower(strings.NewReplacer("_", "-", ".", "-").Replace(key))
	names := make([]string, len(Table))
	for i := range Table {
		names[i] = Table[i].Name
	}
	return Closest(key, names)
}

// Closest returns the element of names with the smallest edit distance to name, and the distance.
func Closest(name string, names []string) (best string, distance int) {
	distance = len(name) + 100
	for _, n := range names {
		if d := editDistance(name, n); d < distance {
			best, distance = n, d
		}
	}
	return best, distance
}

// editDistance counts edits of characters. Two neighbours in the wrong order are one edit, once.
func editDistance(typed, name string) int {
	d := levenshtein.ComputeDistance(typed, name)
	for i := 1; i < len(typed); i++ {
		swapped := []byte(typed)
		swapped[i-1], swapped[i] = swapped[i], swapped[i-1]
		d = min(d, 1+levenshtein.ComputeDistance(string(swapped), name))
	}
	return d
}

// Nearest returns the element of names of which name is probably a typo, or "".
func Nearest(name string, names []string) string {
	best, distance := Closest(name, names)
	if distance > maxTypos(name) {
		return ""
	}
	return best
}

// maxTypos returns the largest edit distance of a typo of name.
func maxTypos(name string) int { return min(2, len(name)/3) }
