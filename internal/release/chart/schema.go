package chart

import (
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	agent "github.com/tandem-gpu/tandem/internal/agent/config"
)

// schema is a JSON schema.
type schema = map[string]any

// spelled are the types that are written as one word, where Go has more.
var spelled = map[reflect.Type]schema{
	reflect.TypeFor[metav1.Duration]():   {"type": "string", "pattern": durationPattern},
	reflect.TypeFor[agent.Duration]():    {"type": "string", "pattern": durationPattern},
	reflect.TypeFor[resource.Quantity](): {"type": []any{"string", "number"}},
}

// durationPattern is what Go's time.ParseDuration takes, without a sign.
const durationPattern = `^([0-9]+(\.[0-9]+)?(ns|us|µs|ms|s|m|h))+$|^0$`

// schemaOf returns the schema of a type: its fields by their names in JSON, and no others. The program says at its start what
// bounded cannot add.
func schemaOf(t reflect.Type) schema {
	if s, ok := spelled[t]; ok {
		return s
	}
	switch t.Kind() {
	case reflect.Pointer:
		return schemaOf(t.Elem())
	case reflect.Struct:
		properties := schema{}
		fields(t, properties)
		return schema{"type": "object", "additionalProperties": false, "properties": properties}
	case reflect.Slice:
		return schema{"type": "array", "items": schemaOf(t.Elem())}
	case reflect.Map:
		return schema{"type": "object", "additionalProperties": schemaOf(t.Elem())}
	case reflect.Bool:
		return schema{"type": "boolean"}
	case reflect.Int, reflect.Int32, reflect.Int64:
		return schema{"type": "integer"}
	case reflect.Float64:
		return schema{"type": "number"}
	}
	return schema{"type": "string"}
}

// fields adds the fields of a struct, those of embedded ones included. Kinds and versions of objects are the chart's business.
func fields(t reflect.Type, properties schema) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Type == reflect.TypeFor[metav1.TypeMeta]() || name == "kind" || name == "apiVersion":
		case f.Anonymous && name == "":
			fields(f.Type, properties)
		case f.IsExported() && name != "-":
			properties[name] = schemaOf(f.Type)
		}
	}
}
