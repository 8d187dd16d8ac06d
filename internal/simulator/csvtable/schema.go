package csvtable

import (
	"fmt"
	"slices"
	"strings"
)

// Format names what a file has.
type Format string

// Schema reads a file of a format into a T.
type Schema[T any] struct {
	Format Format
	// Needs lists the columns that a header must have.
	Needs []string
	// Row reads the present row. Values that it read are thrown away when the table then has an error.
	Row func(*Table, *T)
	// End looks at the whole; it may be nil.
	End func(*Table, *T)
	// Trailing allows rows to end in a comma that the header does not have.
	Trailing bool
	// Only lists the columns that a header may have; nil for any.
	Only []string
	// Like reports whether a header that no format has was probably meant for this one; it may be nil.
	Like func(header []string) bool
}

// Lift returns the schema for a U that has a T as a part.
func Lift[T, U any](s Schema[T], part func(*U) *T) Schema[U] {
	lifted := Schema[U]{Format: s.Format, Needs: s.Needs, Trailing: s.Trailing, Only: s.Only, Like: s.Like}
	lifted.Row = func(t *Table, all *U) { s.Row(t, part(all)) }
	if s.End != nil {
		lifted.End = func(t *Table, all *U) { s.End(t, part(all)) }
	}
	return lifted
}

// Detect returns the schema whose columns the table has. The error is an *Error: there is none, or there are two.
func Detect[T any](t *Table, schemas []Schema[T]) (*Schema[T], error) {
	s, unknown := detect(t.header, schemas)
	if unknown == nil {
		return s, nil
	}
	for i := range schemas {
		if like := schemas[i].Like; like != nil && like(t.header) {
			return &schemas[i], nil
		}
	}
	unknown.File, unknown.Line = t.file, t.head
	return nil, unknown
}

func detect[T any](header []string, schemas []Schema[T]) (*Schema[T], *Error) {
	var found []*Schema[T]
	for i := range schemas {
		if !slices.ContainsFunc(schemas[i].Needs, func(c string) bool { return !slices.Contains(header, c) }) {
			found = append(found, &schemas[i])
		}
	}
	switch len(found) {
	case 0:
		return nil, &Error{Value: "the columns " + Clip(strings.Join(header, ", ")), Legal: "those of a known trace: " + known(schemas)}
	case 1:
		return found[0], nil
	}
	return nil, &Error{
		Value: fmt.Sprintf("the columns of %s and of %s", found[0].Format, found[1].Format), Legal: "those of one format",
	}
}

// known lists the formats with their columns.
func known[T any](schemas []Schema[T]) string {
	words := make([]string, 0, len(schemas))
	for i := range schemas {
		words = append(words, fmt.Sprintf("%s (%s)", schemas[i].Format, strings.Join(schemas[i].Needs, ", ")))
	}
	return strings.Join(words, "; ")
}

// Find returns the schema of a format. Find panics where there is none: formats are constants of the program.
func Find[T any](schemas []Schema[T], format Format) *Schema[T] {
	for i := range schemas {
		if schemas[i].Format == format {
			return &schemas[i]
		}
	}
	panic(fmt.Sprintf("find schema: no format %q", format))
}

// Read reads all rows of a table.
func (s *Schema[T]) Read(t *Table, all *T) error {
	if err := t.only(s.Only); err != nil {
		return err
	}
	if err := t.needs(s.Needs); err != nil {
		return err
	}
	t.trailing = s.Trailing
	for t.Next() {
		s.Row(t, all)
	}
	if t.err == nil && s.End != nil {
		s.End(t, all)
	}
	return t.Err()
}
