package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// gpu is one device in the picture.
type gpu struct {
	node, name, model string
	slots             int
	slices            []slice
}

// slice is a part of a device with an owner.
type slice struct {
	owner string
	kind  kind
	slots int
}

func (g gpu) used() int {
	used := 0
	for _, s := range g.slices {
		used += s.slots
	}
	return used
}

// draw draws nodes × GPUs × slices to scale: every device is as wide as the others and holds its slots side by side. A
// device that holds more than its slots looks full, and its count shows the excess. The devices of a node stand
// together.
func draw(gpus []gpu, width int, colours bool) string {
	var b strings.Builder
	inside := width - len("  g0 ") - len(" 10/10") // between the outer borders, those included
	for i, g := range gpus {
		if i == 0 || gpus[i-1].node != g.node {
			title := fmt.Sprintf("%s  %s × %s, %d slots each", g.node, count(gpus, g.node), g.model, g.slots)
			fmt.Fprintf(&b, "\n%s\n", paint(colours, bold, title))
		}
		cells := layOut(g, inside-1)
		fmt.Fprintf(&b, "     %s\n", border(cells, '┌', '┬', '┐'))
		fmt.Fprintf(&b, "  %-2s ", g.name)
		for _, c := range cells {
			b.WriteString("│" + paint(colours, c.colour, fit(c.text, c.width)))
		}
		fmt.Fprintf(&b, "│ %2d/%d\n", g.used(), g.slots)
		fmt.Fprintf(&b, "     %s\n", border(cells, '└', '┴', '┘'))
	}
	return b.String()
}

func count(gpus []gpu, node string) string {
	n := 0
	for _, g := range gpus {
		if g.node == node {
			n++
		}
	}
	return fmt.Sprint(n)
}

// cell is a slice, or what is free, with its width in columns inside of its borders.
type cell struct {
	text   string
	colour colour
	width  int
}

// layOut divides width columns among the slices of a device; each cell gives one column to its left border.
func layOut(g gpu, width int) []cell {
	var cells []cell
	slot := 0
	column := func(slot int) int { return (min(slot, g.slots)*width + g.slots/2) / g.slots }
	add := func(text string, c colour, slots int) {
		if w := column(slot+slots) - column(slot) - 1; w >= 0 {
			cells = append(cells, cell{text, c, w})
		}
		slot += slots
	}
	for _, s := range g.slices {
		add(" "+s.owner, s.kind.colour(), s.slots)
	}
	if free := g.slots - slot; free > 0 {
		text := fmt.Sprintf(" %d free", free)
		if len(text) > column(g.slots)-column(slot)-1 {
			text = ""
		}
		add(text, grey, free)
	}
	return cells
}

func border(cells []cell, left, middle, right rune) string {
	var b strings.Builder
	for i, c := range cells {
		corner := middle
		if i == 0 {
			corner = left
		}
		b.WriteRune(corner)
		b.WriteString(strings.Repeat("─", c.width))
	}
	b.WriteRune(right)
	return b.String()
}

// fit cuts or pads text to n columns.
func fit(text string, n int) string {
	length := utf8.RuneCountInString(text)
	if length <= n {
		return text + strings.Repeat(" ", n-length)
	}
	if n == 0 {
		return ""
	}
	return string([]rune(text)[:n-1]) + "…"
}
