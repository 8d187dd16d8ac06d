package recorder

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/shadow"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

var zero = time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)

func at(seconds int) time.Time { return zero.Add(time.Duration(seconds) * time.Second) }

// gfd returns a node with the labels of GPU feature discovery, changed as a test wants.
func gfd(name string, gpus int, change ...func(*v1.Node)) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
		labelCount: fmt.Sprint(gpus), labelProduct: "NVIDIA-A100-SXM4-40GB", labelMemory: "40960", labelReplicas: "1", labelStrategy: "none",
	}}}
	n.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("64"), v1.ResourceMemory: resource.MustParse("256Gi"), resourceGPU: resource.MustParse(fmt.Sprint(gpus)),
	}
	for _, f := range change {
		f(n)
	}
	return n
}

func label(key, value string) func(*v1.Node) { return func(n *v1.Node) { n.Labels[key] = value } }

// TestDevices: what labels say of GPUs, and why they say too little.
func TestDevices(t *testing.T) {
	without := func(key string) func(*v1.Node) { return func(n *v1.Node) { delete(n.Labels, key) } }
	for name, c := range map[string]struct {
		node *v1.Node
		want string
	}{
		"two GPUs":             {gfd("n", 2), "n/g0 n/g1"},
		"one of two is sick":   {gfd("n", 2, func(n *v1.Node) { n.Status.Allocatable[resourceGPU] = resource.MustParse("1") }), "n/g0 n/g1-"},
		"no GPUs":              {&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, ""},
		"no count":             {gfd("n", 2, without(labelCount)), "it has no label nvidia.com/gpu.count of GPU feature discovery"},
		"no product":           {gfd("n", 2, without(labelProduct)), "it has no label nvidia.com/gpu.product of GPU feature discovery"},
		"no memory":            {gfd("n", 2, without(labelMemory)), "it has no label nvidia.com/gpu.memory of GPU feature discovery"},
		"no labels at all":     {gfd("n", 2, func(n *v1.Node) { n.Labels = nil }), "it has no label nvidia.com/gpu.product of GPU feature discovery"},
		"a count of nothing":   {gfd("n", 2, label(labelCount, "none")), `its label nvidia.com/gpu.count is "none", legal is a whole number from 1 to 128`},
		"time-slicing":         {gfd("n", 2, label(labelReplicas, "4")), "its GPUs are shared"},
		"time-slicing by name": {gfd("n", 2, label(labelProduct, "Tesla-T4-SHARED")), "its GPUs are shared"},
		"MPS":                  {gfd("n", 2, label(labelStrategy, "mps")), "its GPUs are shared"},
		"MIG, single":          {gfd("n", 2, label(labelProduct, "NVIDIA-A100-SXM4-40GB-MIG-1g.5gb")), "it has MIG instances"},
		"MIG, mixed": {gfd("n", 2, func(n *v1.Node) { n.Status.Allocatable["nvidia.com/mig-1g.5gb"] = resource.MustParse("7") }),
			"it has MIG instances"},
	} {
		devices, why := devicesOf(c.node, nil)
		var got []string
		for _, d := range devices {
			text := string(d.ID)
			if !d.Healthy {
				text += "-"
			}
			if d.Slots != 10 || d.Memory != 40*vgpu.GiB || d.Model != "NVIDIA-A100-SXM4-40GB" {
				t.Errorf("%s: %+v", name, d)
			}
			got = append(got, text)
		}
		text := strings.Join(got, " ") + why
		if why != "" && !strings.HasPrefix(text, c.want) || why == "" && text != c.want {
			t.Errorf("%s: %q, want %q", name, text, c.want)
		}
	}
}

