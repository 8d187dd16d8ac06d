package chart

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/release/kustomization"
	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/must"
)

const version = "v0.1.0"

// helm is the program.
var helm = sync.OnceValues(func() (string, error) { return sandbox.Tool(context.Background(), "helm") })

// chartOf writes the chart and returns its folder.
func chartOf(t *testing.T) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "tandem")
	must.OK(t, (Chart{Root: repository(t), Version: version}).Write(folder))
	return folder
}

func repository(t *testing.T) string {
	t.Helper()
	root, err := sandbox.Root()
	must.OK(t, err)
	return root
}

// run runs Helm with the values, which are YAML.
func run(t *testing.T, chart, values string, args ...string) ([]byte, error) {
	t.Helper()
	program, err := helm()
	must.OK(t, err)
	file := filepath.Join(t.TempDir(), "values.yaml")
	must.OK(t, os.WriteFile(file, []byte(values), 0o600))
	cmd := exec.CommandContext(t.Context(), program, append(args, "--values", file)...)
	cmd.Args = append(cmd.Args, chart)
	home := t.TempDir()
	cmd.Env = append(os.Environ(), "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = errors.New(stderr.String())
	}
	return out, err
}

// objects renders the chart and returns the objects by what tells them apart, without what Helm needs and the hashes in names.
func objects(t *testing.T, chart, values, namespace string) map[string]object {
	t.Helper()
	raw, err := run(t, chart, values, "template", "tandem", "--namespace", namespace, "--api-versions", mutating)
	must.OK(t, err)
	return byID(t, raw)
}

// hash is what kustomize and the chart put behind the names of ConfigMaps.
var hash = regexp.MustCompile(`(tandem-[a-z]+-config)-[a-z0-9]{10}\b`)

func byID(t *testing.T, raw []byte) map[string]object {
	t.Helper()
	list, err := parse(hash.ReplaceAll(raw, []byte("$1")))
	must.OK(t, err)
	all := map[string]object{}
	for _, o := range list {
		if o.kind() == "CustomResourceDefinition" {
			delete(o.metadata()["annotations"].(map[string]any), "helm.sh/resource-policy")
		}
		if o.kind() == "Namespace" {
			continue
		}
		if _, twice := all[o.id()]; twice {
			t.Errorf("%s is there twice", o.id())
		}
		all[o.id()] = o
	}
	return all
}

// deployed renders deploy/ with components, as kustomize does.
func deployed(t *testing.T, folders ...string) map[string]object {
	t.Helper()
	overlay := kustomization.Overlay{Root: repository(t), Resources: []string{""}, Images: map[string]string{}}
	for _, name := range []string{"scheduler", "controller", "activator", "device-plugin"} {
		overlay.Images["tandem-"+name] = "tandem-" + name + ":" + version
	}
	for _, folder := range folders {
		overlay.Components = append(overlay.Components, "components/"+folder)
	}
	raw, err := overlay.Build()
	must.OK(t, err)
	return byID(t, raw)
}

// sorted orders the lists whose order kustomize chooses.
func sorted(tree any) any {
	switch v := tree.(type) {
	case object:
		return sorted(map[string]any(v))
	case map[string]any:
		for key, value := range v {
			v[key] = sorted(value)
			if l, ok := v[key].([]any); ok && slices.Contains([]string{"env", "volumes", "volumeMounts"}, key) {
				slices.SortFunc(l, func(a, b any) int { return cmp.Compare(itemKey(a), itemKey(b)) })
			}
		}
	case []any:
		for i := range v {
			v[i] = sorted(v[i])
		}
	}
	return tree
}

func compare(t *testing.T, want, got map[string]object) {
	t.Helper()
	if len(want) < 40 {
		t.Errorf("deploy/ has %d objects: the test reads the wrong folder", len(want))
	}
	for id := range want {
		if got[id] == nil {
			t.Errorf("the chart has no %s", id)
			continue
		}
		if diff := gocmp.Diff(sorted(want[id]), sorted(got[id])); diff != "" {
			t.Errorf("%s: deploy/ (-), chart (+):\n%s", id, diff)
		}
	}
	for id := range got {
		if want[id] == nil {
			t.Errorf("the chart has %s, deploy/ has not", id)
		}
	}
}
