package csvtable

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// MaxSeconds bounds a time and a duration: 31 years.
const MaxSeconds = 1_000_000_000

// Text reads a name.
func (t *Table) Text(column string) string {
	text := t.Field(column)
	if !Printable(text) {
		t.Fail(column, "1 to 253 bytes of printable text without spaces around it")
	}
	return text
}

// TextOr reads a name that may be empty, or whose column may be missing.
func (t *Table) TextOr(column string) string {
	if t.Field(column) == "" {
		return ""
	}
	return t.Text(column)
}

// Printable reports whether text has 1 to 253 bytes, no spaces around it and no unprintable characters.
func Printable(text string) bool {
	const most = 253 // as for names of Kubernetes objects
	if text == "" || len(text) > most || !utf8.ValidString(text) || strings.TrimSpace(text) != text {
		return false
	}
	return !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// Whole reads a whole number, also one that a program wrote as a decimal: 20.0.
func (t *Table) Whole(column string, least, most int64) int64 {
	text := t.Field(column)
	if digits, zeros, decimal := strings.Cut(text, "."); decimal && zeros != "" && strings.Trim(zeros, "0") == "" {
		text = digits
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < least || v > most {
		t.Fail(column, fmt.Sprintf("a whole number from %d to %d", least, most))
		return least
	}
	return v
}

// WholeOr reads a whole number that may be empty, or whose column may be missing: then it is zero.
func (t *Table) WholeOr(column string, least, most int64) int64 {
	if t.Field(column) == "" {
		return 0
	}
	return t.Whole(column, least, most)
}

// Decimal reads a number that is not negative. The words say the unit: "seconds".
func (t *Table) Decimal(column string, most int64, words string) float64 {
	text := t.Field(column)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v > float64(most) || strings.Trim(text, "0123456789.eE+-") != "" || strings.HasPrefix(text, "-") {
		t.Fail(column, fmt.Sprintf("a number from 0 to %d (%s)", most, words))
		return 0
	}
	return v
}

// DecimalOr reads a decimal that may be empty, or whose column may be missing: then it is zero.
func (t *Table) DecimalOr(column string, most int64, words string) float64 {
	if t.Field(column) == "" {
		return 0
	}
	return t.Decimal(column, most, words)
}

// units names the units of time that files use.
var units = map[time.Duration]string{time.Second: "seconds", time.Millisecond: "milliseconds"}

// Unit returns the name of a unit of time: seconds or milliseconds.
func Unit(unit time.Duration) string { return units[unit] }

// Time reads a time or a duration in the unit, exact to the nanosecond as far as the digits go.
func (t *Table) Time(column string, unit time.Duration) time.Duration {
	v := t.Decimal(column, MaxSeconds*int64(time.Second/unit), Unit(unit))
	return time.Duration(math.Round(v * float64(unit)))
}

// TimeOr reads a time in seconds that may be empty, or whose column may be missing, and says whether it is there.
func (t *Table) TimeOr(column string) (at time.Duration, known bool) {
	if t.Field(column) == "" {
		return 0, false
	}
	return t.Time(column, time.Second), true
}

// Lasting keeps a measured duration above zero, which stands for an unknown one: a duration that a file gives as
// nothing took less than its unit, and counts as one unit.
func Lasting(d, unit time.Duration) time.Duration {
	if d == 0 {
		return unit
	}
	return d
}