// A node whose agent is not ready takes no pods, as in the scheduler, and one with a cordoned device none there.
func TestDevicesOfGPUNodes(t *testing.T) {
	for ready, want := range map[metav1.ConditionStatus][]bool{metav1.ConditionTrue: {true, false}, metav1.ConditionFalse: {false, false}, metav1.ConditionUnknown: {false, false}} {
		g := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		for i := range 2 {
			g.Status.Devices = append(g.Status.Devices, v1alpha1.GPUDevice{
				ID: fmt.Sprint("d", i), Index: int32(i), Model: "A100", Slots: 10, Memory: resource.MustParse("40Gi"), Health: v1alpha1.Healthy,
			})
		}
		g.Spec.CordonedDevices = []v1alpha1.CordonedDevice{{ID: "d1"}}
		g.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: ready}}
		devices, why := devicesOf(&v1.Node{ObjectMeta: g.ObjectMeta}, g)
		var got []bool
		for i := range devices {
			got = append(got, devices[i].Healthy)
		}
		if why != "" || !slices.Equal(got, want) {
			t.Errorf("Ready %s: %t, %q, want %t", ready, got, why, want)
		}
	}
}

// pod returns a pod that asks for GPUs or for vGPUs.
func pod(name string, resourceName v1.ResourceName, amount string, change ...func(*v1.Pod)) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID(name), CreationTimestamp: metav1.Time{Time: at(10)}}}
	p.Spec.SchedulerName = "default-scheduler"
	p.Spec.Containers = []v1.Container{{Name: "main", Resources: v1.ResourceRequirements{
		Limits:   v1.ResourceList{resourceName: resource.MustParse(amount)},
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2")},
	}}}
	for _, f := range change {
		f(p)
	}
	return p
}

func annotated(value string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Annotations = map[string]string{"example.com/tenths": value} }
}

// TestRequests: whole GPUs are all slots of so many devices, vGPUs are slots, and an owner's annotation makes a share of one GPU.
func TestRequests(t *testing.T) {
	for name, c := range map[string]struct {
		pod  *v1.Pod
		want string
	}{
		"two GPUs":            {pod("p", resourceGPU, "2"), "20 as 20"},
		"three slots":         {pod("p", v1alpha1.ResourceVGPU, "3"), "3 as 3"},
		"no GPU":              {pod("p", resourceGPU, "0"), "nothing"},
		"a GPU, three tenths": {pod("p", resourceGPU, "1", annotated("3")), "10 as 3"},
		"all tenths":          {pod("p", resourceGPU, "1", annotated("10")), `annotation example.com/tenths is "10", legal is a whole number of tenths of a GPU from 1 to 9`},
		"tenths of two GPUs":  {pod("p", resourceGPU, "2", annotated("3")), "annotation example.com/tenths is for pods of which one container asks for one nvidia.com/gpu"},
		"too many":            {pod("p", resourceGPU, "1000"), "container main asks for 1k nvidia.com/gpu, legal is a whole number from 1 to 128"},
		"both": {pod("p", resourceGPU, "1", func(p *v1.Pod) {
			p.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceVGPU] = resource.MustParse("1")
		}),
			"the pod asks for vGPUs and for whole GPUs"},
	} {
		got := describe(c.pod)
		if got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func describe(p *v1.Pod) string {
	r, err := requestOf(p)
	if err != nil {
		return err.Error()
	}
	if len(r.Containers) == 0 {
		return "nothing"
	}
	would, err := shareOf(p, &r, "example.com/tenths")
	if err != nil {
		return err.Error()
	}
	if would == nil {
		would = &r
	}
	if r.Host.MilliCPU != 2000 || would.Host != r.Host {
		return fmt.Sprintf("takes %v of its host", r.Host)
	}
	return fmt.Sprintf("%d as %d", r.PeakSlots(), would.PeakSlots())
}

// bound makes the other scheduler bind a pod.
func bound(node string, seconds int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Spec.NodeName = node
		p.Status.Conditions = []v1.PodCondition{{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.Time{Time: at(seconds)}}}
	}
}

// finished makes a pod end.
func finished(seconds int) func(*v1.Pod) {
	return func(p *v1.Pod) {
		p.Status.Phase = v1.PodSucceeded
		p.Status.ContainerStatuses = []v1.ContainerStatus{{State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.Time{Time: at(seconds)}}}}}
	}
}

// bed is a Recorder over nodes, with a clock that stands still.
type bed struct {
	*Recorder
	now time.Time
}

