package guides

import (
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/agent/config"
	"github.com/tandem-gpu/tandem/internal/sandbox"
	configv1 "github.com/tandem-gpu/tandem/pkg/api/config/v1"
	"github.com/tandem-gpu/tandem/test/must"
)

// declared finds the flags that a program declares, mentioned those that a page names.
var (
	declared  = regexp.MustCompile(`\.(?:String|Bool|Int|Float32|Duration|StringSlice)Var\([^"\n]*"([a-z-]+)"`)
	mentioned = regexp.MustCompile("`--([a-z-]+)[`= ]")
)

// docs/guides/operating.md names each flag of the programs that administrators set, each setting of the agent and each argument
// of GPUShare, and no flag that there is not.
func TestOperatingNamesAllSettings(t *testing.T) {
	root, err := sandbox.Root()
	must.OK(t, err)
	raw, err := os.ReadFile(filepath.Join(root, "docs", "guides", "operating.md"))
	must.OK(t, err)
	page := string(raw)
	var flags []string
	for _, file := range []string{
		"cmd/controller/flags.go", "cmd/activator/flags.go", "cmd/scheduler/snapshot.go", "cmd/device-plugin/main.go", "cmd/device-plugin/mps.go",
		"cmd/device-plugin/shm.go", "internal/agent/deviceplugin/flags.go",
	} {
		source, err := os.ReadFile(filepath.Join(root, file))
		must.OK(t, err)
		found := declared.FindAllStringSubmatch(string(source), -1)
		if len(found) == 0 {
			t.Errorf("%s declares no flags: the test reads it wrongly", file)
		}
		for _, m := range found {
			flags = append(flags, m[1])
		}
	}
	for _, name := range flags {
		if !strings.Contains(page, "`--"+name+"`") {
			t.Errorf("docs/guides/operating.md does not name the flag --%s", name)
		}
	}
	elsewhere := []string{"snapshot-map", "config"} // a constant names the one; the other is of kubectl tandem too
	for _, m := range mentioned.FindAllStringSubmatch(page, -1) {
		if !slices.Contains(flags, m[1]) && !slices.Contains(elsewhere, m[1]) {
			t.Errorf("docs/guides/operating.md names the flag --%s, which no program has", m[1])
		}
	}
	for _, name := range append(settings("", reflect.TypeFor[config.Config]()), fields(reflect.TypeFor[configv1.GPUShareArgs]())...) {
		if !strings.Contains(page, "`"+name+"`") {
			t.Errorf("docs/guides/operating.md does not name the setting %s", name)
		}
	}
}

// fields returns the names of a struct's fields as files have them, without the type's name and version.
func fields(of reflect.Type) []string {
	var names []string
	for _, f := range reflect.VisibleFields(of) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); !f.Anonymous && len(f.Index) == 1 && name != "" && name != "apiVersion" && name != "kind" {
			names = append(names, name)
		}
	}
	return names
}

// settings returns the paths of all settings below a struct of the agent's configuration.
func settings(above string, of reflect.Type) []string {
	var paths []string
	for _, f := range reflect.VisibleFields(of) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "" || name == "apiVersion" || name == "kind":
		case f.Type.Kind() == reflect.Struct && above == "":
			paths = append(paths, settings(name+".", f.Type)...)
		default:
			paths = append(paths, above+name)
		}
	}
	return paths
}
