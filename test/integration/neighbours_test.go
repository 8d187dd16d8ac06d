package integration

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"k8s.io/client-go/rest"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakecluster"
	"github.com/tandem-gpu/tandem/test/must"
)

// Two GPUs, workloads that fill one (heavy) and that hardly use it (light), and pods that tolerate a slowdown of 1.15.
func promisesAmongNeighbours(t *testing.T, api *rest.Config) {
	admin := clientFor(t, api)
	profiles, err := dynamic.NewForConfig(patient(api))
	must.OK(t, err)
	createNode(t, api, fakecluster.GPUNode("a", 1))
	createProfile(t, profiles, "heavy", 100, 60)
	createProfile(t, profiles, "light", 10, 5)
	startScheduler(t, api)
	history := watchNeighbours(t, admin)

	// The newcomer's promise: no GPU is free of heavy.
	createTenant(t, admin, "trainer", "heavy", "")
	awaitOn(t, admin, "trainer", "a")
	createTenant(t, admin, "server", "heavy", "1.15")
	awaitEvent(t, admin, "server", "on a/g0 a slowdown of 1.")
	awaitEvent(t, admin, "server", "is predicted for the pod beside default/trainer; its max-slowdown is 1.15")
	awaitCondition(t, admin, "server", "default/trainer")

	// A pod without profile and promise is placed beside the trainer all the same, and one that is light bears it.
	createTenant(t, admin, "unknown", "", "")
	awaitOn(t, admin, "unknown", "a")
	deletePod(t, admin, "unknown")
	awaitStillPending(t, admin, "server")

	// The neighbour ends, and the pod is placed.
	deletePod(t, admin, "trainer")
	awaitOn(t, admin, "server", "a")

	// The resident's promise: the newcomer has none.
	createTenant(t, admin, "second-trainer", "heavy", "")
	awaitEvent(t, admin, "second-trainer", "on a/g0 the pod would slow down default/server")
	// One that is only said to be light counts as half of what its compute limit allows.
	createTenant(t, admin, "bursting", "light", "")
	awaitEvent(t, admin, "bursting", "(the use of the pod is declared and not observed yet: at least half of what the compute limit allows counts)")
	deletePod(t, admin, "bursting")
	createLimited(t, admin, "bystander", "light", "", "40")
	awaitOn(t, admin, "bystander", "a")
	deletePod(t, admin, "bystander")

	// A malformed promise is refused with the field and the legal values; corrected, it is tried again.
	createLimited(t, admin, "malformed", "light", "0.9", "40")
	awaitEvent(t, admin, "malformed", `metadata.annotations[tandem-gpu.io/max-slowdown]: "0.9" is not legal, it must be a decimal from 1 to 10`)
	patch := []byte(fmt.Sprintf(`{"metadata":{"annotations":{%q:"1.9"}}}`, v1alpha1.AnnotationMaxSlowdown))
	if _, err := admin.CoreV1().Pods("default").Patch(t.Context(), "malformed", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitOn(t, admin, "malformed", "a")
	deletePod(t, admin, "malformed")

	// A profile that is created later changes the decision: nobody knew that the work is light.
	createLimited(t, admin, "newcomer", "undeclared", "", "40")
	awaitEvent(t, admin, "newcomer", "on a/g0 the pod would slow down default/server")
	createProfile(t, profiles, "undeclared", 10, 5)
	awaitOn(t, admin, "newcomer", "a")
	awaitStillPending(t, admin, "second-trainer")
	history.check(t)
}

// createProfile creates a WorkloadProfile with a use of all GPU models.
func createProfile(t *testing.T, client dynamic.Interface, name string, sm, bandwidth int32) {
	t.Helper()
	p := &v1alpha1.WorkloadProfile{}
	p.Name = name
	p.Spec.Uses = []v1alpha1.DeclaredUse{{Model: v1alpha1.AnyModel, SMUtilizationPercent: &sm, MemoryBandwidthPercent: &bandwidth}}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	must.OK(t, err)
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkloadProfile"))
	unstructured.RemoveNestedField(u.Object, "status")
	if _, err := client.Resource(v1alpha1.WorkloadProfiles).Namespace("default").Create(t.Context(), u, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// createTenant creates a pod of a workload ("" for none) that asks for four slots, may burst to its whole GPU, and tolerates
// a slowdown ("" for any).
func createTenant(t *testing.T, client kubernetes.Interface, name, workload, slowdown string) {
	t.Helper()
	createLimited(t, client, name, workload, slowdown, "100")
}

// createLimited creates one that may use so many percent of the SMs.
func createLimited(t *testing.T, client kubernetes.Interface, name, workload, slowdown, compute string) {
	t.Helper()
	limits := v1.ResourceList{v1alpha1.ResourceVGPU: resource.MustParse("4")}
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1alpha1.AnnotationComputeLimit: compute}},
		Spec: v1.PodSpec{Containers: []v1.Container{{
			Name: "main", Image: "none", Resources: v1.ResourceRequirements{Limits: limits},
		}}},
	}
	if workload != "" {
		p.Labels = map[string]string{v1alpha1.LabelProfile: workload}
	}
	if slowdown != "" {
		p.Annotations[v1alpha1.AnnotationMaxSlowdown] = slowdown
	}
	if _, err := client.CoreV1().Pods("default").Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func deletePod(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	must.OK(t, client.CoreV1().Pods("default").Delete(t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))}))
}

