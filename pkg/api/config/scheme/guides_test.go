package scheme_test

import (
	"os"
	"reflect"
	"strings"
	"testing"

	configv1 "github.com/tandem-gpu/tandem/pkg/api/config/v1"
)

// TestGuidesHaveAllArguments: the tables of the guides have a row for each argument of the plugin.
func TestGuidesHaveAllArguments(t *testing.T) {
	for path, args := range map[string]reflect.Type{
		"gangs.md": reflect.TypeFor[configv1.GPUGangArgs](), "preemption.md": reflect.TypeFor[configv1.GPUPreemptArgs](),
	} {
		page, err := os.ReadFile("../../../../docs/guides/" + path)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range reflect.VisibleFields(args) {
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			if f.Anonymous || len(f.Index) > 1 || name == "" {
				continue // the type's name and version
			}
			if !strings.Contains(string(page), "\n| `"+name+"` |") && !strings.Contains(string(page), "\n| `"+name+".") {
				t.Errorf("docs/guides/%s has no row for the argument %s of %s", path, name, args.Name())
			}
		}
	}
}
