package placeable

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/arguments"
	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/controller/snapshot"
	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

const rack = "example.com/rack"

// noon is the time of the passes.
var noon = time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)

// nodeOf returns a ready node of a rack with 64 cores, and its GPUNode with healthy A100 of ten slots and 40 GiB.
func nodeOf(name, inRack string, devices int) (*v1.Node, *v1alpha1.GPUNode) {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{rack: inRack, v1.LabelHostname: name}}}
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	n.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("512Gi"), v1.ResourcePods: resource.MustParse("110"),
		v1alpha1.ResourceVGPU: resource.MustParse("1000"),
	}
	g := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i := range devices {
		g.Status.Devices = append(g.Status.Devices, v1alpha1.GPUDevice{
			ID: string(testkit.DeviceID(name, i)), Index: int32(i), Model: testkit.A100.Name, Slots: int32(testkit.A100.Slots),
			Memory: *resource.NewQuantity(int64(testkit.A100.Memory), resource.BinarySI), Contexts: 48, Health: v1alpha1.Healthy,
		})
	}
	g.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	return n, g
}

// racks returns four nodes n0 to n3 of two devices each, two to a rack.
func racks() (o snapshot.Objects) {
	o.At = noon
	for i := range 4 {
		n, g := nodeOf(fmt.Sprintf("n%d", i), fmt.Sprintf("r%d", i/2), 2)
		o.Nodes, o.GPUNodes = append(o.Nodes, n), append(o.GPUNodes, g)
	}
	return o
}

// template returns the template of pods that ask for slots, 0 for none, with changes.
func template(slots int64, changes ...func(*v1.PodTemplateSpec)) v1.PodTemplateSpec {
	t := v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}, Annotations: map[string]string{}}}
	t.Spec.SchedulerName = v1alpha1.SchedulerName
	t.Spec.Containers = []v1.Container{{Name: "c0", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{}}}}
	if slots > 0 {
		t.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceVGPU] = *resource.NewQuantity(slots, resource.DecimalSI)
	}
	for _, change := range changes {
		change(&t)
	}
	return t
}

func memory(amount string) func(*v1.PodTemplateSpec) {
	return func(t *v1.PodTemplateSpec) {
		t.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceMemory] = resource.MustParse(amount)
	}
}

func cores(amount string) func(*v1.PodTemplateSpec) {
	return func(t *v1.PodTemplateSpec) {
		t.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse(amount)}
	}
}

// first adds an init container that asks for slots.
func first(slots string) func(*v1.PodTemplateSpec) {
	return func(t *v1.PodTemplateSpec) {
		limits := v1.ResourceList{v1alpha1.ResourceVGPU: resource.MustParse(slots)}
		t.Spec.InitContainers = []v1.Container{{Name: "first", Resources: v1.ResourceRequirements{Limits: limits}}}
	}
}

func annotate(pairs ...string) func(*v1.PodTemplateSpec) {
	return func(t *v1.PodTemplateSpec) {
		for i := 0; i < len(pairs); i += 2 {
			t.Annotations[pairs[i]] = pairs[i+1]
		}
	}
}

// inGang makes the pods members of a gang, with further annotations.
func inGang(name, least string, pairs ...string) func(*v1.PodTemplateSpec) {
	return func(t *v1.PodTemplateSpec) {
		t.Labels[v1alpha1.LabelGang] = name
		annotate(append(pairs, v1alpha1.AnnotationMinMembers, least)...)(t)
	}
}

// onNodes has the pods run on nodes with a label alone.
func onNodes(kind string) func(*v1.PodTemplateSpec) {
	return func(t *v1.PodTemplateSpec) { t.Spec.NodeSelector = map[string]string{"example.com/kind": kind} }
}

func class(name string) func(*v1.PodTemplateSpec) {
	return func(t *v1.PodTemplateSpec) { t.Spec.PriorityClassName = name }
}

// set returns a podset.
func set(name string, count int32, t v1.PodTemplateSpec) PodSet {
	return PodSet{Name: name, Count: count, Template: t}
}