// awaitOn waits until a pod is bound, and fails where that is not on the node.
func awaitOn(t *testing.T, client kubernetes.Interface, name, node string) {
	t.Helper()
	poll(t, "pod "+name+" is on node "+node, func(ctx context.Context) (bool, string) {
		p, err := client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return p.Spec.NodeName == node, fmt.Sprintf("it is on %q: %+v", p.Spec.NodeName, p.Status.Conditions)
	})
}

// awaitCondition waits until the condition PodScheduled of a pod says so.
func awaitCondition(t *testing.T, client kubernetes.Interface, name, says string) {
	t.Helper()
	poll(t, "the condition of pod "+name+" says "+says, func(ctx context.Context) (bool, string) {
		p, err := client.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for _, c := range p.Status.Conditions {
			if c.Type == v1.PodScheduled && strings.Contains(c.Message, says) {
				return true, ""
			}
		}
		return false, fmt.Sprintf("%+v", p.Status.Conditions)
	})
}

func awaitStillPending(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	p, err := client.CoreV1().Pods("default").Get(t.Context(), name, metav1.GetOptions{})
	must.OK(t, err)
	if p.Spec.NodeName != "" {
		t.Errorf("pod %s is on node %s", name, p.Spec.NodeName)
	}
}

// neighbours records which pods were ever on one device at one time.
type neighbours struct {
	mu    sync.Mutex
	on    map[vgpu.DeviceID]map[string]*v1.Pod
	pairs map[string][2]*v1.Pod
}

func watchNeighbours(t *testing.T, client kubernetes.Interface) *neighbours {
	t.Helper()
	n := &neighbours{on: map[vgpu.DeviceID]map[string]*v1.Pod{}, pairs: map[string][2]*v1.Pod{}}
	informer := podInformer(client)
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: n.see, UpdateFunc: func(_, updated any) { n.see(updated) }, DeleteFunc: n.miss,
	}); err != nil {
		t.Fatal(err)
	}
	go informer.RunWithContext(t.Context())
	if !cache.WaitForCacheSync(t.Context().Done(), informer.HasSynced) {
		t.Fatal("the pods cannot be watched")
	}
	return n
}

func (n *neighbours) see(object any) {
	p, ok := object.(*v1.Pod)
	if !ok || p.Spec.NodeName == "" {
		return
	}
	a, err := kube.AssignmentOf(p)
	if err != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, id := range a.Containers[0].Devices {
		if n.on[id] == nil {
			n.on[id] = map[string]*v1.Pod{}
		}
		n.on[id][p.Name] = p
		for name, other := range n.on[id] {
			if name != p.Name {
				n.pairs[p.Name+" "+name] = [2]*v1.Pod{p, other}
			}
		}
	}
}

func (n *neighbours) miss(object any) {
	if p, ok := object.(*v1.Pod); ok {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, here := range n.on {
			delete(here, p.Name)
		}
	}
}

// check fails where two heavy pods were neighbours of which either tolerates no more than 1.15, and where there were no
// neighbours at all.
func (n *neighbours) check(t *testing.T) {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.pairs) == 0 {
		t.Error("no two pods were ever on one device")
	}
	for names, pair := range n.pairs {
		heavy, strict := 0, 0
		for _, p := range pair {
			if p.Labels[v1alpha1.LabelProfile] == "heavy" {
				heavy++
			}
			if p.Annotations[v1alpha1.AnnotationMaxSlowdown] == "1.15" {
				strict++
			}
		}
		if heavy == 2 && strict > 0 {
			t.Errorf("the pods %s were on one device", names)
		}
	}
}
