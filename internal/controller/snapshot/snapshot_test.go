package snapshot

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// node returns a ready node of 8 cores, 64 GiB and 4 pods, with labels in pairs.
func node(name string, pairs ...string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	for i := 0; i < len(pairs); i += 2 {
		n.Labels[pairs[i]] = pairs[i+1]
	}
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	n.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("8"), v1.ResourceMemory: resource.MustParse("64Gi"), v1.ResourcePods: resource.MustParse("4"),
		v1alpha1.ResourceVGPU: resource.MustParse("1000"),
	}
	return n
}

// gpus returns the GPUNode of a node with so many devices of A100, which are healthy.
func gpus(name string, devices int) *v1alpha1.GPUNode {
	g := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i := range devices {
		g.Status.Devices = append(g.Status.Devices, v1alpha1.GPUDevice{
			ID: string(testkit.DeviceID(name, i)), Index: int32(i), Model: testkit.A100.Name, Slots: int32(testkit.A100.Slots),
			Memory: *resource.NewQuantity(int64(testkit.A100.Memory), resource.BinarySI), Contexts: 48, Health: v1alpha1.Healthy,
		})
	}
	g.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue}}
	return g
}

// pod returns a pod of namespace ns that asks for slots of one device, none for 0, and for 2 cores and 1 GiB.
func pod(name string, slots int64) *v1.Pod {
	p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: types.UID("uid-" + name), ResourceVersion: "1", Annotations: map[string]string{}}}
	p.Spec.Containers = []v1.Container{{Name: "c0", Resources: v1.ResourceRequirements{
		Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse("2"), v1.ResourceMemory: resource.MustParse("1Gi")},
		Limits:   v1.ResourceList{},
	}}}
	if slots > 0 {
		p.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceVGPU] = *resource.NewQuantity(slots, resource.DecimalSI)
	}
	return p
}

// on places a pod on a device of a node.
func on(t *testing.T, p *v1.Pod, name string, device int) *v1.Pod {
	t.Helper()
	p = p.DeepCopy()
	p.Spec.NodeName, p.Status.Phase = name, v1.PodRunning
	slots := p.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceVGPU]
	a := testkit.Assignment(t, testkit.Node(t, name, testkit.A100, 8), device, "ns/"+p.Name, vgpu.Slots(slots.Value()))
	a.UID = vgpu.UID(p.UID)
	raw, err := kube.EncodeAssignment(a)
	must.OK(t, err)
	p.Annotations[v1alpha1.AnnotationAssignment] = raw
	return p
}

// cluster returns two nodes with two devices each.
func cluster(pods ...*v1.Pod) Objects {
	return Objects{Nodes: []*v1.Node{node("n2"), node("n1")}, GPUNodes: []*v1alpha1.GPUNode{gpus("n1", 2), gpus("n2", 2)}, Pods: pods}
}

// drawn draws the nodes.
func drawn(t *testing.T, c *Cluster) string {
	t.Helper()
	for _, n := range c.Nodes {
		if err := n.Check(); err != nil {
			t.Error(err)
		}
	}
	return testkit.Draw(testkit.Cluster(t, c.Nodes...))
}

// ended gives a pod a phase.
func ended(p *v1.Pod, phase v1.PodPhase) *v1.Pod {
	p.Status.Phase = phase
	return p
}

// annotated gives a pod another text for its assignment, "" for none.
func annotated(p *v1.Pod, raw string) *v1.Pod {
	delete(p.Annotations, v1alpha1.AnnotationAssignment)
	if raw != "" {
		p.Annotations[v1alpha1.AnnotationAssignment] = raw
	}
	return p
}

