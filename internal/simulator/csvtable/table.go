package csvtable

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/internal/spelling"
)

// Bounds of a file. The published traces have at most 82,247 rows of less than 300 bytes.
const (
	// MaxRows bounds the rows below the header.
	MaxRows = 1 << 20
	// maxLine bounds the bytes of a line.
	maxLine = 1 << 16
)

// ByteOrderMark is what some programs write before the header.
const ByteOrderMark = "\ufeff"

// Table reads a CSV file by the names of its columns. The table keeps the first error, after which it has no further
// rows.
type Table struct {
	file   string
	source *source
	csv    *csv.Reader
	header []string
	head   int // line of the header
	at     map[string]int
	row    []string
	rows   int
	seen   map[string]int // line of each key
	err    *Error
	// trailing allows rows to end in a comma that the header does not have.
	trailing bool
}

// New reads the header of a file. The file is its name in errors.
func New(r io.Reader, file string) (*Table, error) {
	s := &source{r: r}
	b := bufio.NewReader(s)
	if start, _ := b.Peek(len(ByteOrderMark)); string(start) == ByteOrderMark {
		_, _ = b.Discard(len(ByteOrderMark)) // Peek has read it, so it is there
	}
	t := &Table{file: file, source: s, csv: csv.NewReader(b), at: map[string]int{}, seen: map[string]int{}}
	header, err := t.csv.Read()
	if err == io.EOF {
		return nil, &Error{File: file, Value: "an empty file", Legal: "a header and at least one row"}
	}
	if err != nil {
		return nil, t.broken(err, header)
	}
	t.header, t.head = header, t.Line()
	for i, name := range header {
		if first, double := t.at[name]; double {
			return nil, &Error{
				File: file, Line: t.lineOf(i), Column: Clip(name),
				Value: fmt.Sprintf("the name at columns %d and %d", first+1, i+1), Legal: "each name once",
			}
		}
		t.at[name] = i
	}
	return t, nil
}

// Headless begins a file without a header, with the given columns. Its rows may have another number of fields: the
// caller compares Fields with the Header before it reads a Field.
func Headless(r io.Reader, file string, columns []string) *Table {
	s := &source{r: r}
	t := &Table{file: file, source: s, csv: csv.NewReader(s), header: columns, at: map[string]int{}, seen: map[string]int{}}
	for i, name := range columns {
		t.at[name] = i
	}
	t.AllowAnyLength()
	return t
}

// AllowAnyLength takes rows of any number of fields, which the caller compares with the Header.
func (t *Table) AllowAnyLength() { t.csv.FieldsPerRecord = -1 }

// File returns the name of the file.
func (t *Table) File() string { return t.file }

// Header returns the names of the columns in their order.
func (t *Table) Header() []string { return t.header }

// HeaderLine is the number of the line where the header begins.
func (t *Table) HeaderLine() int { return t.head }

// Rows counts the rows so far.
func (t *Table) Rows() int { return t.rows }

// Fields counts the fields of the row.
func (t *Table) Fields() int { return len(t.row) }

// Err returns the first error, nil for none.
func (t *Table) Err() error {
	if t.err == nil {
		return nil
	}
	return t.err
}

// needs returns an error unless the header has all of the columns.
func (t *Table) needs(columns []string) error {
	for _, name := range columns {
		if !t.Has(name) {
			return &Error{
				File: t.file, Line: t.head, Column: name,
				Value: "no such column among " + Clip(strings.Join(t.header, ", ")),
				Legal: "the columns " + strings.Join(columns, ", "),
			}
		}
	}
	return nil
}

// only returns an error if the header has a column beside those listed; nil lists all.
func (t *Table) only(columns []string) error {
	for _, name := range t.header {
		if columns == nil || slices.Contains(columns, name) {
			continue
		}
		legal := "the columns " + strings.Join(columns, ", ")
		if nearest, near := spelling.Nearest(name, columns); near {
			legal = nearest + ", which is the nearest of " + legal
		}
		return &Error{File: t.file, Line: t.head, Column: Clip(name), Value: "a column that is not known", Legal: legal}
	}
	return nil
}

// Has reports whether the header has a column.
func (t *Table) Has(column string) bool {
	_, ok := t.at[column]
	return ok
}

