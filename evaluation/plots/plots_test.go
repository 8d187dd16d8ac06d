package plots_test

import (
	"bytes"
	"encoding/xml"
	"errors"
	"image/png"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/evaluation/plots"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/test/must"
)

// drawing is what a reader sees in an SVG: the texts, and the number of lines by colour.
type drawing struct {
	texts []string
	lines map[string]int
}

// read parses an SVG; it fails where the file is not well-formed.
func read(t *testing.T, svg []byte) drawing {
	t.Helper()
	d := drawing{lines: map[string]int{}}
	decoder := xml.NewDecoder(bytes.NewReader(svg))
	root, text := "", false
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatalf("SVG is not well-formed: %v", err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			if root == "" {
				root = token.Name.Local
			}
			text = token.Name.Local == "text"
			if token.Name.Local == "path" {
				d.lines[stroke(token)]++
			}
		case xml.CharData:
			if text {
				d.texts = append(d.texts, strings.TrimSpace(string(token)))
			}
		case xml.EndElement:
			text = false
		}
	}
	if root != "svg" {
		t.Fatalf("root element %q, want svg", root)
	}
	return d
}

// stroke returns the colour of a path.
func stroke(e xml.StartElement) string {
	for _, a := range e.Attr {
		if a.Name.Local != "style" {
			continue
		}
		for _, part := range strings.Split(a.Value, ";") {
			if colour, ok := strings.CutPrefix(part, "stroke:"); ok {
				return colour
			}
		}
	}
	return ""
}

func svg(t *testing.T, f plots.Figure) []byte {
	t.Helper()
	var b bytes.Buffer
	must.OK(t, f.SVG(&b))
	return b.Bytes()
}

func lines(names ...string) []plots.Series {
	var all []plots.Series
	for i, n := range names {
		all = append(all, plots.Series{Name: n, Points: []plots.Point{{}, {X: 50, Y: 40 + float64(i)}, {X: 130, Y: 90 + float64(i)}}})
	}
	return all
}

func TestFigures(t *testing.T) {
	series := lines("fgd", "tandem", "scenario of mine")
	tests := []struct {
		figure plots.Figure
		texts  []string
	}{
		{plots.Allocation(series), []string{"GPUs allocated as requests arrive", "GPUs asked for so far (% of all GPUs)", "GPUs allocated (% of all GPUs)"}},
		{plots.Fragmentation(series), []string{"Idle GPUs that the usual pods cannot use", "GPUs asked for so far (% of all GPUs)", "fragmentation (% of all GPUs)"}},
		{plots.Utilisation(series), []string{"GPUs allocated over time", "time (s)", "GPUs allocated (% of all GPUs)"}},
		{plots.FragmentationOverTime(series), []string{"Idle GPUs that the usual pods cannot use", "time (s)", "fragmentation (% of all GPUs)"}},
		{plots.Wait(series), []string{"Time from arrival to start", "wait (s)", "jobs that waited at most so long (%)"}},
		{plots.GangWait(series), []string{"Time from arrival to start of gangs", "wait (s)", "gangs that waited at most so long (%)"}},
		{plots.Lost(series), []string{"Work undone by evictions so far", "time (s)", "work lost (GPU-hours)"}},
		{plots.Completion(series), []string{"Time from arrival to end (job completion time)", "job completion time (s)", "jobs that took at most so long (%)"}},
	}
	for _, tc := range tests {
		t.Run(tc.figure.File, func(t *testing.T) {
			first := svg(t, tc.figure)
			d := read(t, first)
			for _, want := range append(tc.texts, "fgd", "tandem", "scenario of mine") {
				if !slices.Contains(d.texts, want) {
					t.Errorf("no text %q in %q", want, d.texts)
				}
			}
			// Each series is a line and its mark in the legend.
			for _, colour := range []string{"#CC6677", "#332288", "#117733"} {
				if d.lines[colour] != 2 {
					t.Errorf("%d paths of colour %s, want 2 in %v", d.lines[colour], colour, d.lines)
				}
			}
			if !bytes.Equal(first, svg(t, tc.figure)) {
				t.Error("the same series give other bytes")
			}
		})
	}
}

