package main

import (
	"bytes"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/examples/elastic/trainer/worker"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// The manifests beside the program have no field that does not exist, and start the program with flags that it has.
func TestManifests(t *testing.T) {
	content, err := os.ReadFile("../trainer.yaml")
	if err != nil {
		t.Fatal(err)
	}
	docs := bytes.Split(content, []byte("\n---\n"))
	if len(docs) != 4 {
		t.Fatalf("%d documents", len(docs))
	}
	var service v1.Service
	var servers appsv1.StatefulSet
	var workers batchv1.Job
	var profile v1alpha1.WorkloadProfile
	for i, into := range []any{&service, &servers, &workers, &profile} {
		if err := yaml.UnmarshalStrict(docs[i], into); err != nil {
			t.Errorf("document %d: %v", i, err)
		}
	}
	for _, template := range []v1.PodTemplateSpec{servers.Spec.Template, workers.Spec.Template} {
		checkArgs(t, template.Spec.Containers[0].Args)
	}
	if got := workers.Spec.Template.Annotations[v1alpha1.AnnotationRateMetric]; got != "9400/metrics#"+worker.Metric {
		t.Errorf("the workers' rate is at %q", got)
	}
}

// checkArgs checks the arguments of a container with the checks of the program.
func checkArgs(t *testing.T, args []string) {
	t.Helper()
	for _, index := range []string{"0", "1"} {
		var errs bytes.Buffer
		all := strings.Split(strings.ReplaceAll(strings.Join(args, " "), "$(INDEX)", index), " ")
		// The last flag stops the program after it has checked the others.
		code := execute(t.Context(), append(all, "--patience=-1s"), &errs, &errs)
		if want := "trainer: --patience: -1s is not 0s or more\n"; code != broken || errs.String() != want {
			t.Errorf("trainer %s: exit code %d, %q", strings.Join(all, " "), code, errs.String())
		}
	}
}
