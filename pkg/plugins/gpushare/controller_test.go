package gpushare

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/controller/snapshot"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// The controller reads nodes and pods by itself. Its elastic jobs and its answers to Kueue must see the devices as the scheduler gives them to
// gangs: shares that do not fit, pods of which nobody knows the devices, kubelets that offer too few slots, pods that do not end in time.
func TestControllerSeesWhatGangsGet(t *testing.T) {
	met := map[string]int{}
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(name string, least, most int) int { return rapid.IntRange(least, most).Draw(rt, name) }
		objects := snapshot.Objects{At: time.Unix(1_800_000_000, 0)}
		var gpuNodes []*v1alpha1.GPUNode
		for i := range draw("nodes", 1, 2) {
			g := gpuNode(fmt.Sprintf("n%d", i), draw("devices", 2, 3))
			for k := range g.Status.Devices {
				if draw("sick", 0, 5) == 0 {
					g.Status.Devices[k].Health = v1alpha1.Unhealthy
				}
			}
			gpuNodes = append(gpuNodes, g)
		}
		d := newDesk(t, gpuNodes...)
		for i, g := range gpuNodes {
			n := d.nodes[i].Node().DeepCopy()
			n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
			n.Status.Allocatable[v1alpha1.ResourceVGPU] = *resource.NewQuantity(int64(10*(len(g.Status.Devices)-draw("short", 0, 4)/4)), resource.DecimalSI)
			d.byName[g.Name].SetNode(n)
			objects.Nodes, objects.GPUNodes = append(objects.Nodes, n), append(objects.GPUNodes, g)
		}
		spread := draw("spread", 0, 3)
		for i := range draw("pods", 2, 8) {
			g := gpuNodes[draw("node", 0, len(gpuNodes)-1)]
			p := pod(fmt.Sprintf("p%d", i), draw("slots", 1, 10))
			p.Spec.Containers[0].Resources.Requests[v1.ResourceCPU] = resource.MustParse("2")
			slots := p.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceVGPU]
			p = bound(t, p, share(p, g.Name, fmt.Sprintf("GPU-%s-%d", g.Name, draw("device", 0, spread)), vgpu.Slots(slots.Value())))
			switch draw("kind", 0, 15) {
			case 0:
				delete(p.Annotations, v1alpha1.AnnotationAssignment)
				met["no assignment"]++
			case 1:
				p.Annotations[v1alpha1.AnnotationAssignment] = "{"
				met["broken assignment"]++
			case 2:
				p.DeletionTimestamp = &metav1.Time{Time: objects.At.Add(24 * time.Hour)}
				met["a day to end"]++
			case 3:
				p.DeletionTimestamp = &metav1.Time{Time: objects.At.Add(-45 * time.Second)}
				met["overdue"]++
			}
			d.add(p, g.Name)
			objects.Pods = append(objects.Pods, p)
		}

		ledgers, err := d.plugin.Ledgers(t.Context(), pod("any", 1), d.nodes, func(string) bool { return false })
		if err != nil {
			rt.Fatal(err)
		}
		seen := new(snapshot.Reader).Read(objects)
		for i, want := range ledgers {
			if diff := cmp.Diff(sees(want), sees(seen.Nodes[i])); diff != "" {
				rt.Errorf("node %s: the scheduler (-) and the controller (+):\n%s", want.Name(), diff)
			}
			if slices.ContainsFunc(want.Devices(), func(d vgpu.Device) bool { return d.Healthy }) {
				met["a node that takes pods"]++
			}
			offered := objects.Nodes[i].Status.Allocatable[v1alpha1.ResourceVGPU]
			for k := range want.Devices() {
				switch sick := gpuNodes[i].Status.Devices[k].Health != v1alpha1.Healthy; {
				case sick:
					met["a sick device"]++
				case offered.Value() < int64(10*len(want.Devices())):
					met["too few slots"]++
				}
			}
		}
	})
	for _, what := range []string{"no assignment", "broken assignment", "a day to end", "overdue", "a node that takes pods", "a sick device", "too few slots"} {
		if met[what] == 0 {
			t.Errorf("no case had %s", what)
		}
	}
}

// sees describes a ledger: the room of its host, and of each device the slots that are taken and whether it takes more.
func sees(n *vgpu.Node) []string {
	all := []string{fmt.Sprint(n.Room())}
	for i, d := range n.Devices() {
		all = append(all, fmt.Sprintf("%s: %d slots taken, healthy %v", d.ID, n.Used(i).Slots, d.Healthy))
	}
	return all
}
