package wording

import (
	"strings"
	"unicode"
)

// Hidden is what those are called whose namespace the reader may not see.
const Hidden = hidden

// Plain takes out of a text what a terminal takes for commands: parts of it are from the cluster.
func Plain(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}
