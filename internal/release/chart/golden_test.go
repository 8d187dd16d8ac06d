package chart

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/test/must"
)

var update = flag.Bool("update", false, "write the golden files anew")

// Each prepared file of values, testdata/NAME.yaml, makes the changes of testdata/NAME.golden.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 3 {
		t.Fatalf("files of values: %v, error %v", files, err)
	}
	chart := chartOf(t)
	plain := objects(t, chart, "", systemNamespace)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			values, err := os.ReadFile(file)
			must.OK(t, err)
			got := differences(plain, objects(t, chart, string(values), systemNamespace))
			golden := strings.TrimSuffix(file, ".yaml") + ".golden"
			if *update {
				must.OK(t, os.WriteFile(golden, []byte(got), 0o644))
			}
			want, err := os.ReadFile(golden)
			must.OK(t, err)
			if diff := gocmp.Diff(string(want), got); diff != "" {
				t.Errorf("golden (-), chart (+); -update writes it anew:\n%s", diff)
			}
		})
	}
}

// differences lists what differs, a line for each place.
func differences(before, after map[string]object) string {
	var lines []string
	for id, o := range before {
		if after[id] == nil {
			lines = append(lines, "- "+id)
			continue
		}
		differ := func(path, was, is string) { lines = append(lines, fmt.Sprintf("%s %s: %s → %s", id, path, was, is)) }
		walk("", read(o), read(after[id]), differ)
	}
	for id := range after {
		if before[id] == nil {
			lines = append(lines, "+ "+id)
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n") + "\n"
}

// read has configurations as trees.
func read(o object) map[string]any {
	tree := maps.Clone(map[string]any(o))
	text, ok := at(tree, "data", "config.yaml").(string)
	if !ok {
		return tree
	}
	var config map[string]any
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		return tree
	}
	tree["data"] = map[string]any{"config.yaml": config}
	return tree
}

func walk(path string, was, is any, differ func(path, was, is string)) {
	a, ok := was.(map[string]any)
	b, also := is.(map[string]any)
	if ok && also {
		keys := maps.Clone(a)
		maps.Copy(keys, b)
		for key := range keys {
			walk(path+"."+key, a[key], b[key], differ)
		}
		return
	}
	l, ok := was.([]any)
	m, also := is.([]any)
	if ok && also && len(l) == len(m) {
		for i := range l {
			walk(fmt.Sprintf("%s[%d]", path, i), l[i], m[i], differ)
		}
		return
	}
	if !gocmp.Equal(was, is) {
		differ(strings.TrimPrefix(path, "."), flat(was), flat(is))
	}
}

func flat(v any) string {
	raw, err := yaml.Marshal(v)
	if err != nil {
		return err.Error()
	}
	converted, err := yaml.YAMLToJSON(raw)
	if err != nil {
		return err.Error()
	}
	return string(converted)
}
