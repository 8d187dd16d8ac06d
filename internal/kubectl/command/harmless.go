package command

import (
	"bytes"
	"reflect"

	"github.com/tandem-gpu/tandem/internal/kubectl/wording"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

// harmless takes out of all texts of a snapshot what a terminal takes for commands: tenants choose some of them. Most snapshots have nothing
// of it, and are not looked through.
func harmless(s *snapshot.Snapshot, raw []byte) {
	escaped := bytes.Contains(raw, []byte(`\u00`)) || bytes.ContainsFunc(raw, func(r rune) bool { return r >= 0x7f && r < 0xa0 })
	if escaped {
		plain(reflect.ValueOf(s).Elem())
	}
}

// plain changes the texts in a value.
func plain(v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		if text := wording.Plain(v.String()); v.CanSet() && text != v.String() {
			v.SetString(text)
		}
	case reflect.Pointer:
		if !v.IsNil() {
			plain(v.Elem())
		}
	case reflect.Slice:
		for i := range v.Len() {
			plain(v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			value := v.MapIndex(key)
			v.SetMapIndex(key, reflect.Value{})
			v.SetMapIndex(reflect.ValueOf(wording.Plain(key.String())), reflect.ValueOf(wording.Plain(value.String())))
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				plain(v.Field(i))
			}
		}
	}
}