// work returns a Workload of namespace ns with quota for all of its pods.
func work(name string, sets ...PodSet) *Workload {
	w := &Workload{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name)}}
	w.Spec.PodSets = sets
	w.Status.Conditions = []metav1.Condition{{Type: quotaReserved, Status: metav1.ConditionTrue, LastTransitionTime: metav1.NewTime(noon)}}
	return w
}

// reclaim says that pods of the first podset are done.
func reclaim(w *Workload, count int32) *Workload {
	w.Status.ReclaimablePods = []Reclaimable{{Name: w.Spec.PodSets[0].Name, Count: count}}
	return w
}

// grant gives the first podset of a Workload quota for a number of pods, of a flavor.
func grant(w *Workload, count int32, flavor string) *Workload {
	w.Status.Admission = &struct {
		PodSetAssignments []Assignment `json:"podSetAssignments"`
	}{[]Assignment{{Name: w.Spec.PodSets[0].Name, Count: &count, Flavors: map[v1.ResourceName]string{v1alpha1.ResourceVGPU: flavor}}}}
	return w
}

// runs returns a pod with slots of a device.
func runs(t testing.TB, name, node string, device int, slots vgpu.Slots, priority int32) *v1.Pod {
	t.Helper()
	made := template(int64(slots))
	p := &v1.Pod{ObjectMeta: made.ObjectMeta, Spec: made.Spec}
	p.Namespace, p.Name, p.UID, p.ResourceVersion = "ns", name, types.UID("uid-"+name), "1"
	p.Spec.Priority, p.Spec.NodeName, p.Status.Phase = &priority, node, v1.PodRunning
	a := testkit.Assignment(t, testkit.Node(t, node, testkit.A100, 8), device, "ns/"+name, slots)
	a.UID = vgpu.UID(p.UID)
	raw, err := kube.EncodeAssignment(a)
	must.OK(t, err)
	p.Annotations[v1alpha1.AnnotationAssignment] = raw
	return p
}

// everywhere returns a pod on every device of the four nodes.
func everywhere(t testing.TB, slots vgpu.Slots, priority int32) (pods []*v1.Pod) {
	for i := range 8 {
		pods = append(pods, runs(t, fmt.Sprintf("old-%d", i), fmt.Sprintf("n%d", i/2), i%2, slots, priority))
	}
	return pods
}

// preemption returns the default arguments of GPUPreempt, with changes.
func preemption(t testing.TB, changes ...func(*config.GPUPreemptArgs)) *config.GPUPreemptArgs {
	t.Helper()
	standard, err := arguments.Defaults()
	must.OK(t, err)
	for _, change := range changes {
		change(standard.Preempt)
	}
	return standard.Preempt
}

// viewOf returns the view of a pass, of a scheduler with the default arguments.
func viewOf(t testing.TB, o snapshot.Objects) *View {
	t.Helper()
	var r snapshot.Reader
	guards, err := guardsOf(preemption(t))
	must.OK(t, err)
	return &View{
		Cluster: r.Read(o), Pods: o.Pods, Guards: guards, Now: o.At,
		Flavors: map[string]Flavor{
			"r1": {NodeLabels: map[string]string{rack: "r1"}}, "r7": {NodeLabels: map[string]string{rack: "r7"}},
			"tainted": {Tolerations: []v1.Toleration{{Key: "gpu", Operator: v1.TolerationOpExists}}},
		},
		Classes: Classes{Values: map[string]int32{"high": 1000, "polite": 1000}, Preempts: map[string]bool{"high": true, "polite": false}},
	}
}

// owner returns the reference to what made a pod, or is queued.
func owner(name string) []metav1.OwnerReference {
	return []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: "Job", Name: name, UID: types.UID("uid-" + name), Controller: new(true)}}
}

func slots(n int) vgpu.Slots { return vgpu.Slots(n) }

// drawn says what is free on each node.
func drawn(v *View) string {
	text := ""
	for _, n := range v.Cluster.Nodes {
		taken, _ := n.Taken()
		text += fmt.Sprintf("%s: %d slots taken, room %v\n", n.Name(), taken, n.Room())
	}
	return text
}
