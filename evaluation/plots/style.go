package plots

import (
	"image/color"

	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// palette is Paul Tol's "muted" scheme (https://sronpersonalpages.nl/~pault/), which stays distinct for all common kinds of
// colour blindness.
var palette = []color.RGBA{
	{0x33, 0x22, 0x88, 0xff}, // indigo
	{0xcc, 0x66, 0x77, 0xff}, // rose
	{0x11, 0x77, 0x33, 0xff}, // green
	{0xdd, 0xcc, 0x77, 0xff}, // sand
	{0x88, 0xcc, 0xee, 0xff}, // cyan
	{0x44, 0xaa, 0x99, 0xff}, // teal
	{0xaa, 0x44, 0x99, 0xff}, // purple
	{0x99, 0x99, 0x33, 0xff}, // olive
	{0x88, 0x22, 0x55, 0xff}, // wine
}

// colours gives each policy its place in the palette, the same in every figure.
var colours = map[string]int{
	"tandem": 0, "fgd": 1, "packed": 2, "bestfit": 3, "spread": 4, "dotprod": 5, "clustering": 6, "packing": 7, "random": 8,
}

// dashes separate lines where colours repeat, and in print.
var dashes = [][]vg.Length{
	nil,
	{vg.Points(7), vg.Points(3)},
	{vg.Points(2), vg.Points(2)},
	{vg.Points(7), vg.Points(2), vg.Points(2), vg.Points(2)},
}

// Widths of lines: the project's own policy stands out.
const (
	lineWidth = 1.5
	ownWidth  = 2.5
	own       = "tandem"
)

// style returns the line of the series with a name that is the k-th of its figure. Series that are no policy take the
// colours by their place, dashed.
func style(name string, k int) draw.LineStyle {
	at, known := colours[name]
	s := draw.LineStyle{Width: vg.Points(lineWidth)}
	switch {
	case known && name == own:
		s.Width = vg.Points(ownWidth)
	case known:
		s.Dashes = dashes[at%len(dashes)]
	default:
		at = k % len(palette)
		s.Dashes = dashes[1+(k/len(palette))%(len(dashes)-1)]
	}
	s.Color = palette[at]
	return s
}
