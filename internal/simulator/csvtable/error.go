package csvtable

import (
	"fmt"
	"strconv"
)

// Error says what is wrong with a file, where, and what would be right. Every reader returns it for bad input.
type Error struct {
	File string
	// Line counts from 1. 0 stands for the file as a whole.
	Line int
	// Column is the name of the column, "" for the whole line.
	Column string
	// Value is what stands there: the text of the field in quotes, else a few words.
	Value string
	// Legal is what may stand there.
	Legal string
}

// Error writes the sentence: `read pods.csv line 3 column num_gpu: found "-1", want a whole number from 0 to 64`.
func (e *Error) Error() string {
	where := e.File
	if e.Line > 0 {
		where += fmt.Sprintf(" line %d", e.Line)
	}
	if e.Column != "" {
		where += " column " + e.Column
	}
	return fmt.Sprintf("read %s: found %s, want %s", where, e.Value, e.Legal)
}

// maxQuote bounds what of a field or a header an error repeats, in runes.
const maxQuote = 120

// quote writes a field for an error, shortened.
func quote(text string) string {
	count := 0
	for i := range text {
		if count == maxQuote {
			return strconv.Quote(text[:i] + "…")
		}
		count++
	}
	return strconv.Quote(text)
}

// Clip is quote without the quotes, for names: it escapes unprintable characters.
func Clip(text string) string {
	quoted := quote(text)
	return quoted[1 : len(quoted)-1]
}