func TestLedger(t *testing.T) {
	a := on(t, pod("a", 5), "n1", 0)
	tests := []struct {
		name string
		pods []*v1.Pod
		want map[string]vgpu.Slots // of each device that is not idle
	}{
		{"an idle cluster", nil, map[string]vgpu.Slots{}},
		{"pods that run", []*v1.Pod{a, on(t, pod("b", 10), "n2", 1), on(t, pod("c", 3), "n1", 0)}, map[string]vgpu.Slots{"n1/g0": 8, "n2/g1": 10}},
		{"pods that ended", []*v1.Pod{ended(on(t, pod("b", 5), "n1", 1), v1.PodSucceeded), ended(on(t, pod("c", 5), "n1", 1), v1.PodFailed), a},
			map[string]vgpu.Slots{"n1/g0": 5}},
		{"pods without a node, on another node, and without vGPUs", []*v1.Pod{pod("b", 5), on(t, pod("c", 5), "n3", 0), on0(pod("d", 0), "n1"), a},
			map[string]vgpu.Slots{"n1/g0": 5}},
		{"a broken annotation", []*v1.Pod{annotated(on(t, pod("b", 5), "n1", 1), "{"), a}, map[string]vgpu.Slots{"n1/g0": 5}},
		{"no annotation", []*v1.Pod{annotated(on(t, pod("b", 5), "n1", 1), ""), a}, map[string]vgpu.Slots{"n1/g0": 5}},
		{"more than the device has", []*v1.Pod{a, on(t, pod("b", 6), "n1", 0), on(t, pod("c", 5), "n1", 0)}, map[string]vgpu.Slots{"n1/g0": 10}},
		{"a device that the node does not have", []*v1.Pod{on(t, pod("b", 5), "n1", 7), a}, map[string]vgpu.Slots{"n1/g0": 5}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := new(Reader).Read(cluster(test.pods...))
			got := map[string]vgpu.Slots{}
			for _, n := range c.Nodes {
				for i, d := range n.Devices() {
					if used := n.Used(i).Slots; used > 0 {
						got[string(d.ID)] = used
					}
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("slots in use (-want +got):\n%s\n%s", diff, drawn(t, c))
			}
		})
	}
}

// on0 places a pod without vGPUs.
func on0(p *v1.Pod, name string) *v1.Pod {
	p.Spec.NodeName = name
	return p
}

func TestPlaced(t *testing.T) {
	a, b := on(t, pod("a", 5), "n1", 1), annotated(on(t, pod("b", 5), "n1", 0), "{")
	c := new(Reader).Read(cluster(a, b, pod("c", 5)))
	got, has := c.Placed(a)
	if !has || got.Node != "n1" || got.Pod != "ns/a" || got.Containers[0].Devices[0] != "n1/g1" {
		t.Errorf("pod a: %+v, %v", got, has)
	}
	for _, p := range []*v1.Pod{b, pod("c", 5)} {
		if got, has := c.Placed(p); has {
			t.Errorf("pod %s: %+v", p.Name, got)
		}
	}
}

// A node that takes no new pods keeps those that it has.
func TestUsable(t *testing.T) {
	for name, change := range map[string]func(*v1.Node, *v1alpha1.GPUNode){
		"":                       func(*v1.Node, *v1alpha1.GPUNode) {},
		"not ready":              func(n *v1.Node, _ *v1alpha1.GPUNode) { n.Status.Conditions[0].Status = v1.ConditionFalse },
		"unknown":                func(n *v1.Node, _ *v1alpha1.GPUNode) { n.Status.Conditions[0].Status = v1.ConditionUnknown },
		"cordoned":               func(n *v1.Node, _ *v1alpha1.GPUNode) { n.Spec.Unschedulable = true },
		"its agent is not ready": func(_ *v1.Node, g *v1alpha1.GPUNode) { g.Status.Conditions[0].Status = metav1.ConditionFalse },
		"its agent says nothing": func(_ *v1.Node, g *v1alpha1.GPUNode) { g.Status.Conditions = nil },
		"its devices are not well": func(_ *v1.Node, g *v1alpha1.GPUNode) {
			g.Status.Devices[0].Health, g.Status.Devices[1].Health = v1alpha1.Unhealthy, v1alpha1.Unhealthy
		},
	} {
		o := cluster(on(t, pod("a", 5), "n1", 0))
		change(o.Nodes[1], o.GPUNodes[0])
		c := new(Reader).Read(o)
		for i, want := range []bool{name == "", true} {
			for _, d := range c.Nodes[i].Devices() {
				if d.Healthy != want {
					t.Errorf("%s: device %s is healthy: %v", name, d.ID, d.Healthy)
				}
			}
		}
		if taken, _ := c.Nodes[0].Taken(); taken != 5 {
			t.Errorf("%s: %d slots are taken", name, taken)
		}
	}
}

