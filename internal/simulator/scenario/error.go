package scenario

import (
	"fmt"
	"strconv"
)

// Error says what is wrong with a scenario, where, and what would be right.
type Error struct {
	File string
	// Field is the path of the field: "cluster.groups[1].count"; "" for the file as a whole.
	Field string
	// Found is what stands there, in quotes if it is a value.
	Found string
	// Want is what may stand there.
	Want string
}

// Error writes the sentence: `read demo.yaml field cluster.groups[1].count: found "0", want a whole number from 1 to
// 100000`.
func (e *Error) Error() string {
	where := e.File
	if e.Field != "" {
		where += " field " + e.Field
	}
	return fmt.Sprintf("read %s: found %s, want %s", where, e.Found, e.Want)
}

// maxQuote bounds what of a value an error repeats, in bytes.
const maxQuote = 120

// quote writes a value for an error.
func quote(s scalar) string {
	if s == "" {
		return "nothing"
	}
	text := string(s)
	if len(text) > maxQuote {
		text = text[:maxQuote] + "…"
	}
	return strconv.Quote(text)
}

// at is the path of an element of a list.
func at(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }
