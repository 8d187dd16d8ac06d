package integration

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/must"
)

// exampleGangs are the gangs of examples/gangs, by name, with their members: all of them are needed.
var exampleGangs = map[string]int{"bert": 4, "lammps": 4, "resnet": 4, "llama": 4}

// examplesRun applies the files of examples/gangs as they stand. PodGroups that the cluster does not serve are refused, as
// kubectl does, and all pods run without them.
func examplesRun(t *testing.T, c *gangCluster) {
	root, err := sandbox.Root()
	must.OK(t, err)
	files, err := filepath.Glob(filepath.Join(root, "examples", "gangs", "*.yaml"))
	must.OK(t, err)
	var refused []string
	for _, file := range files {
		if !c.applyExample(t, file) {
			refused = append(refused, filepath.Base(file))
		}
	}
	want := map[podgroup.Source][]string{
		podgroup.Label:  {"podgroups-native.yaml", "podgroups-x-k8s.yaml"},
		podgroup.XK8s:   {"podgroups-native.yaml"},
		podgroup.Native: {"podgroups-x-k8s.yaml"},
	}[c.source]
	if diff := cmp.Diff(want, refused); diff != "" {
		t.Fatalf("files that the API server refuses (-want +got):\n%s", diff)
	}
	for name, members := range exampleGangs {
		nodes := c.awaitGang(t, name, members)
		c.checkTogether(t, testGang{name: name, min: members})
		if name == "lammps" && len(slices.Compact(slices.Sorted(slices.Values(nodes)))) != 1 {
			t.Errorf("gang %s requires one node and is on %v", name, nodes)
		}
	}
	c.checkExamples(t)
}

// unknownGroup is what an older API server says of the example whose pods name a PodGroup, when every unknown field is an error.
const unknownGroup = `strict decoding error: unknown field "spec.template.spec.schedulingGroup"`

// applyExample creates the objects of a file, with every unknown field an error, and reports whether the API server serves
// their kinds. If it does not know the field by which pods name a PodGroup, that one is dropped, as the example says.
func (c *gangCluster) applyExample(t *testing.T, file string) bool {
	t.Helper()
	client, err := discovery.NewDiscoveryClientForConfig(patient(c.api))
	must.OK(t, err)
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(client))
	for _, object := range documents(t, file) {
		kind := object.GroupVersionKind()
		mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
		if meta.IsNoMatchError(err) {
			return false
		}
		must.OK(t, err)
		objects := c.objects.Resource(mapping.Resource).Namespace(c.namespace)
		_, err = objects.Create(life(t), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		if err != nil && strings.HasSuffix(err.Error(), unknownGroup) {
			_, err = objects.Create(life(t), object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationWarn})
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		t.Cleanup(func() { // an operator would make the pods again that the test removes
			if err := objects.Delete(life(t), object.GetName(), metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
				t.Errorf("%s: %v", file, err)
			}
		})
	}
	return true
}

// checkExamples: no share is given twice, and the gang that Kubernetes' PodGroup declares is one to the API server too.
func (c *gangCluster) checkExamples(t *testing.T) {
	t.Helper()
	pods := c.pods(t)
	if len(pods) != 16 {
		t.Errorf("%d pods exist", len(pods))
	}
	withShares := slices.DeleteFunc(slices.Clone(pods), func(p v1.Pod) bool { return p.Name == "lammps-launcher" })
	checkLedger(t, withShares, c.gpus)
	if c.source != podgroup.Native {
		return
	}
	for _, p := range c.members(t, "llama") {
		if p.Spec.SchedulingGroup == nil {
			t.Errorf("pod %s names no PodGroup", p.Name)
		}
	}
	c.awaitPodGroup(t, "llama", metav1.ConditionTrue)
}

// awaitPodGroup waits until the condition of a PodGroup of Kubernetes, which tells whether it was scheduled, has a status.
func (c *gangCluster) awaitPodGroup(t *testing.T, name string, status metav1.ConditionStatus) {
	t.Helper()
	if c.stable {
		return // the scheduler's own queue does not know the PodGroups, and writes no condition
	}
	c.await(t, "the condition of PodGroup "+name+" is "+string(status), func() (bool, string) {
		pg, err := c.admin.SchedulingV1beta1().PodGroups(c.namespace).Get(life(t), name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		found := meta.FindStatusCondition(pg.Status.Conditions, schedulingv1beta1.PodGroupInitiallyScheduled)
		return found != nil && found.Status == status, fmt.Sprintf("%+v", pg.Status.Conditions)
	})
}