// A device that two pods overfill takes no more, and neither does a node with a pod whose devices nobody knows, or whose kubelet offers too little.
func TestClosed(t *testing.T) {
	short := func(o *Objects) { o.Nodes[1].Status.Allocatable[v1alpha1.ResourceVGPU] = resource.MustParse("19") }
	enough := func(o *Objects) { o.Nodes[1].Status.Allocatable[v1alpha1.ResourceVGPU] = resource.MustParse("20") }
	broken := annotated(on(t, pod("b", 6), "n1", 1), "{")
	illegal := broken.DeepCopy()
	illegal.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceVGPU] = resource.MustParse("-1")
	for name, c := range map[string]struct {
		pods   []*v1.Pod
		change func(*Objects)
		want   [2]bool // whether the devices of n1 take pods
	}{
		"all fits":                   {[]*v1.Pod{on(t, pod("a", 5), "n1", 0), on(t, pod("b", 5), "n1", 0)}, enough, [2]bool{true, true}},
		"too much on a device":       {[]*v1.Pod{on(t, pod("a", 5), "n1", 0), on(t, pod("b", 6), "n1", 0)}, enough, [2]bool{false, true}},
		"nobody knows which devices": {[]*v1.Pod{on(t, pod("a", 5), "n1", 0), broken}, enough, [2]bool{}},
		"a pod that may have none":   {[]*v1.Pod{illegal}, enough, [2]bool{true, true}},
		"the kubelet offers less":    {nil, short, [2]bool{}},
	} {
		o := cluster(c.pods...)
		c.change(&o)
		devices := new(Reader).Read(o).Nodes[0].Devices()
		if got := [2]bool{devices[0].Healthy, devices[1].Healthy}; got != c.want {
			t.Errorf("%s: the devices take pods: %v, want %v", name, got, c.want)
		}
	}
}

// The nodes are in the order of their names; those without GPUs are left out, and those whose GPUs cannot be read.
func TestNodes(t *testing.T) {
	o := cluster()
	o.Nodes = append(o.Nodes, node("n0"), node("n3"), node("n4"))
	broken := gpus("n4", 1)
	broken.Status.Devices[0].Slots = 0
	o.GPUNodes = append(o.GPUNodes, gpus("n3", 0), broken, gpus("gone", 1))
	c := new(Reader).Read(o)
	var names []string
	for i, n := range c.Nodes {
		names = append(names, n.Name()+"="+c.Infos[i].Name)
	}
	if diff := cmp.Diff([]string{"n1=n1", "n2=n2"}, names); diff != "" {
		t.Errorf("nodes (-want +got):\n%s", diff)
	}
}

// All pods of a node take room of its host, with vGPUs or without.
func TestRoom(t *testing.T) {
	c := new(Reader).Read(cluster(on(t, pod("a", 5), "n1", 0), on0(pod("b", 0), "n1"), annotated(on(t, pod("c", 5), "n1", 0), "{"),
		ended(on0(pod("d", 0), "n1"), v1.PodSucceeded), pod("e", 5)))
	want := []vgpu.Room{{MilliCPU: 8000 - 3*2000, Memory: (64 - 3) * vgpu.GiB}, {MilliCPU: 8000, Memory: 64 * vgpu.GiB}}
	for i, n := range c.Nodes {
		if n.Room() != want[i] {
			t.Errorf("node %s has %+v, want %+v", n.Name(), n.Room(), want[i])
		}
	}
}

func TestKindAndAdmits(t *testing.T) {
	o := cluster(on(t, pod("a", 5), "n1", 0), on0(pod("b", 0), "n1"), ended(on0(pod("c", 0), "n1"), v1.PodFailed))
	o.Nodes[1].Labels["zone"] = "z1"                                                          // n1
	o.Nodes[0].Spec.Taints = []v1.Taint{{Key: "dedicated", Effect: v1.TaintEffectNoSchedule}} // n2
	selects, tolerates, both := pod("selects", 1), pod("tolerates", 1), pod("both", 1)
	selects.Spec.NodeSelector = map[string]string{"zone": "z1"}
	tolerates.Spec.Tolerations = []v1.Toleration{{Key: "dedicated", Operator: v1.TolerationOpExists}}
	both.Spec.NodeSelector, both.Spec.Tolerations = map[string]string{"zone": "z2"}, tolerates.Spec.Tolerations
	c := new(Reader).Read(o)
	kinds := map[int]string{}
	for _, test := range []struct {
		pod  *v1.Pod
		want []int // on n1, which has 2 of 4 pods, and on n2, which is tainted
	}{{pod("any", 1), []int{2, 0}}, {selects, []int{2, 0}}, {tolerates, []int{2, 4}}, {both, []int{0, 0}}} {
		kind := c.Kind(test.pod)
		if got := []int{c.Admits(kind, 0), c.Admits(kind, 1)}; !cmp.Equal(got, test.want) {
			t.Errorf("%s: the nodes take %v, want %v", test.pod.Name, got, test.want)
		}
		if kinds[kind] != "" || c.Kind(test.pod.DeepCopy()) != kind {
			t.Errorf("%s is of kind %d, like %q", test.pod.Name, kind, kinds[kind])
		}
		kinds[kind] = test.pod.Name
	}
}

func TestNumberOfPods(t *testing.T) {
	for allocatable, want := range map[string]int{"4": 3, "1": 0, "0": 0, "110": 109} {
		o := cluster(on(t, pod("a", 5), "n1", 0))
		o.Nodes[1].Status.Allocatable[v1.ResourcePods] = resource.MustParse(allocatable)
		c := new(Reader).Read(o)
		if got := c.Admits(c.Kind(pod("b", 1)), 0); got != want {
			t.Errorf("a node with one of %s pods takes %d more, want %d", allocatable, got, want)
		}
	}
	o := cluster(on(t, pod("a", 1), "n1", 0), on(t, pod("b", 1), "n1", 0))
	o.Nodes[1].Status.Allocatable[v1.ResourcePods] = resource.MustParse("1")
	c := new(Reader).Read(o)
	if got := c.Admits(c.Kind(pod("c", 1)), 0); got != 0 {
		t.Errorf("a node with two of one pods takes %d more", got)
	}
}

// A level has a number for each value of its label, and −1 for the nodes without it. A key that no node has makes no level.
func TestDivide(t *testing.T) {
	o := Objects{}
	for i, pairs := range [][]string{{"zone", "b", "rack", "r1"}, {"zone", "a"}, {"zone", "b", "rack", "r2"}, {}} {
		name := fmt.Sprint("n", i)
		o.Nodes, o.GPUNodes = append(o.Nodes, node(name, pairs...)), append(o.GPUNodes, gpus(name, 1))
	}
	c := new(Reader).Read(o)
	c.Divide(gang.Wishes{Required: []string{"zone", gang.NVLink}, Preferred: []string{"rack", "zone"}})
	c.Divide(gang.Wishes{Preferred: []string{"rack", "nothing"}})
	want := []gang.Level{
		{Key: "zone", Domain: []int32{0, 1, 0, -1}, Names: []string{"b", "a"}},
		{Key: "rack", Domain: []int32{0, -1, 1, -1}, Names: []string{"r1", "r2"}},
	}
	if diff := cmp.Diff(want, c.Levels); diff != "" {
		t.Errorf("levels (-want +got):\n%s", diff)
	}
}

