package chart

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// component is a folder of deploy/components, with the value that switches it on.
type component struct{ folder, value string }

var components = []component{
	{"device-mounts", ".Values.components.deviceMounts"},
	{"gpu-admin", ".Values.components.gpuAdmin"},
	{"network-policies", ".Values.components.networkPolicies"},
	{"node-memory", ".Values.components.nodeMemory"},
	{"placeable", ".Values.components.placeable"},
	{"pods-from-apiserver", ".Values.components.podsFromAPIServer"},
	{"sane-requests", ".Values.components.saneRequests"},
	{"scheduler-name", ".Values.components.schedulerName"},
	{"shm-sweep", ".Values.components.shmSweep"},
}

// change is what a component does at one place of an object: it adds a key, an item of a list, or sets another value.
type change struct {
	// value switches it on.
	value string
	// item is what is added to a list, or the value that is set.
	item any
}

// changes are what all components do at one place.
type changes struct {
	// in is the object or the list; key is "" for items of a list.
	in  map[string]any
	key string
	// kind is added, appended or set.
	kind string
	list []change
}

// differ collects what components change.
type differ struct {
	// places are in the order in which they were found.
	places []*changes
}

func (d *differ) add(in map[string]any, key, kind string, c change) {
	for _, p := range d.places {
		if p.key == key && p.kind == kind && reflect.ValueOf(p.in).Pointer() == reflect.ValueOf(in).Pointer() {
			p.list = append(p.list, c)
			return
		}
	}
	d.places = append(d.places, &changes{in: in, key: key, kind: kind, list: []change{c}})
}

// compare finds what a component changes in an object. Components add and set; they take nothing away.
func (d *differ) compare(base, changed map[string]any, value string) error {
	for _, key := range slices.Sorted(maps.Keys(base)) {
		if _, ok := changed[key]; !ok {
			return fmt.Errorf("read the component of %s: it takes %s away, which the chart cannot say", value, key)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(changed)) {
		was, known := base[key]
		is := changed[key]
		switch {
		case !known:
			d.add(base, key, "added", change{value, is})
		case reflect.DeepEqual(was, is):
		default:
			if err := d.inside(base, key, is, value); err != nil {
				return fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	return nil
}

// inside compares what is at a key of both.
func (d *differ) inside(base map[string]any, key string, is any, value string) error {
	switch was := base[key].(type) {
	case map[string]any:
		now, ok := is.(map[string]any)
		if !ok {
			return fmt.Errorf("read the component of %s: it sets %v, which is no object", value, is)
		}
		return d.compare(was, now, value)
	case []any:
		now, ok := is.([]any)
		if !ok {
			return fmt.Errorf("read the component of %s: it sets %v, which is no list", value, is)
		}
		return d.items(base, key, was, now, value)
	}
	d.add(base, key, "set", change{value, is})
	return nil
}

// items compares lists whose items have names; mounts go by their paths.
func (d *differ) items(base map[string]any, key string, was, now []any, value string) error {
	for _, item := range now {
		same := slices.IndexFunc(was, func(other any) bool { return itemKey(other) == itemKey(item) })
		if same < 0 {
			d.add(base, key, "appended", change{value, item})
			continue
		}
		before, ok := was[same].(map[string]any)
		after, also := item.(map[string]any)
		if !ok || !also {
			continue
		}
		if err := d.compare(before, after, value); err != nil {
			return err
		}
	}
	return nil
}

func itemKey(item any) string {
	m, ok := item.(map[string]any)
	if !ok {
		return fmt.Sprint(item)
	}
	for _, key := range []string{"mountPath", "name"} {
		if s, ok := m[key].(string); ok {
			return s
		}
	}
	return fmt.Sprint(item)
}

// apply puts marks where components change something.
func (d *differ) apply(t *template) error {
	for _, p := range d.places {
		switch p.kind {
		case "appended":
			list := p.in[p.key].([]any)
			for _, c := range p.list {
				lines, err := lines([]any{c.item})
				if err != nil {
					return err
				}
				list = append(list, t.lines("{{- if "+c.value+" }}\n"+lines+"\n{{- end }}"))
			}
			p.in[p.key] = list
		case "set":
			expression := ""
			for _, c := range p.list {
				expression += fmt.Sprintf("{{ if %s }}%v{{ else }}", c.value, c.item)
			}
			p.in[p.key] = t.value(fmt.Sprintf("%s%v%s", expression, p.in[p.key], strings.Repeat("{{ end }}", len(p.list))))
		case "added":
			if err := p.addKey(t); err != nil {
				return err
			}
		}
	}
	return nil
}

// addKey adds a key that one component adds, or a list to which several add.
func (p *changes) addKey(t *template) error {
	values := make([]string, 0, len(p.list))
	var block strings.Builder
	for _, c := range p.list {
		values = append(values, c.value)
	}
	condition := values[0]
	if len(values) > 1 {
		condition = "or " + strings.Join(values, " ")
	}
	fmt.Fprintf(&block, "{{- if %s }}\n%s:\n", condition, p.key)
	for _, c := range p.list {
		if _, list := c.item.([]any); !list {
			return fmt.Errorf("read the component of %s: it adds %s, which is no list", c.value, p.key)
		}
		text, err := lines(c.item)
		if err != nil {
			return err
		}
		fmt.Fprintf(&block, "{{- if %s }}\n%s\n{{- end }}\n", c.value, text)
	}
	block.WriteString("{{- end }}")
	p.in[t.lines(block.String())] = ""
	return nil
}

func lines(tree any) (string, error) {
	raw, err := yaml.Marshal(tree)
	return strings.TrimSuffix(string(raw), "\n"), err
}
