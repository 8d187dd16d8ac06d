package plots

import (
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

var gridColour = color.Gray{Y: 0xdd}

// face is the font for measuring texts, and faces what a viewer may take instead: the widths of the first four are
// equal.
const (
	face  = "font-family:Liberation Sans;"
	faces = "font-family:Liberation Sans,Arimo,Helvetica,Arial,sans-serif;"
)

// Sizes of text.
const (
	titleSize = 14
	labelSize = 11
)

// sans sets all text of a figure in a face without serifs, which reads better on screens.
func sans(p *plot.Plot, legend *plot.Legend) {
	p.Title.TextStyle.Font.Size = vg.Points(titleSize)
	p.Title.TextStyle.Font.Variant = "Sans"
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font.Variant, axis.Label.TextStyle.Font.Size = "Sans", vg.Points(labelSize)
		axis.Label.Padding = vg.Points(6)
		axis.Tick.Label.Font.Variant = "Sans"
	}
	legend.TextStyle.Font.Variant, legend.TextStyle.Font.Size = "Sans", vg.Points(labelSize)
}
