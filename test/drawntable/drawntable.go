// Package drawntable draws CSV files for property tests of the packages that read them, and checks the promises of all
// formats. The order of the columns and the ends of lines change nothing, and an error names its line and column. The
// package does not know the meanings of the columns.
package drawntable

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/test/must"
)

// Column says how to draw a column of a format.
type Column struct {
	// Draw draws a field; nil for the number of the row, where fields must be unique.
	Draw *rapid.Generator[string]
	// Text says that the column has names, not numbers.
	Text bool
	// Negative says that -1 may stand in it.
	Negative bool
}

// Reader is the reader under test.
type Reader struct {
	// Formats has the columns of each format. Related columns draw matching values.
	Formats map[csvtable.Format]map[string]Column
	// Needs returns the columns that a format must have. Closed reports whether a format has no others than its own.
	Needs  func(csvtable.Format) []string
	Closed func(csvtable.Format) bool
	// Read reads a file of any format, ReadAs one of a format.
	Read   func(io.Reader, string) (any, error)
	ReadAs func(io.Reader, string, csvtable.Format) (any, error)
	// Check holds what was read to what its types promise, and Describe writes it for scripts.
	Check    func(testing.TB, any)
	Describe func(any) string
}

// Unique is a column of numbers of which each row has another.
func Unique() Column { return Column{} }

// Amount draws a whole number as text.
func Amount(least, most int) Column {
	return Column{Draw: rapid.Map(rapid.IntRange(least, most), func(n int) string { return fmt.Sprint(n) })}
}

// Decimals draws a number as programs write them.
func Decimals(most int) Column { return Column{Draw: thousandths(0, most)} }

// Above draws a number above zero.
func Above(most int) Column { return Column{Draw: thousandths(1, most)} }

func thousandths(least, most int) *rapid.Generator[string] {
	return rapid.Map(rapid.IntRange(least, 1000*most), func(n int) string { return fmt.Sprintf("%d.%03d", n/1000, n%1000) })
}

// OneOf draws one of several texts for a column of numbers.
func OneOf(texts ...string) Column { return Column{Draw: rapid.SampledFrom(texts)} }

// Names draws names with what is hard to read in CSV.
func Names() Column {
	return Column{Text: true, Draw: rapid.SampledFrom([]string{"bert", "ResNet (batch size 16)", `a "quoted" word`, "käse", "one, two", "#1"})}
}

// UniqueNames is Unique for a column of names.
func UniqueNames() Column { return Column{Text: true} }

// NamesOf draws one of several texts for a column of names.
func NamesOf(texts ...string) Column { return Column{Text: true, Draw: rapid.SampledFrom(texts)} }

// file is a legal table: rows of fields by column.
type file struct {
	format  csvtable.Format
	columns []string
	rows    []map[string]string
}

// draw draws a legal table of any format.
func (r *Reader) draw(t *rapid.T) file {
	formats := make([]csvtable.Format, 0, len(r.Formats))
	for f := range r.Formats {
		formats = append(formats, f)
	}
	slices.Sort(formats)
	d := file{format: rapid.SampledFrom(formats).Draw(t, "format")}
	for column := range r.Formats[d.format] {
		d.columns = append(d.columns, column)
	}
	slices.Sort(d.columns)
	for i := range rapid.IntRange(1, 5).Draw(t, "rows") {
		row := map[string]string{}
		for _, column := range d.columns {
			row[column] = fmt.Sprint(i + 1)
			if g := r.Formats[d.format][column].Draw; g != nil {
				row[column] = g.Draw(t, column)
			}
		}
		d.rows = append(d.rows, row)
	}
	return d
}