func newBed(t *testing.T, nodes ...*v1.Node) *bed {
	t.Helper()
	b := &bed{now: zero}
	policy, err := placement.ByName("packed")
	must.OK(t, err)
	b.Recorder, err = New(Options{
		Config:        shadow.Config{Policy: policy, Queue: sim.Skip, Keep: time.Hour, MaxPods: 100, MaxExamples: 3, Gather: time.Minute},
		SchedulerName: "default-scheduler", ShareAnnotation: "example.com/tenths", Now: func() time.Time { return b.now },
		Gangs: labelled{},
	})
	must.OK(t, err)
	b.look(t, nodes)
	return b
}

func (b *bed) look(t *testing.T, nodes []*v1.Node, pods ...*v1.Pod) {
	t.Helper()
	b.Look(t.Context(), view{nodes: byName(nodes)}, func() []*v1.Pod { return pods })
}

func (b *bed) tell(t *testing.T, pods ...*v1.Pod) {
	t.Helper()
	for _, p := range pods {
		b.Pod(t.Context(), p)
	}
}

func (b *bed) report(t *testing.T, seconds int) *shadow.Report {
	t.Helper()
	b.now = at(seconds)
	r, err := b.Report()
	must.OK(t, err)
	return r
}

// labelled are gangs by a label, of two members.
type labelled struct{}

func (labelled) Of(p *v1.Pod) (podgroup.Ref, bool) {
	name, member := p.Labels["gang"]
	return podgroup.Ref{Namespace: p.Namespace, Name: name}, member
}

func (labelled) Gang(ref podgroup.Ref) (*podgroup.Gang, error) {
	return &podgroup.Gang{Ref: ref, MinCount: 2}, nil
}

// TestRecorder: the other scheduler binds a pod 50 s late, on the node that it selects, after an hour of other work there has ended.
func TestRecorder(t *testing.T) {
	zoned := func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{"zone": "b"} }
	b := newBed(t, gfd("n1", 1), gfd("n2", 1, label("zone", "b")))
	b.tell(t, pod("a", resourceGPU, "1", bound("n2", 10)), pod("b", resourceGPU, "1", zoned))
	b.tell(t, pod("a", resourceGPU, "1", bound("n2", 10), finished(50)), pod("b", resourceGPU, "1", zoned, bound("n2", 100)))
	r := b.report(t, 200)
	if r.GPUs != 2 || r.Pods != 2 || r.Other.Waiting.P99Millis != 90_000 || r.Tandem.Waiting.P99Millis != 0 {
		t.Errorf("%+v", r)
	}
	b = newBed(t, gfd("n1", 1), gfd("n2", 1, label("zone", "b")))
	b.tell(t, pod("a", resourceGPU, "1", zoned, bound("n2", 10), finished(50)), pod("b", resourceGPU, "1", zoned, bound("n2", 100)))
	if r := b.report(t, 200); r.Tandem.Waiting.P99Millis != 40_000 {
		t.Errorf("a node that does not admit a pod took it: %+v", r.Tandem)
	}
}

// TestGates: a pod comes when its last scheduling gate goes. Until then no scheduler tries it.
func TestGates(t *testing.T) {
	b := newBed(t, gfd("n1", 1))
	gated := func(p *v1.Pod) { p.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "example.com/quota"}} }
	b.now = at(20)
	b.tell(t, pod("a", resourceGPU, "1", gated))
	if r := b.report(t, 50); r.Pods != 0 {
		t.Errorf("a gated pod counts: %+v", r)
	}
	b.now = at(100)
	b.tell(t, pod("a", resourceGPU, "1"), pod("a", resourceGPU, "1", bound("n1", 130)))
	if r := b.report(t, 200); r.Pods != 1 || r.Other.Waiting.MeanMillis != 30_000 || r.Tandem.Waiting.MeanMillis != 0 {
		t.Errorf("%+v", r)
	}
}

// TestEndedBefore: news of a pod that ended before the period, and that is not known, change nothing.
func TestEndedBefore(t *testing.T) {
	b := newBed(t, gfd("n1", 1))
	b.now = at(100)
	b.look(t, []*v1.Node{gfd("n1", 1), gfd("n2", 1)})
	b.tell(t, pod("old", resourceGPU, "1", bound("n1", 20), finished(50)))
	if r := b.report(t, 200); r.Other.Touched != 0 || r.Tandem.Touched != 0 || len(r.Unknown) > 0 {
		t.Errorf("%+v", r)
	}
}