// TestAxesBeginAtZero: heights can be compared by eye.
func TestAxesBeginAtZero(t *testing.T) {
	far := []plots.Series{{Name: "fgd", Points: []plots.Point{{X: 60, Y: 90}, {X: 130, Y: 95}}}}
	for _, f := range []plots.Figure{plots.Allocation(far), plots.Fragmentation(far)} {
		zeros := 0
		for _, text := range read(t, svg(t, f)).texts {
			if text == "0" {
				zeros++
			}
		}
		if zeros != 2 {
			t.Errorf("%s: %d axes have a label at 0, want both", f.File, zeros)
		}
	}
}

// TestColours: every policy has a colour of its own, and keeps it whatever else is drawn.
func TestColours(t *testing.T) {
	seen := map[string]string{}
	for _, name := range placement.Policies() {
		alone := read(t, svg(t, plots.Allocation(lines(name))))
		beside := read(t, svg(t, plots.Allocation(lines("another", name))))
		colour := ""
		for c, n := range alone.lines {
			if n == 2 && strings.HasPrefix(c, "#") && c != "#000000" && c != "#DDDDDD" {
				colour = c
			}
		}
		if colour == "" || beside.lines[colour] < 2 {
			t.Errorf("policy %s has the colour %q alone, and beside another %v", name, colour, beside.lines)
		}
		if other := seen[colour]; other != "" {
			t.Errorf("policies %s and %s both have the colour %s", name, other, colour)
		}
		seen[colour] = name
	}
}

func TestTimeUnits(t *testing.T) {
	for _, tc := range []struct {
		most float64
		want string
	}{{299, "time (s)"}, {300, "time (min)"}, {3*3600 - 1, "time (min)"}, {3 * 3600, "time (h)"}, {4 * 86400, "time (days)"}} {
		f := plots.Utilisation([]plots.Series{{Name: "fgd", Points: []plots.Point{{}, {X: tc.most, Y: 1}}}})
		if f.X != tc.want {
			t.Errorf("%v seconds: axis %q, want %q", tc.most, f.X, tc.want)
		}
	}
	f := plots.Completion([]plots.Series{{Name: "fgd", Points: []plots.Point{{X: 7200, Y: 1}, {X: 14400, Y: 2}}}})
	if diff := cmp.Diff([]plots.Point{{X: 2, Y: 1}, {X: 4, Y: 2}}, f.Series[0].Points); diff != "" {
		t.Errorf("points in hours (-want +got):\n%s", diff)
	}
}

func TestCumulative(t *testing.T) {
	for _, tc := range []struct {
		name   string
		values []float64
		total  int
		want   []plots.Point
	}{
		{"none", nil, 4, nil},
		{"two of four", []float64{10, 30}, 4, []plots.Point{{}, {X: 10, Y: 25}, {X: 30, Y: 50}}},
		{"ties are one step", []float64{0, 10, 10, 20}, 4, []plots.Point{{Y: 25}, {X: 10, Y: 75}, {X: 20, Y: 100}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, plots.Cumulative(tc.values, tc.total)); diff != "" {
				t.Errorf("points (-want +got):\n%s", diff)
			}
		})
	}
}

// TestCumulativeOfMany: a million jobs do not make a million points, and the ends stay where they are.
func TestCumulativeOfMany(t *testing.T) {
	var values []float64
	for i := range 1_000_000 {
		values = append(values, float64(i+1))
	}
	points := plots.Cumulative(values, len(values))
	if n := len(points); n != 2000 || points[0] != (plots.Point{}) || points[n-1] != (plots.Point{X: 1e6, Y: 100}) {
		t.Errorf("%d points from %v to %v", n, points[0], points[n-1])
	}
	for i := 1; i < len(points); i++ {
		if points[i].X <= points[i-1].X {
			t.Fatalf("point %d, %v, is not after %v", i, points[i], points[i-1])
		}
	}
}

// TestHeading: a figure says what it is of.
func TestHeading(t *testing.T) {
	f := plots.Lost(lines("tandem"))
	f.Of = "night-shift"
	if texts := read(t, svg(t, f)).texts; !slices.Contains(texts, "night-shift: Work undone by evictions so far") {
		t.Errorf("no title with the scenario's name in %q", texts)
	}
}

