package scenario

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	kjson "sigs.k8s.io/json"

	"github.com/tandem-gpu/tandem/internal/spelling"
)

// maxBytes bounds a scenario. Larger ones are traces, which have readers of their own.
const maxBytes = 4 << 20

// decode reads the YAML, with every field known and none twice.
func decode(name string, data []byte) (*file, error) {
	if len(data) > maxBytes {
		return nil, &Error{File: name, Found: fmt.Sprintf("%d bytes", len(data)), Want: fmt.Sprintf("at most %d", maxBytes)}
	}
	raw, err := toJSON(name, data)
	if err != nil {
		return nil, err
	}
	if raw == nil || string(raw) == "null" {
		return nil, &Error{File: name, Found: "nothing", Want: "a scenario with the fields " + fieldsOf(reflect.TypeFor[file]())}
	}
	f := &file{}
	strict, err := kjson.UnmarshalStrict(raw, f)
	switch {
	case err != nil:
		return nil, typeError(name, err)
	case len(strict) > 0:
		return nil, strictError(name, data, strict[0])
	}
	return f, nil
}

func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }

// embedded takes the names of embedded structs out of the path of a field.
var embedded = strings.NewReplacer("workFile.", "", "askFile.", "", "standingFile.", "", "generatorFile.", "")

// typeError names a field that is a list in place of an object, and the like.
func typeError(name string, err error) error {
	var wrong *json.UnmarshalTypeError
	if !errors.As(err, &wrong) {
		return &Error{File: name, Found: "no scenario (" + oneLine(err.Error()) + ")", Want: "a scenario in YAML"}
	}
	want := "an object with the fields " + fieldsOf(wrong.Type)
	switch wrong.Type.Kind() {
	case reflect.Slice:
		want = "a list"
	case reflect.Map:
		want = "names with values"
	}
	return &Error{File: name, Field: embedded.Replace(wrong.Field), Found: "a value of type " + wrong.Value, Want: want}
}

// lineOf returns the line of the field at a path such as cluster.groups[1].count, 0 where it is not found.
func lineOf(data []byte, path string) int {
	var document yaml.Node
	if yaml.Unmarshal(data, &document) != nil || len(document.Content) == 0 {
		return 0
	}
	at, line := document.Content[0], 0
	for part := range strings.SplitSeq(path, ".") {
		name, place, isList := strings.Cut(part, "[")
		var value *yaml.Node
		for i := 0; at.Kind == yaml.MappingNode && i+1 < len(at.Content); i += 2 {
			if at.Content[i].Value == name {
				line, value = at.Content[i].Line, at.Content[i+1]
			}
		}
		if value == nil {
			return 0
		}
		at = resolved(value)
		if k, err := strconv.Atoi(strings.TrimSuffix(place, "]")); isList && err == nil && at.Kind == yaml.SequenceNode && k < len(at.Content) {
			at = resolved(at.Content[k])
		}
	}
	return line
}

// resolved returns what an alias stands for.
func resolved(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode {
		return n.Alias
	}
	return n
}

// index matches the place in a list in the path of a field.
var index = regexp.MustCompile(`\[[0-9]+\]`)

// strictError names an unknown field, with the known ones in its place.
func strictError(name string, data []byte, err error) error {
	var at kjson.FieldError
	if !errors.As(err, &at) {
		return &Error{File: name, Found: oneLine(err.Error()), Want: "known fields, each once"}
	}
	path := at.FieldPath()
	parts := strings.Split(index.ReplaceAllString(path, ""), ".")
	known := fieldsAt(reflect.TypeFor[file](), parts[:len(parts)-1])
	found, want := "an unknown field", "one of "+known
	if line := lineOf(data, path); line > 0 {
		found += fmt.Sprintf(" in line %d", line)
	}
	if near, ok := spelling.Nearest(parts[len(parts)-1], strings.Split(known, ", ")); ok {
		want = near + ", which is the nearest, or " + want
	}
	return &Error{File: name, Field: path, Found: found, Want: want}
}

// fieldsAt lists the fields of the object at a path.
func fieldsAt(t reflect.Type, path []string) string {
	for _, part := range path {
		f, ok := reflect.StructField{}, false
		for _, next := range fields(t) {
			if tag(next) == part {
				f, ok = next, true
			}
		}
		if !ok {
			return "those of docs/guides/simulator.md"
		}
		t = f.Type
		for t.Kind() == reflect.Slice || t.Kind() == reflect.Pointer {
			t = t.Elem()
		}
	}
	return fieldsOf(t)
}

func tag(f reflect.StructField) string { return f.Tag.Get("json") }

// fields lists the fields of a struct, those of embedded ones in their place.
func fields(t reflect.Type) []reflect.StructField {
	if t.Kind() != reflect.Struct {
		return nil
	}
	var all []reflect.StructField
	for i := range t.NumField() {
		if f := t.Field(i); f.Anonymous {
			all = append(all, fields(f.Type)...)
		} else {
			all = append(all, f)
		}
	}
	return all
}

func fieldsOf(t reflect.Type) string {
	all := fields(t)
	names := make([]string, 0, len(all))
	for _, f := range all {
		names = append(names, tag(f))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