// csv writes the table with the columns in some order. Columns that it does not know get junk.
func (d *file) csv(t *rapid.T, columns []string) []byte {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.UseCRLF = rapid.Bool().Draw(t, "CR LF")
	if rapid.Bool().Draw(t, "mark") {
		b.WriteString(csvtable.ByteOrderMark)
	}
	all := [][]string{columns}
	for _, row := range d.rows {
		var line []string
		for _, column := range columns {
			text, known := row[column]
			if !known {
				text = rapid.SampledFrom([]string{"", "NaN", "-1", `"`, "x,y"}).Draw(t, "junk")
			}
			line = append(line, text)
		}
		all = append(all, line)
	}
	must.OK(t, w.WriteAll(all))
	return b.Bytes()
}

// Columns checks that the order of the columns, further columns and the ends of lines change nothing, and that the
// reader detects the format.
func (r *Reader) Columns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := r.draw(t)
		want, err := r.ReadAs(bytes.NewReader(d.csv(t, d.columns)), "t.csv", d.format)
		must.OK(t, err)
		further := []string{"extra", "tenant", ""}
		if r.Closed(d.format) {
			further = nil // it has no others
		}
		shuffled := rapid.Permutation(append(further, d.columns...)).Draw(t, "columns")
		got, err := r.Read(bytes.NewReader(d.csv(t, shuffled)), "t.csv")
		must.OK(t, err)
		if diff := cmp.Diff(want, got, cmpopts.EquateNaNs()); diff != "" {
			t.Fatalf("file (-want +got):\n%s", diff)
		}
	})
}

// BrokenField checks that the error of a broken number, in any row and column, names its line and column.
func (r *Reader) BrokenField(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := r.draw(t)
		i := rapid.IntRange(0, len(d.rows)-1).Draw(t, "row")
		name := rapid.SampledFrom(d.columns).Draw(t, "column")
		column := r.Formats[d.format][name]
		bad := []string{"NaN", "nan", "Inf", "+Inf", "-1", "1e400", "99999999999999999990", "0x10", "1_000", "1,5", "x", " 1", "1 "}
		if column.Text {
			bad = []string{" x", "x ", "\x00", "a\x7f", "\xff", strings.Repeat("x", 254)}
		}
		if column.Negative {
			bad = slices.DeleteFunc(bad, func(s string) bool { return s == "-1" })
		}
		d.rows[i][name] = rapid.SampledFrom(bad).Draw(t, "bad")
		_, err := r.ReadAs(bytes.NewReader(d.csv(t, d.columns)), "t.csv", d.format)
		var own *csvtable.Error
		if !errors.As(err, &own) || own.File != "t.csv" || own.Line != i+2 || own.Column != name || own.Value != quoted(d.rows[i][name]) {
			t.Fatalf("error %v, want one of t.csv line %d column %s", err, i+2, name)
		}
	})
}

// quoted is how an error repeats a field.
func quoted(text string) string { return `"` + csvtable.Clip(text) + `"` }

// MissingColumn checks that the error of a missing required column names it.
func (r *Reader) MissingColumn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := r.draw(t)
		missing := rapid.SampledFrom(r.Needs(d.format)).Draw(t, "missing")
		columns := slices.DeleteFunc(slices.Clone(d.columns), func(c string) bool { return c == missing })
		_, err := r.ReadAs(bytes.NewReader(d.csv(t, columns)), "t.csv", d.format)
		var own *csvtable.Error
		if !errors.As(err, &own) || own.Line != 1 || own.Column != missing {
			t.Fatalf("error %v, want one of column %s", err, missing)
		}
	})
}

// Reversed writes a table with its columns in the reverse order. Fields may have several lines, so the numbers of lines
// change.
func Reversed(t testing.TB, data []byte) []byte {
	t.Helper()
	r := csv.NewReader(bytes.NewReader(bytes.TrimPrefix(data, []byte(csvtable.ByteOrderMark))))
	r.FieldsPerRecord = -1 // rows may end in a comma
	rows, err := r.ReadAll()
	must.OK(t, err)
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	for _, row := range rows {
		row = row[:len(rows[0])]
		slices.Reverse(row)
		must.OK(t, w.Write(row))
	}
	w.Flush()
	return b.Bytes()
}
