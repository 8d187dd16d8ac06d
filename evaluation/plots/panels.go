package plots

import (
	"fmt"
	"image/color"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Panel is one of several pictures side by side over the same axes: layers that lie on each other, with a text above.
type Panel struct {
	// Name and Notes stand above it, a line each.
	Name  string
	Notes []string
	// Layers from the lowest to the highest. Their points have the same X; Y is how thick a layer is there.
	Layers []Series
}

// titleRoom is the height for the heading of a figure with panels, and noteSize the size of the notes.
const (
	titleRoom = 0.4 * vg.Inch
	noteSize  = 10
)

// drawPanels puts the panels side by side, with the legend of their layers on the right.
func (f Figure) drawPanels(all draw.Canvas) error {
	all.SetColor(color.White)
	all.Fill(all.Path())
	legend, heading := plot.NewLegend(), plot.New()
	heading.Title.Text = f.heading()
	sans(heading, &legend)
	style := heading.Title.TextStyle
	style.XAlign, style.YAlign = draw.XCenter, draw.YTop
	all.FillText(style, vg.Point{X: (all.Min.X + all.Max.X) / 2, Y: all.Max.Y - margin}, heading.Title.Text)
	each := (all.Size().X - legendWidth - 2*margin) / vg.Length(len(f.Panels))
	for i := range f.Panels {
		p, err := f.panel(&f.Panels[i], &legend, i == 0)
		if err != nil {
			return fmt.Errorf("panel %s: %w", f.Panels[i].Name, err)
		}
		left := margin + vg.Length(i)*each
		p.Draw(draw.Crop(all, left, left+each-all.Size().X-margin, margin, -titleRoom))
	}
	legend.Top, legend.ThumbnailWidth, legend.Padding = true, vg.Points(20), vg.Points(3)
	legend.Draw(draw.Crop(all, 0, -margin, 0, -titleRoom-vg.Points(titleSize)))
	return nil
}

// panel draws one panel; the first one fills the legend, the highest layer first.
func (f Figure) panel(x *Panel, legend *plot.Legend, first bool) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = strings.Join(append([]string{x.Name}, x.Notes...), "\n"), f.X, f.Y
	sans(p, legend)
	p.Title.TextStyle.Font.Size, p.Title.Padding = vg.Points(noteSize), vg.Points(6)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = gridColour, gridColour
	p.Add(grid)
	var below plotter.XYs
	areas := make([]*plotter.Polygon, 0, len(x.Layers))
	for k := range x.Layers {
		area, top, err := layer(&x.Layers[k], below, palette[layerColours[k%len(layerColours)]])
		if err != nil {
			return nil, fmt.Errorf("layer %s: %w", x.Layers[k].Name, err)
		}
		p.Add(area)
		below, areas = top, append(areas, area)
	}
	for k := len(areas) - 1; first && k >= 0; k-- {
		legend.Add(x.Layers[k].Name, areas[k])
	}
	p.X.Min, p.Y.Min, p.Y.Max = 0, 0, f.Top
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(ticks), plot.TickerFunc(ticks)
	return p, nil
}

// layerColours are the places of the layers in the palette: neighbours differ in brightness, so that print keeps them apart.
var layerColours = []int{0, 4, 3, 1, 2}

// layer returns the area of a layer on the upper edge of the one below, and its own upper edge.
func layer(s *Series, below plotter.XYs, fill color.Color) (*plotter.Polygon, plotter.XYs, error) {
	if len(s.Points) == 0 {
		return nil, nil, ErrEmpty
	}
	top := make(plotter.XYs, len(s.Points))
	for i, at := range s.Points {
		top[i] = plotter.XY{X: at.X, Y: at.Y}
		if below != nil {
			top[i].Y += below[i].Y
		}
	}
	edge := append(plotter.XYs(nil), top...)
	for i := len(top) - 1; i >= 0; i-- {
		low := plotter.XY{X: top[i].X}
		if below != nil {
			low = below[i]
		}
		edge = append(edge, low)
	}
	area, err := plotter.NewPolygon(edge)
	if err != nil {
		return nil, nil, err
	}
	area.Color, area.Width = fill, 0
	return area, top, nil
}

// Day is the GPUs in use over time by kind of work, a panel for each policy. X of the layers is in hours.
func Day(panels []Panel, gpus float64) Figure {
	return Figure{File: "day", Title: "GPUs in use by kind of work", X: "time (h)", Y: "GPUs in use", Panels: panels, Top: gpus}
}
