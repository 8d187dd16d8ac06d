package dashboards

import (
	"encoding/json"
	"fmt"
	"io"
)

// schema is the version of Grafana's form, that of Grafana 10 and 11; later ones read it too.
const schema = 39

// width is Grafana's number of columns. The other constants are sizes of panels.
const (
	width                   = 24
	valueWidth, valueHeight = 6, 4
	linesWidth, linesHeight = 12, 8
)

type object = map[string]any

var source = object{"type": "prometheus", "uid": "${datasource}"}

// Write writes a dashboard in Grafana's form, or returns the mistakes in it.
func (d *Dashboard) Write(w io.Writer) error {
	if err := d.Check(); err != nil {
		return err
	}
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false) // people read the expressions
	encoder.SetIndent("", "  ")
	err := encoder.Encode(object{
		"uid": "tandem-" + d.Name, "title": "Tandem / " + d.Title, "description": d.Answers, "tags": []string{"tandem"},
		"schemaVersion": schema, "editable": true, "refresh": "30s", "time": object{"from": "now-3h", "to": "now"},
		"templating": object{"list": d.variables()}, "panels": d.panels(),
		"links": []any{object{"type": "dashboards", "title": "Tandem", "tags": []string{"tandem"}, "asDropdown": true, "includeVars": true, "keepTime": true}},
	})
	if err != nil {
		return fmt.Errorf("write dashboard %s: %w", d.Name, err)
	}
	return nil
}

// variables returns what the user chooses: the Prometheus, and values of labels.
func (d *Dashboard) variables() []any {
	all := []any{object{"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}}
	for _, v := range d.Variables {
		ask := fmt.Sprintf("label_values(%s, %s)", v.Of.Name, v.Label)
		all = append(all, object{
			"name": v.Label, "label": v.Label, "type": "query", "datasource": source, "definition": ask,
			"query": object{"query": ask, "refId": "variable"}, "refresh": 2, "sort": 1,
			"multi": true, "includeAll": true, "allValue": ".*", "current": object{"text": "All", "value": "$__all"},
		})
	}
	return all
}

// panels returns the panels with their places, from left to right and from top to bottom.
func (d *Dashboard) panels() []any {
	all := make([]any, 0, len(d.Panels))
	x, y, row := 0, 0, 0
	for i := range d.Panels {
		p := &d.Panels[i]
		w, h := linesWidth, linesHeight
		if p.Kind == Value {
			w, h = valueWidth, valueHeight
		}
		if x+w > width || row != h && x > 0 {
			x, y = 0, y+row
		}
		row = h
		all = append(all, p.object(i+1, object{"x": x, "y": y, "w": w, "h": h}))
		x += w
	}
	return all
}

func (p *Panel) object(id int, at object) object {
	targets := make([]any, 0, len(p.Queries))
	for i, q := range p.Queries {
		target := object{"refId": string(rune('A' + i)), "datasource": source, "expr": q.Expr.String(), "legendFormat": q.Legend, "range": true}
		if p.Kind == Heat {
			target["format"] = "heatmap"
		}
		targets = append(targets, target)
	}
	o := object{
		"id": id, "title": p.Title, "description": p.Answers, "type": string(p.Kind), "datasource": source, "gridPos": at, "targets": targets,
		"fieldConfig": object{"overrides": []any{}, "defaults": object{
			"unit": string(p.Unit), "thresholds": p.thresholds(), "custom": object{"thresholdsStyle": object{"mode": p.style()}},
		}},
	}
	switch p.Kind {
	case Value:
		o["options"] = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "value"}
	case Lines:
		o["options"] = object{"legend": object{"displayMode": "list", "placement": "bottom"}, "tooltip": object{"mode": "multi", "sort": "desc"}}
	case Heat:
		o["options"] = object{"calculate": false, "yAxis": object{"unit": string(p.Unit)}}
	}
	return o
}

// style says how a graph shows its thresholds.
func (p *Panel) style() string {
	if p.Warn == 0 && p.Alarm == 0 {
		return "off"
	}
	return "dashed"
}

func (p *Panel) thresholds() object {
	steps := []any{object{"color": "green", "value": nil}}
	if p.Warn != 0 {
		steps = append(steps, object{"color": "yellow", "value": p.Warn})
	}
	if p.Alarm != 0 {
		steps = append(steps, object{"color": "red", "value": p.Alarm})
	}
	return object{"mode": "absolute", "steps": steps}
}
