package plots

import (
	"bytes"
	"errors"
	"fmt"
	"image/color"
	"io"
	"os"
	"path/filepath"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Series is one line: a policy's figures, X ascending.
type Series struct {
	Name   string
	Points []Point
}

// Point is one of a line, in the units of the axes.
type Point struct{ X, Y float64 }

// Figure is a drawing of several series over common axes.
type Figure struct {
	// File is the name that Write gives it, without the ending.
	File string
	// Of is the subject of the figure, for example the name of a scenario. Write puts it before the title; "" leaves it
	// out.
	Of    string
	Title string
	// X and Y are the titles of the axes, with their units.
	X, Y   string
	Series []Series
	// Panels are drawn in place of Series, side by side. Top is given then.
	Panels []Panel
	// Steps says that a value holds until the next one.
	Steps bool
	// Top is where the vertical axis ends; 0 leaves it to the values. The axis always begins at 0.
	Top float64
}

// headroom is the vertical axis ÷ the highest value: with 1 lines run along the upper edge.
const headroom = 1.05

// Sizes of a drawing.
const (
	width       = 9 * vg.Inch
	height      = 5 * vg.Inch
	legendWidth = 1.4 * vg.Inch
	margin      = 0.1 * vg.Inch
)

// SVG writes the figure. The error is one without points, or with one that is no number.
func (f Figure) SVG(w io.Writer) error {
	canvas := vgsvg.New(width, height)
	if err := f.draw(draw.New(canvas)); err != nil {
		return fmt.Errorf("draw %s: %w", f.File, err)
	}
	var b bytes.Buffer
	if _, err := canvas.WriteTo(&b); err != nil {
		return fmt.Errorf("draw %s: %w", f.File, err)
	}
	_, err := w.Write(bytes.ReplaceAll(b.Bytes(), []byte(face), []byte(faces)))
	return err
}

// resolution of a PNG in dots per inch. More is finer than a slide shows and makes larger files.
const resolution = 160

// PNG writes the figure as a picture of 1440 × 800 dots. The error is that of SVG.
func (f Figure) PNG(w io.Writer) error {
	canvas := vgimg.NewWith(vgimg.UseWH(width, height), vgimg.UseDPI(resolution))
	if err := f.draw(draw.New(canvas)); err != nil {
		return fmt.Errorf("draw %s: %w", f.File, err)
	}
	_, err := vgimg.PngCanvas{Canvas: canvas}.WriteTo(w)
	return err
}

// heading is the title with what the figure is of.
func (f Figure) heading() string {
	if f.Of == "" {
		return f.Title
	}
	return f.Of + ": " + f.Title
}

// draw puts the axes and the lines on the left, the legend on the right, or draws panels.
func (f Figure) draw(all draw.Canvas) error {
	if len(f.Panels) > 0 {
		return f.drawPanels(all)
	}
	p, legend := plot.New(), plot.NewLegend()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = f.heading(), f.X, f.Y
	p.Title.Padding = vg.Points(8)
	sans(p, &legend)
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = gridColour, gridColour
	p.Add(grid)
	if err := f.addLines(p, &legend); err != nil {
		return err
	}
	p.X.Min, p.Y.Min = min(p.X.Min, 0), 0
	if p.Y.Max *= headroom; f.Top > 0 {
		p.Y.Max = f.Top
	}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.TickerFunc(ticks), plot.TickerFunc(ticks)
	all.SetColor(color.White)
	all.Fill(all.Path())
	legend.Top, legend.ThumbnailWidth, legend.Padding = true, vg.Points(28), vg.Points(3)
	p.Draw(draw.Crop(all, margin, -legendWidth, margin, -margin))
	legend.Draw(draw.Crop(all, 0, -margin, 0, -margin-p.Title.TextStyle.Font.Size*2))
	return nil
}

// addLines adds the series that have points, in their order.
func (f Figure) addLines(p *plot.Plot, legend *plot.Legend) error {
	drawn := false
	for k, s := range f.Series {
		if len(s.Points) == 0 {
			continue
		}
		line, err := f.line(k)
		if err != nil {
			return fmt.Errorf("series %s: %w", s.Name, err)
		}
		p.Add(line)
		legend.Add(s.Name, line)
		drawn = true
	}
	if !drawn {
		return ErrEmpty
	}
	return nil
}

// ErrEmpty says that a figure has nothing to draw.
var ErrEmpty = errors.New("no values")

func (f Figure) line(k int) (*plotter.Line, error) {
	s := f.Series[k]
	xys := make(plotter.XYs, len(s.Points))
	for i, at := range s.Points {
		xys[i] = plotter.XY{X: at.X, Y: at.Y}
	}
	line, err := plotter.NewLine(xys)
	if err != nil {
		return nil, err
	}
	line.LineStyle = style(s.Name, k)
	if f.Steps {
		line.StepStyle = plotter.PostStep
	}
	return line, nil
}

// formats are the endings of the files, each with what writes it.
var formats = []struct {
	ending string
	write  func(Figure, io.Writer) error
}{{".svg", Figure.SVG}, {".png", Figure.PNG}}

// Write draws figures into a directory, which it makes where it is missing, each as SVG and as PNG, and returns the
// paths of the files. It leaves out a figure without values.
func Write(dir string, figures ...Figure) ([]string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("write plots: %w", err)
	}
	all := make([]string, 0, len(formats)*len(figures))
	for _, f := range figures {
		for _, format := range formats {
			path := filepath.Join(dir, f.File+format.ending)
			err := f.write(path, format.write)
			if errors.Is(err, ErrEmpty) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("write plots: %w", err)
			}
			all = append(all, path)
		}
	}
	return all, nil
}

// write makes the file whole: after an error there is no half of it.
func (f Figure) write(path string, as func(Figure, io.Writer) error) error {
	var b bytes.Buffer
	if err := as(f, &b); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}