// A Reader remembers what it read of a pod until the pod changes.
func TestReadAgain(t *testing.T) {
	var r Reader
	a, b := on(t, pod("a", 5), "n1", 0), annotated(on(t, pod("b", 5), "n1", 1), "{")
	first := drawn(t, r.Read(cluster(a, b)))
	if again := drawn(t, r.Read(cluster(a, b))); again != first {
		t.Errorf("twice the same:\n%s\n%s", first, again)
	}
	moved, mended := on(t, pod("a", 5), "n1", 1), on(t, pod("b", 5), "n1", 1)
	moved.ResourceVersion, mended.ResourceVersion = "2", "2"
	want := drawn(t, new(Reader).Read(cluster(moved, mended)))
	if got := drawn(t, r.Read(cluster(moved, mended))); got != want || strings.Contains(got, "ns/b: ") {
		t.Errorf("after a change:\n%s\nwant\n%s", got, want)
	}
	// The second pod is gone, and one of its name has come.
	anew := on(t, pod("b", 3), "n2", 0)
	anew.UID = "other"
	anew.Annotations[v1alpha1.AnnotationAssignment] = strings.Replace(anew.Annotations[v1alpha1.AnnotationAssignment], "uid-b", "other", 1)
	want = drawn(t, new(Reader).Read(cluster(moved, anew)))
	if got := drawn(t, r.Read(cluster(moved, anew))); got != want {
		t.Errorf("with another pod:\n%s\nwant\n%s", got, want)
	}
	if len(r.read) != 2 {
		t.Errorf("it remembers %d pods, two exist", len(r.read))
	}
}

// A pod without a ResourceVersion is read each time.
func TestReadWithoutVersion(t *testing.T) {
	var r Reader
	a, moved := on(t, pod("a", 5), "n1", 0), on(t, pod("a", 5), "n1", 1)
	a.ResourceVersion, moved.ResourceVersion = "", ""
	r.Read(cluster(a))
	if got, _ := r.Read(cluster(moved)).Placed(moved); got.Containers[0].Devices[0] != "n1/g1" {
		t.Errorf("%+v", got)
	}
}

// A pod that ends counts as gone until half a minute after its grace period, and one that is removed at once. One that has more than ten minutes to
// end counts as there, unless the controller itself has given it up.
func TestEndingAndRemoved(t *testing.T) {
	noon := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	stays, ends := on(t, pod("stays", 5), "n1", 0), on(t, pod("ends", 5), "n1", 1)
	ends.DeletionTimestamp = &metav1.Time{Time: noon}
	want := func(c *Cluster, milliCPU int64, pods int, placed bool) {
		t.Helper()
		_, has := c.Placed(ends)
		if at := c.Nodes[0]; at.Room().MilliCPU != milliCPU || c.admits(c.Kind(pod("new", 1)), 0) != 4-pods || has != placed {
			t.Errorf("room %v, %d more pods, the pod that ends is there: %v", at.Room(), c.admits(0, 0), has)
		}
		if err := c.Nodes[0].Check(); err != nil {
			t.Error(err)
		}
	}
	o := cluster(stays, ends)
	o.At = noon.Add(30 * time.Second)
	c := new(Reader).Read(o)
	want(c, 6000, 1, false)
	c.Remove(ends) // it is not there
	want(c, 6000, 1, false)
	c.Remove(stays)
	want(c, 8000, 0, false)
	o.At = noon.Add(31 * time.Second)
	want(new(Reader).Read(o), 4000, 2, true)
	o.At = noon.Add(-10 * time.Minute)
	want(new(Reader).Read(o), 6000, 1, false)
	o.At = o.At.Add(-time.Second)
	want(new(Reader).Read(o), 4000, 2, true)
	ends.Annotations[v1alpha1.AnnotationLeaving] = "2026-01-31T11:00:00Z"
	want(new(Reader).Read(o), 6000, 1, false)
	o.At = noon.Add(59 * time.Second)
	want(new(Reader).Read(o), 6000, 1, false)
	o.At = noon.Add(time.Minute)
	want(new(Reader).Read(o), 4000, 2, true)
}

