// Package released keeps the forms that releases wrote, and reads them with the programs and definitions of now.
//
// A folder of testdata is one release: its CRDs, objects with their status, an assignment, a pod with the annotations of users, and the
// configurations of the scheduler and the agent. A release adds its folder, and nobody changes it later. The folder of a release that is
// not out yet follows the present forms.
package released

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"sigs.k8s.io/yaml"

	agentconfig "github.com/tandem-gpu/tandem/internal/agent/config"
	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/internal/sandbox"
	_ "github.com/tandem-gpu/tandem/pkg/api/config/scheme"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// patience bounds the wait for definitions. Only a hang reaches it.
const patience = 5 * time.Minute

// eachRelease runs a test with the folder of each release.
func eachRelease(t *testing.T, run func(t *testing.T, folder string)) {
	t.Helper()
	folders, err := filepath.Glob(filepath.Join("testdata", "v*"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("there are no forms of releases: %v", err)
	}
	for _, folder := range folders {
		t.Run(filepath.Base(folder), func(t *testing.T) { run(t, folder) })
	}
}

func read(t *testing.T, folder, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(folder, name))
	must.OK(t, err)
	return raw
}

// The configurations of a release start the programs of now.
func TestConfigurations(t *testing.T) {
	eachRelease(t, func(t *testing.T, folder string) {
		if _, err := options.LoadConfigFromFile(klog.Background(), filepath.Join(folder, "scheduler.yaml")); err != nil {
			t.Errorf("scheduler: %v", err)
		}
		if _, err := agentconfig.Load(filepath.Join(folder, "agent.yaml")); err != nil {
			t.Errorf("agent: %v", err)
		}
	})
}

// An assignment of a release says the same now, and so does what users wrote about a pod.
func TestPods(t *testing.T) {
	eachRelease(t, func(t *testing.T, folder string) {
		var p v1.Pod
		must.OK(t, yaml.UnmarshalStrict(read(t, folder, "pod.yaml"), &p))
		p.UID = "u1"
		r, err := kube.Request(&p)
		if err != nil {
			t.Fatalf("request: %v", err)
		}
		if c := r.Containers[0]; c.Slots != 3 || c.Memory != 8<<30 || r.MaxSlowdown != 1200 {
			t.Errorf("request %+v", r)
		}
		if sizes, err := membership.ElasticSizes(p.Annotations, 2); err != nil || len(sizes) != 4 {
			t.Errorf("sizes %v: %v", sizes, err)
		}
		if _, given, err := kube.RateMetricOf(&p); err != nil || !given {
			t.Errorf("rate metric: %t, %v", given, err)
		}
		a, err := kube.DecodeAssignment(strings.TrimSpace(string(read(t, folder, "assignment.json"))))
		if err != nil {
			t.Fatalf("assignment: %v", err)
		}
		want := v1alpha1.Assignment{Version: 1, UID: "u1", Node: "n1", Containers: []v1alpha1.ContainerAssignment{
			{Name: "a", Devices: []string{"GPU-0"}, Slots: 3, MemoryBytes: 12 << 30, ComputeLimitPercent: 30, MemoryLimitBytes: 12 << 30},
			{Name: "b", Devices: []string{"GPU-1", "GPU-2"}, Slots: 10, MemoryBytes: 30 << 30, ComputeLimitPercent: 100, MemoryLimitBytes: 40 << 30},
		}}
		if diff := cmp.Diff(want, a); diff != "" {
			t.Errorf("assignment (-want +got):\n%s", diff)
		}
	})
}

// Objects that were stored with the definitions of a release stay as they are when those of now are applied, and can be written again.
func TestDefinitions(t *testing.T) {
	eachRelease(t, func(t *testing.T, folder string) {
		plane := sandbox.StartForTest(t, sandbox.Options{})
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		apply(ctx, t, plane, read(t, folder, "crds.yaml"))
		apply(ctx, t, plane, []byte("apiVersion: v1\nkind: Namespace\nmetadata: {name: team}\n"))
		client, err := dynamic.NewForConfig(plane.Admin())
		must.OK(t, err)
		var stored []*unstructured.Unstructured
		for _, document := range strings.Split(string(read(t, folder, "objects.yaml")), "\n---\n") {
			stored = append(stored, store(ctx, t, client, document))
		}
		root, err := sandbox.Root()
		must.OK(t, err)
		files, err := filepath.Glob(filepath.Join(root, "deploy", "crds", "tandem-gpu.io_*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("there are no definitions: %v", err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			must.OK(t, err)
			apply(ctx, t, plane, raw)
		}
		for _, before := range stored {
			again(ctx, t, client, before)
		}
	})
}

func apply(ctx context.Context, t *testing.T, plane *sandbox.ControlPlane, manifest []byte) {
	t.Helper()
	must.OK(t, plane.Apply(ctx, manifest))
}

// at returns the resource of an object.
func at(client dynamic.Interface, o *unstructured.Unstructured) dynamic.ResourceInterface {
	resource := client.Resource(v1alpha1.GroupVersion.WithResource(strings.ToLower(o.GetKind()) + "s"))
	if o.GetNamespace() == "" {
		return resource
	}
	return resource.Namespace(o.GetNamespace())
}

// store creates an object with its status, and returns it as the API server has it.
func store(ctx context.Context, t *testing.T, client dynamic.Interface, document string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	must.OK(t, yaml.Unmarshal([]byte(document), &o.Object))
	var created *unstructured.Unstructured
	var err error
	for created == nil { // the API server takes a moment to serve a new definition
		if created, err = at(client, o).Create(ctx, o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil && ctx.Err() != nil {
			t.Fatalf("create %s: %v", o.GetKind(), err)
		} else if err != nil {
			created = nil
			if !strings.Contains(err.Error(), "could not find the requested resource") {
				t.Fatalf("create %s: %v", o.GetKind(), err)
			}
		}
	}
	status, has := o.Object["status"]
	if !has {
		return created
	}
	created.Object["status"] = status
	if created, err = at(client, o).UpdateStatus(ctx, created, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
		t.Fatalf("write the status of %s: %v", o.GetKind(), err)
	}
	return created
}

// again reads an object, compares it with what it was, and writes it and its status once more.
func again(ctx context.Context, t *testing.T, client dynamic.Interface, before *unstructured.Unstructured) {
	t.Helper()
	now, err := at(client, before).Get(ctx, before.GetName(), metav1.GetOptions{})
	must.OK(t, err)
	for _, part := range []string{"spec", "status"} {
		if diff := cmp.Diff(before.Object[part], now.Object[part]); diff != "" {
			t.Errorf("%s of %s changed (-before +now):\n%s", part, before.GetKind(), diff)
		}
	}
	now.SetLabels(map[string]string{"written": "again"})
	if now, err = at(client, before).Update(ctx, now, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
		t.Errorf("write %s again: %v", before.GetKind(), err)
		return
	}
	if _, err := at(client, before).UpdateStatus(ctx, now, metav1.UpdateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
		t.Errorf("write the status of %s again: %v", before.GetKind(), err)
	}
}
