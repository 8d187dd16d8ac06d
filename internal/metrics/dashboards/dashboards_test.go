package dashboards

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/metrics/query"
	"github.com/tandem-gpu/tandem/internal/metrics/sources"
	"github.com/tandem-gpu/tandem/test/must"
)

// Each dashboard is without mistakes, and each panel says what it answers, in which unit, and what its lines are.
func TestDashboards(t *testing.T) {
	names := map[string]bool{}
	for _, d := range All() {
		if err := d.Check(); err != nil {
			t.Error(err)
		}
		if names[d.Name] || d.Title == "" || d.Answers == "" {
			t.Errorf("dashboard %q comes twice, or has no title or says not what it answers: %q, %q", d.Name, d.Title, d.Answers)
		}
		names[d.Name] = true
		titles := map[string]bool{}
		for _, p := range d.Panels {
			if titles[p.Title] || p.Answers == "" || p.Unit == "" || len(p.Queries) == 0 {
				t.Errorf("%s: panel %q comes twice, or lacks what it answers, a unit or an expression: %+v", d.Name, p.Title, p)
			}
			titles[p.Title] = true
			for _, q := range p.Queries {
				if q.Legend == "" && p.Kind != Value {
					t.Errorf("%s: panel %q does not name its lines", d.Name, p.Title)
				}
			}
		}
	}
}

// A label that the expression does not have, in a legend or a variable, is a mistake, and nothing is written.
func TestMistakes(t *testing.T) {
	held := query.Of(sources.Share("slots"))
	for want, d := range map[string]Dashboard{
		`legend "{{container}}" names a label that sum by (pod) (tandem_pod_slots) does not have`: {
			Name: "d", Panels: []Panel{lines("p", "a", Number, Query{held.Now().Sum(pod), "{{pod}} {{container}}"}, Query{held.Now().Sum(pod), "{{container}}"})},
		},
		`variable fleet: tandem_pod_slots has the labels`: {Name: "d", Variables: []Variable{{"fleet", sources.Share("slots")}}},
		`tandem_pod_slots has no label "fleet"`:           {Name: "d", Panels: []Panel{value("p", "a", Number, query.Of(sources.Share("slots"), query.Is("fleet", "x")).Now())}},
	} {
		if err := d.Write(io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A written dashboard has the panels one beside the other: none lies over another, and all ask the Prometheus that the user
// chose.
func TestGrafana(t *testing.T) {
	for _, d := range All() {
		var b bytes.Buffer
		must.OK(t, d.Write(&b))
		var read struct {
			Templating struct{ List []struct{ Name, Type string } }
			Panels     []struct {
				Title      string
				Datasource struct{ UID string }
				GridPos    struct{ X, Y, W, H int }
				Targets    []struct{ Expr, LegendFormat, RefID string }
				Field      struct {
					Defaults struct {
						Unit       string
						Thresholds struct{ Steps []struct{ Value *float64 } }
						Custom     struct{ ThresholdsStyle struct{ Mode string } }
					}
				} `json:"fieldConfig"`
			}
		}
		must.OK(t, json.Unmarshal(b.Bytes(), &read))
		if l := read.Templating.List; len(l) != 1+len(d.Variables) || l[0].Name != "datasource" || l[0].Type != "datasource" {
			t.Errorf("%s: variables %+v", d.Name, l)
		}
		taken := map[string]string{}
		for i, p := range read.Panels {
			at := p.GridPos
			for x := at.X; x < at.X+at.W; x++ {
				for y := at.Y; y < at.Y+at.H; y++ {
					place := fmt.Sprint(x, ",", y)
					if other := taken[place]; other != "" || x >= width {
						t.Fatalf("%s: panel %q lies over %q or beyond the page: %+v", d.Name, p.Title, other, at)
					}
					taken[place] = p.Title
				}
			}
			if p.Datasource.UID != "${datasource}" || len(p.Targets) != len(d.Panels[i].Queries) {
				t.Errorf("%s: panel %q asks %q, by %d expressions", d.Name, p.Title, p.Datasource.UID, len(p.Targets))
			}
			var steps []float64
			for _, s := range p.Field.Defaults.Thresholds.Steps[1:] { // the first has no value: it is the colour below all others
				steps = append(steps, *s.Value)
			}
			wanted := slices.DeleteFunc([]float64{d.Panels[i].Warn, d.Panels[i].Alarm}, func(v float64) bool { return v == 0 })
			if mode := p.Field.Defaults.Custom.ThresholdsStyle.Mode; !slices.Equal(steps, wanted) || (mode == "off") != (len(wanted) == 0) || p.Field.Defaults.Unit != string(d.Panels[i].Unit) {
				t.Errorf("%s: panel %q has the unit %s and the thresholds %v, shown %s", d.Name, p.Title, p.Field.Defaults.Unit, steps, mode)
			}
			for k, target := range p.Targets {
				if q := d.Panels[i].Queries[k]; target.Expr != q.Expr.String() || target.LegendFormat != q.Legend {
					t.Errorf("%s: panel %q has %q with the legend %q", d.Name, p.Title, target.Expr, target.LegendFormat)
				}
			}
		}
	}
}

// Four values are in a row, and two graphs. A row ends where panels of another height begin.
func TestPlaces(t *testing.T) {
	e := query.Of(sources.Stock("up")).Now()
	v, l := value("", "", Number, e), lines("", "", Number, Query{e, "up"})
	d := Dashboard{Panels: []Panel{v, v, v, v, v, l, l, l, v}}
	want := [][2]int{{0, 0}, {6, 0}, {12, 0}, {18, 0}, {0, 4}, {0, 8}, {12, 8}, {0, 16}, {0, 24}}
	for i, p := range d.panels() {
		if at := p.(object)["gridPos"].(object); at["x"] != want[i][0] || at["y"] != want[i][1] {
			t.Errorf("panel %d is at %v, want %v", i, at, want[i])
		}
	}
}
