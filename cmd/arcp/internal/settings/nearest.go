package settings

import "strings"

// nearest returns the name of the setting that is most like key, and how many
// letters apart they are.
func nearest(key string) (string, int) {
	key = strings.ToLower(strings.NewReplacer("_", "-", ".", "-").Replace(key))
	best, distance := "", len(key)+100
	for i := range Table {
		if d := edits(key, Table[i].Name); d < distance {
			best, distance = Table[i].Name, d
		}
	}
	return best, distance
}

// Nearest returns the one of names that name was probably meant to be, or "".
func Nearest(name string, names []string) string {
	best, distance := "", slip(name)+1
	for _, n := range names {
		if d := edits(name, n); d < distance {
			best, distance = n, d
		}
	}
	return best
}

// slip is how many letters off a name may be and still be taken for a typing
// mistake.
func slip(name string) int { return min(2, len(name)/3) }

// edits is the Levenshtein distance of a and b.
func edits(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}