// begin returns where the first area of the second layer begins: the first point of its upper edge.
func begin(t *testing.T, svg []byte) string {
	t.Helper()
	for _, path := range strings.Split(string(svg), `<path d="M`)[1:] {
		if area, _, _ := strings.Cut(path, "/>"); strings.Contains(area, "fill:#88CCEE") {
			point, _, _ := strings.Cut(area, "L")
			return point
		}
	}
	t.Fatal("no area of the second layer")
	return ""
}

// TestPanels: a panel for each policy with its notes, and one legend of the layers. The second layer lies on the first one.
func TestPanels(t *testing.T) {
	layers := func(top float64) []plots.Series {
		return []plots.Series{
			{Name: "inference", Points: []plots.Point{{X: 0, Y: 2}, {X: 24, Y: top}}}, {Name: "training", Points: []plots.Point{{X: 0, Y: 1}, {X: 24, Y: 1}}},
		}
	}
	f := plots.Day([]plots.Panel{{Name: "native", Notes: []string{"12 GPU-hours"}, Layers: layers(2)}, {Name: "tandem", Layers: layers(3)}}, 10)
	f.Of = "mine"
	first := svg(t, f)
	texts := read(t, first).texts
	for text, count := range map[string]int{
		"mine: GPUs in use by kind of work": 1, "native": 1, "12 GPU-hours": 1, "tandem": 1, "inference": 1, "training": 1, "time (h)": 2, "GPUs in use": 2, "24": 2,
	} {
		got := 0
		for _, x := range texts {
			if x == text {
				got++
			}
		}
		if got != count {
			t.Errorf("the text %q stands %d times in %q, want %d", text, got, texts, count)
		}
	}
	upper := begin(t, first)
	f.Panels[0].Layers[0].Points[0].Y, f.Panels[0].Layers[1].Points[0].Y = 1, 2
	if other := begin(t, svg(t, f)); other != upper {
		t.Errorf("the upper layer begins at %q, and at %q where both together are as thick", upper, other)
	}
	f.Panels[0].Layers[0].Points[0].Y = 2
	if other := begin(t, svg(t, f)); other == upper {
		t.Errorf("the upper layer begins at %q, also where both together are thicker", other)
	}
	f.Panels[1].Layers[1].Points[0].Y = math.NaN()
	if err := f.SVG(io.Discard); err == nil || !strings.Contains(err.Error(), "draw day: panel tandem: layer training") {
		t.Errorf("error %v, want one that names the panel and the layer", err)
	}
}

func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "plots")
	paths, err := plots.Write(dir, plots.Allocation(lines("fgd")), plots.Completion(nil))
	must.OK(t, err)
	// Nothing completed, so no figure of it.
	want := []string{filepath.Join(dir, "allocation.svg"), filepath.Join(dir, "allocation.png")}
	if diff := cmp.Diff(want, paths); diff != "" {
		t.Errorf("paths (-want +got):\n%s", diff)
	}
	if b, err := os.ReadFile(want[0]); err != nil || !bytes.Contains(b, []byte("<svg")) {
		t.Errorf("%s is no SVG: %v", want[0], err)
	}
	b, err := os.ReadFile(want[1])
	must.OK(t, err)
	if picture, err := png.Decode(bytes.NewReader(b)); err != nil || picture.Bounds().Dx() != 1440 || picture.Bounds().Dy() != 800 {
		t.Errorf("%s is no picture of 1440 × 800: %v", want[1], err)
	}
	bad := plots.Allocation([]plots.Series{{Name: "fgd", Points: []plots.Point{{Y: math.NaN()}}}})
	if _, err := plots.Write(dir, bad); err == nil || !strings.Contains(err.Error(), "draw allocation: series fgd") {
		t.Errorf("error %v, want one that names the figure and the series", err)
	}
	file := filepath.Join(dir, "allocation.svg")
	if _, err := plots.Write(file, plots.Allocation(lines("fgd"))); err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v, want one that names %s", err, file)
	}
}
