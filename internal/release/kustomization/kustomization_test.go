package kustomization

import (
	"bytes"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/must"
)

// object is as much of one as the tests read.
type object struct {
	Kind     string
	Metadata struct {
		Name   string
		Labels map[string]string
	}
}

func built(t *testing.T, o Overlay) []byte {
	t.Helper()
	root, err := sandbox.Root()
	must.OK(t, err)
	o.Root = root
	raw, err := o.Build()
	must.OK(t, err)
	return raw
}

func objects(t *testing.T, raw []byte) []object {
	t.Helper()
	var all []object
	for document := range bytes.SplitSeq(raw, []byte("\n---\n")) {
		var o object
		must.OK(t, yaml.Unmarshal(document, &o))
		all = append(all, o)
	}
	return all
}

// A selector by this label tells the CRDs, with which objects of users go, from all else.
func TestDefinitionsHaveALabel(t *testing.T) {
	definitions := 0
	for _, o := range objects(t, built(t, Overlay{Resources: []string{""}})) {
		labelled := o.Metadata.Labels["app.kubernetes.io/component"] == "crds"
		if labelled {
			definitions++
		}
		if labelled != (o.Kind == "CustomResourceDefinition") {
			t.Errorf("%s %s: it has the label: %t", o.Kind, o.Metadata.Name, labelled)
		}
	}
	if definitions != 4 {
		t.Errorf("%d CRDs have the label, want 4", definitions)
	}
}

// Images are named as the release wants it, with a port in the registry too, and others stay.
func TestImages(t *testing.T) {
	text := string(built(t, Overlay{Resources: []string{""}, Images: map[string]string{
		"tandem-scheduler": "registry.example.com:5000/team/tandem-scheduler:v0.1.0",
	}}))
	for _, want := range []string{"image: registry.example.com:5000/team/tandem-scheduler:v0.1.0\n", "image: tandem-controller:dev\n"} {
		if strings.Count(text, want) != 1 {
			t.Errorf("%d containers run %q", strings.Count(text, want), want)
		}
	}
}

// A component that is not there is an error that names it.
func TestMissingComponent(t *testing.T) {
	root, err := sandbox.Root()
	must.OK(t, err)
	if _, err := (Overlay{Root: root, Resources: []string{""}, Components: []string{"components/none"}}).Build(); err == nil || !strings.Contains(err.Error(), "components/none") {
		t.Errorf("error %v", err)
	}
}
