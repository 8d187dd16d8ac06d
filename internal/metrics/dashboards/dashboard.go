// Package dashboards has the dashboards of Tandem as tables, and writes them in Grafana's form.
//
// A panel answers one question of an operator. Its expressions are made from the families of the programs (package query), so that no
// panel asks for a metric or a label that no program serves. The package knows nothing of what Grafana shows beyond lines, single values
// and heat maps.
package dashboards

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/tandem-gpu/tandem/internal/metrics"
	"github.com/tandem-gpu/tandem/internal/metrics/query"
)

// Dashboard is one page of panels.
type Dashboard struct {
	// Name of the file and identifier in Grafana.
	Name, Title string
	// Answers says which question the dashboard answers.
	Answers string
	// Variables are the labels whose values the user chooses.
	Variables []Variable
	Panels    []Panel
}

// Variable is a label whose values the user of a dashboard chooses: those that a family has.
type Variable struct {
	Label string
	Of    metrics.Family
}

// Kind is how a panel looks.
type Kind string

// Kinds of panels, in Grafana's words.
const (
	Value Kind = "stat"
	Lines Kind = "timeseries"
	Heat  Kind = "heatmap"
)

// Unit of the values of a panel, in Grafana's words.
type Unit string

// Units of panels.
const (
	Number    Unit = "short"
	Ratio     Unit = "percentunit" // 1 is 100 %
	Seconds   Unit = "s"
	Bytes     Unit = "bytes"
	PerSecond Unit = "ops"
	Watts     Unit = "watt"
	Celsius   Unit = "celsius"
)

// Panel answers one question.
type Panel struct {
	Title string
	// Answers is the question and how to read the answer.
	Answers string
	Kind    Kind
	Unit    Unit
	Queries []Query
	// Warn and Alarm are the values from which on the panel turns yellow and red; 0 for none.
	Warn, Alarm float64
}

// Query is an expression with the name of its lines, in which {{label}} stands for the value of a label.
type Query struct {
	Expr   query.Expr
	Legend string
}

// All returns the dashboards in the order in which an operator needs them.
func All() []Dashboard { return []Dashboard{cluster(), node(), tenant(), interference(), gangs()} }

var placeholder = regexp.MustCompile(`{{([a-z_]+)}}`)

// Check returns the mistakes in a dashboard: in its expressions, or a label that its expressions do not have.
func (d *Dashboard) Check() error {
	var all []error
	for _, v := range d.Variables {
		if !slices.Contains(append(v.Of.Labels, query.Node), v.Label) {
			all = append(all, fmt.Errorf("variable %s: %s has the labels %v", v.Label, v.Of.Name, v.Of.Labels))
		}
	}
	for _, p := range d.Panels {
		for _, q := range p.Queries {
			if err := q.Expr.Err(); err != nil {
				all = append(all, fmt.Errorf("panel %q: %w", p.Title, err))
			}
			for _, found := range placeholder.FindAllStringSubmatch(q.Legend, -1) {
				if !slices.Contains(q.Expr.Labels(), found[1]) {
					all = append(all, fmt.Errorf("panel %q: legend %q names a label that %s does not have: it has %v", p.Title, q.Legend, q.Expr, q.Expr.Labels()))
				}
			}
		}
	}
	if len(all) > 0 {
		return fmt.Errorf("dashboard %s: %w", d.Name, errors.Join(all...))
	}
	return nil
}

// lines, value and heat make panels.
func lines(title, answers string, unit Unit, queries ...Query) Panel {
	return Panel{Title: title, Answers: answers, Kind: Lines, Unit: unit, Queries: queries}
}

func value(title, answers string, unit Unit, e query.Expr) Panel {
	return Panel{Title: title, Answers: answers, Kind: Value, Unit: unit, Queries: []Query{{Expr: e}}}
}

func heat(title, answers string, unit Unit, e query.Expr) Panel {
	return Panel{Title: title, Answers: answers, Kind: Heat, Unit: unit, Queries: []Query{{e, "{{le}}"}}}
}

// from returns the panel with the values from which on it turns yellow and red; 0 for none.
func (p Panel) from(warn, alarm float64) Panel {
	p.Warn, p.Alarm = warn, alarm
	return p
}