// Next goes to the next row, and reports whether there is one.
func (t *Table) Next() bool {
	if t.err != nil {
		return false
	}
	row, err := t.csv.Read()
	if last := len(t.header); t.trailing && errors.Is(err, csv.ErrFieldCount) && len(row) == last+1 && row[last] == "" {
		row, err = row[:last], nil
	}
	switch {
	case err == io.EOF && t.rows == 0:
		t.err = &Error{File: t.file, Line: t.head, Value: "a header without rows", Legal: "at least one row"}
	case err == io.EOF:
	case err != nil:
		t.err = t.broken(err, row)
	case t.rows == MaxRows:
		t.err = &Error{
			File: t.file, Line: t.lineOf(0), Value: "one more row", Legal: fmt.Sprintf("at most %d rows", MaxRows),
		}
	default:
		t.row = row
		t.rows++
		return true
	}
	return false
}

// Line is the number of the line where the row begins.
func (t *Table) Line() int { return t.lineOf(0) }

// lineOf is the number of the line where field i of the last row begins.
func (t *Table) lineOf(i int) int {
	line, _ := t.csv.FieldPos(i)
	return line
}

// Field returns the text in a column of the row, "" when the header has no such column.
func (t *Table) Field(column string) string {
	if i, ok := t.at[column]; ok {
		return t.row[i]
	}
	return ""
}

// Fail notes what a column of the row should have been. Only the first error of a file counts.
func (t *Table) Fail(column, legal string) {
	if t.err == nil {
		t.err = &Error{
			File: t.file, Line: t.lineOf(t.at[column]), Column: column, Value: quote(t.Field(column)), Legal: legal,
		}
	}
}

// Refuse notes what is wrong with the table as a whole, or with a column of it. Only the first error of a file counts.
func (t *Table) Refuse(column, value, legal string) {
	if t.err == nil {
		t.err = &Error{File: t.file, Column: column, Value: value, Legal: legal}
	}
}

// Index returns the first number of a key. A new key gets the given number.
func (t *Table) Index(key string, number int) (first int, known bool) {
	if first, known = t.seen[key]; known {
		return first, true
	}
	t.seen[key] = number
	return number, false
}

// Unique fails when an earlier row has the key, which the words name. The column is the one to blame.
func (t *Table) Unique(column, key, words string) {
	if line, double := t.seen[key]; double {
		t.Fail(column, fmt.Sprintf("a %s that line %d does not have", words, line))
	}
	t.seen[key] = t.Line()
}

// broken says why the next row is unreadable. The row is as far as it came.
func (t *Table) broken(err error, row []string) *Error {
	var own *Error
	if errors.As(t.source.err, &own) { // what the source reports comes before what the CSV makes of the torn end
		own.File = t.file
		return own
	}
	if t.source.err != nil {
		return &Error{File: t.file, Value: t.source.err.Error(), Legal: "a file that can be read to its end"}
	}
	e := &Error{File: t.file, Value: err.Error(), Legal: "fields as in RFC 4180"}
	var parse *csv.ParseError
	if !errors.As(err, &parse) {
		return e
	}
	e.Line = parse.StartLine
	if errors.Is(parse.Err, csv.ErrFieldCount) {
		e.Value, e.Legal = Plural(len(row), "field"), fmt.Sprintf("%d as in the header", len(t.header))
		return e
	}
	e.Value = fmt.Sprintf("a stray or missing quote (line %d, byte %d)", parse.Line, parse.Column)
	e.Legal = "quotes around whole fields only, doubled inside"
	return e
}

// Plural writes a number with its noun: "1 row", "2 rows".
func Plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// source passes bytes on, refuses lines that are too long, and remembers why it ended.
type source struct {
	r    io.Reader
	line int // lines that ended
	run  int // bytes of the line that did not
	err  error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
		return n, err
	}
	for rest := p[:n]; len(rest) > 0; {
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			s.run += len(rest)
			break
		}
		if s.run += end; s.run > maxLine {
			break
		}
		s.line, s.run, rest = s.line+1, 0, rest[end+1:]
	}
	if s.run > maxLine {
		s.err = &Error{
			Line: s.line + 1, Value: fmt.Sprintf("a line of more than %d bytes", maxLine), Legal: "a shorter one",
		}
		return 0, s.err
	}
	return n, err
}