// Without and Book change a cluster that shares its nodes with another one, and leave that one as it is.
func TestWithoutAndBook(t *testing.T) {
	a, b := on(t, pod("a", 5), "n1", 0), on(t, pod("b", 10), "n2", 1)
	var r Reader
	c := r.Read(cluster(a, b))
	rooms := []vgpu.Room{c.Nodes[0].Room(), c.Nodes[1].Room()}

	left := c.Without([]*v1.Pod{a, pod("unknown", 1)})
	if taken, _ := left.Nodes[0].Taken(); taken != 0 {
		t.Errorf("%d slots of n1 are taken by nobody", taken)
	}
	if _, has := left.Placed(a); has {
		t.Error("the pod that left has devices")
	}
	host := vgpu.Room{MilliCPU: 2000, Memory: vgpu.GiB}
	if want := rooms[0].Plus(host); left.Nodes[0].Room() != want {
		t.Errorf("the host has %v left, want %v", left.Nodes[0].Room(), want)
	}

	kind := left.Kind(pod("c", 1))
	if got := left.Admits(kind, 0); got != 4 {
		t.Errorf("n1 takes %d pods, want 4", got)
	}
	place := testkit.Assignment(t, testkit.Node(t, "n1", testkit.A100, 2), 1, "ns/c", 7)
	must.OK(t, left.Book(place, host))
	if taken, _ := left.Nodes[0].Taken(); taken != 7 || left.Nodes[0].Room() != rooms[0] || left.Admits(kind, 0) != 3 {
		t.Errorf("%d slots are taken, the host has %v left, and %d more pods fit", taken, left.Nodes[0].Room(), left.Admits(kind, 0))
	}
	if err := left.Book(place, host); err == nil {
		t.Error("a place was booked twice")
	}
	place.Node = "n9"
	if err := left.Book(place, host); err == nil || !strings.Contains(err.Error(), `node "n9" is not in the cluster`) {
		t.Errorf("a place on a node that is not there: %v", err)
	}
	if before, after := drawn(t, new(Reader).Read(cluster(a, b))), drawn(t, c); after != before || c.Nodes[0].Room() != rooms[0] || c.Nodes[1].Room() != rooms[1] {
		t.Errorf("the first cluster changed:\n%s", cmp.Diff(before, after))
	}
}

// Return puts a pod back where its devices and the room of its host are still free, and nowhere else.
func TestReturn(t *testing.T) {
	a := on(t, pod("a", 5), "n1", 0)
	c := new(Reader).Read(cluster(a))
	host := vgpu.Room{MilliCPU: 2000, Memory: vgpu.GiB}
	for name, used := range map[string]struct {
		slots vgpu.Slots
		host  vgpu.Room
		want  bool
	}{
		"all is free":           {0, vgpu.Room{}, true},
		"half a device is used": {5, host, true},
		"the device is used":    {6, host, false},
		"the host is used":      {1, vgpu.Room{MilliCPU: 7000, Memory: vgpu.GiB}, false},
	} {
		left := c.Without([]*v1.Pod{a})
		if used.slots > 0 {
			must.OK(t, left.Book(testkit.Assignment(t, testkit.Node(t, "n1", testkit.A100, 2), 0, "ns/new", used.slots), used.host))
		}
		taken, _ := left.Nodes[0].Taken()
		room := left.Nodes[0].Room()
		if used.want {
			taken, room = taken+5, room.Less(host)
		}
		if got := left.Return(a, c); got != used.want {
			t.Errorf("%s: the pod is back: %v", name, got)
		}
		if now, _ := left.Nodes[0].Taken(); now != taken || left.Nodes[0].Room() != room {
			t.Errorf("%s: %d slots are taken and the host has %v left, want %d and %v", name, now, left.Nodes[0].Room(), taken, room)
		}
		if _, has := left.Placed(a); has != used.want {
			t.Errorf("%s: the pod has a place: %v", name, has)
		}
		if left.Return(a, c) {
			t.Errorf("%s: the pod came back twice", name)
		}
	}
	if c.Return(pod("stranger", 5), c) {
		t.Error("a pod without a place came back")
	}
}
