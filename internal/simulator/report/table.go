package report

import (
	"io"
	"strings"
	"unicode/utf8"
)

// Table is text in columns. Each row has a cell for every column.
type Table struct {
	Columns []Column
	Rows    [][]string
}

// Column is the heading of a column. Columns of text start at the left, numbers end at the right.
type Column struct {
	Head string
	Text bool
}

// gap separates columns.
const gap = "  "

// Write writes the table with its headings. Columns are as wide as their widest cell; lines have no trailing space.
func (t Table) Write(w io.Writer) error {
	widths := make([]int, len(t.Columns))
	heads := make([]string, len(t.Columns))
	for c := range t.Columns {
		heads[c] = t.Columns[c].Head
		widths[c] = utf8.RuneCountInString(heads[c])
		for _, row := range t.Rows {
			widths[c] = max(widths[c], utf8.RuneCountInString(row[c]))
		}
	}
	var b strings.Builder
	t.line(&b, heads, widths)
	for _, row := range t.Rows {
		t.line(&b, row, widths)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (t Table) line(b *strings.Builder, cells []string, widths []int) {
	var line strings.Builder
	for c, cell := range cells {
		if c > 0 {
			line.WriteString(gap)
		}
		space := strings.Repeat(" ", widths[c]-utf8.RuneCountInString(cell))
		if t.Columns[c].Text {
			line.WriteString(cell + space)
		} else {
			line.WriteString(space + cell)
		}
	}
	b.WriteString(strings.TrimRight(line.String(), " "))
	b.WriteByte('\n')
}
