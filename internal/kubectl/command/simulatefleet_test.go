package command

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/kubectl/proposal"
	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/test/must"
)

// A fleet at twice its rate adds replicas as its Deployment makes them, with the priority of their class; nothing is written.
func TestFleetAt(t *testing.T) {
	objects := []runtime.Object{}
	for _, text := range []string{`
apiVersion: tandem-gpu.io/v1alpha1
kind: InferenceFleet
metadata: {name: bert, namespace: ns}
spec:
  variants:
  - {name: a100, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: bert-a100}, minReplicas: 1, maxReplicas: 8}
status:
  demand: "90"
  variants: [{name: a100, replicas: 2, ready: 2, weight: 1000, capacity: "45"}]`, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: bert-a100, namespace: ns}
spec:
  template:
    metadata: {labels: {app: bert}}
    spec:
      priorityClassName: serving
      schedulerName: tandem-scheduler
      containers: [{name: server, image: x, resources: {limits: {tandem-gpu.io/vgpu: 5}}}]`, `
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: serving}
value: 7000`} {
		raw, err := yaml.YAMLToJSON([]byte(text))
		must.OK(t, err)
		o := &unstructured.Unstructured{}
		must.OK(t, o.UnmarshalJSON(raw))
		objects = append(objects, o)
	}
	client := dynamicfake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{
		v1alpha1.GroupVersion.WithResource("inferencefleets"): "InferenceFleetList",
	}, objects...)
	sizes, file, err := fleetAt(t.Context(), client, "ns", "bert", 2)
	must.OK(t, err)
	if got, want := sizesText(sizes), "Fleet ns/bert is sized for 90 requests a second. For 180 it would have:\n  a100: 4 replicas, now 2\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	added, err := proposal.Pods(file, "ns", metav1.Now().Time)
	must.OK(t, err)
	raw, err := json.Marshal(added.Pods)
	must.OK(t, err)
	if len(added.Pods) != 2 || added.Pods[0].Request.Priority != 7000 || !strings.Contains(string(raw), `"name":"bert-a100-3"`) {
		t.Errorf("%s", raw)
	}
	for _, a := range client.Actions() {
		if a.GetVerb() != "get" {
			t.Errorf("it asks the API server to %s %s", a.GetVerb(), a.GetResource().Resource)
		}
	}
	if sizes, file, err = fleetAt(t.Context(), client, "ns", "bert", 9); err != nil || !strings.Contains(sizesText(sizes), "They would serve 360: maxReplicas allows no more, or the capacity of a variant is unknown.") || len(file) == 0 {
		t.Errorf("%v, %s", err, sizesText(sizes))
	}
	if _, file, err = fleetAt(t.Context(), client, "ns", "bert", .5); err != nil || len(file) > 0 {
		t.Errorf("%v, half of the rate adds %s", err, file)
	}
	if _, _, err := fleetAt(t.Context(), client, "ns", "other", 2); err == nil {
		t.Error("a fleet that is not there is simulated")
	}
}

// Two of the three added replicas get the halves of the only GPU, and the answer says so below the sizes. A fleet that adds none has its sizes alone.
func TestFleetPlayed(t *testing.T) {
	c, err := testkit.Parse("n1: g0 A100")
	must.OK(t, err)
	snap := &snapshot.Snapshot{Source: snapshot.FromScheduler, At: time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC), Nodes: []snapshot.Node{snapshot.NodeOf(c.Nodes()[0])}}
	var out strings.Builder
	s := &simulation{options: &options{streams: Streams{Out: &out, Env: func(string) string { return "" }}, colour: "never"}, length: time.Hour}
	sizes := &proposal.FleetSizes{Namespace: "ns", Name: "bert", Demand: 10, Asked: 40, Capacity: 40, Variants: []proposal.VariantSize{{Name: "a100", Now: 1, Would: 4}}}
	file := ""
	for _, name := range []string{"bert-1", "bert-2", "bert-3"} {
		file += "---\n{apiVersion: v1, kind: Pod, metadata: {name: " + name + ", namespace: ns}, spec: {containers: [{name: c, image: x, resources: {limits: {tandem-gpu.io/vgpu: 5}}}]}}\n"
	}
	played, err := s.withPods(snap, []byte(file), func(int, int) {})
	must.OK(t, err)
	placed := 0
	for _, w := range played.Changed.Pods {
		if w.Node == "n1" {
			placed++
		}
	}
	must.OK(t, s.writeFleet(snap, &fleetSimulated{sizes, played}))
	if placed != 2 || !strings.HasPrefix(out.String(), "Fleet ns/bert is sized for 10 requests a second. For 40 it would have:\n  a100: 4 replicas, now 1\n") || !strings.Contains(out.String(), "bert-3") {
		t.Errorf("%d got a node:\n%s", placed, &out)
	}
	out.Reset()
	played, err = s.withPods(snap, nil, func(int, int) {})
	must.OK(t, err)
	must.OK(t, s.writeFleet(snap, &fleetSimulated{sizes, played}))
	if got := out.String(); strings.Count(got, "\n") != 3 {
		t.Errorf("without added replicas: %q", got)
	}
}