// TestIllegalShare: a pod whose share cannot be read has whole GPUs in both worlds, as it has in reality.
func TestIllegalShare(t *testing.T) {
	b := newBed(t, gfd("n1", 1))
	b.tell(t, pod("a", resourceGPU, "1", annotated("0.5"), bound("n1", 10)))
	if r := b.report(t, 100); r.Pods != 1 || r.Shared != 0 || r.Other.Allocated != r.Tandem.Allocated || r.Other.Touched != 1 {
		t.Errorf("%+v", r)
	}
}

// TestPeriodsByNodes: a node that joins begins a period, and so does a cordon; a new label that no pod asks for does not.
func TestPeriodsByNodes(t *testing.T) {
	b := newBed(t, gfd("n1", 1))
	b.tell(t, pod("a", resourceGPU, "1", bound("n1", 10)))
	for i, c := range []struct {
		nodes []*v1.Node
		want  int
	}{
		{[]*v1.Node{gfd("n1", 1)}, 1},
		{[]*v1.Node{gfd("n1", 1, label("nvidia.com/gfd.timestamp", "123"))}, 1},
		{[]*v1.Node{gfd("n1", 1), gfd("n2", 1)}, 2},
		{[]*v1.Node{gfd("n1", 1), gfd("n2", 1)}, 2},
		{[]*v1.Node{gfd("n1", 1), gfd("n2", 1, func(n *v1.Node) { n.Spec.Unschedulable = true })}, 3},
	} {
		b.now = at(20 + i)
		b.look(t, c.nodes)
		if r := b.report(t, 20+i); r.Periods != c.want {
			t.Errorf("look %d: %d periods, want %d", i, r.Periods, c.want)
		}
	}
}

// TestStart: pods that run already are there, pods that have ended are not, other pods take CPU of the host, and pods of other schedulers
// are in no figure of waiting.
func TestStart(t *testing.T) {
	b := newBed(t)
	if _, err := b.Report(); err == nil {
		t.Error("there is a report without a node")
	}
	b.now = at(50)
	b.look(t, []*v1.Node{gfd("n1", 1, label(labelReplicas, "4"))})
	if _, err := b.Report(); err == nil || !strings.Contains(err.Error(), "node n1: its GPUs are shared") {
		t.Errorf("the report of a cluster without known GPUs: %v", err)
	}
	hungry := pod("h", resourceGPU, "0", bound("n1", 10), func(p *v1.Pod) {
		p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("59")
	})
	b.look(t, []*v1.Node{gfd("n1", 3)}, pod("a", resourceGPU, "1", bound("n1", 10)), pod("y", resourceGPU, "2", bound("n1", 10), finished(20)), hungry)
	b.now = at(60)
	late := func(p *v1.Pod) { p.CreationTimestamp = metav1.Time{Time: at(55)} }
	foreign := pod("f", resourceGPU, "1", late, bound("n1", 55), func(p *v1.Pod) { p.Spec.SchedulerName = "volcano" })
	b.tell(t, foreign, pod("b", resourceGPU, "1", late))
	r := b.report(t, 100)
	if r.Pods != 1 || r.Other.InUse != (50.+45)/50 || r.Tandem.Waiting.Still != 1 || r.Tandem.Touched != 2 {
		t.Errorf("%+v", r)
	}
	b.Gone(foreign)
	if r := b.report(t, 200); r.Other.InUse != (150.+45)/150 {
		t.Errorf("a pod that is gone has its GPU: %+v", r.Other)
	}
}

// TestGangsAndShares: members of a gang start together with Tandem, and an owner's annotation makes a share.
func TestGangsAndShares(t *testing.T) {
	member := func(p *v1.Pod) { p.Labels = map[string]string{"gang": "g"} }
	b := newBed(t, gfd("n1", 2))
	b.tell(t, pod("g-0", resourceGPU, "1", member, bound("n1", 20)), pod("g-1", resourceGPU, "1", member, bound("n1", 60)))
	b.tell(t, pod("s", resourceGPU, "1", annotated("2")))
	r := b.report(t, 100)
	if r.Gangs != 1 || r.Shared != 1 || r.Other.PartialGPUSeconds != 40 || r.Tandem.PartialGPUSeconds != 0 {
		t.Errorf("%+v", r)
	}
}
