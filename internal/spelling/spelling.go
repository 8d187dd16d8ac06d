// Package spelling finds the legal name that was probably meant by one that is not legal. The package corrects nothing:
// people do, who read the name in a message.
package spelling

import (
	"cmp"
	"strings"

	"github.com/agnivade/levenshtein"
)

// Nearest returns the legal name that takes the fewest letters to change, add or remove, and false where none is near.
// With more than a third of the letters wrong the name is another word, not a misspelt one. Case does not matter, nor
// which of "-", "_", "." and blank stands between words. If names are equally near, the first by the alphabet is meant.
// Example: the nearest of "max-slowdown" and "max-latency" to "Max_Slowdwn" is the first, with one letter to add.
//
// The time grows with the letters of the legal names of about the same length, times the letters of the written one.
func Nearest(written string, legal []string) (string, bool) {
	want := folded(written)
	nearest, least := "", 0
	for _, name := range legal {
		allowed := max(1, max(len(want), len(name))/3)
		if max(len(want)-len(name), len(name)-len(want)) > allowed {
			continue
		}
		distance := levenshtein.ComputeDistance(want, folded(name))
		if distance > allowed {
			continue
		}
		if nearest == "" || cmp.Or(cmp.Compare(distance, least), cmp.Compare(name, nearest)) < 0 {
			nearest, least = name, distance
		}
	}
	return nearest, nearest != ""
}

// separators makes all separators equal.
var separators = strings.NewReplacer("_", "-", ".", "-", " ", "-")

func folded(name string) string { return separators.Replace(strings.ToLower(name)) }
