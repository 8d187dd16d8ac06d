package gpushare

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// extremeFleet has 1,000 nodes of eight linked devices, and on each of their ten slots but one a pod of a workload of its own that says when it ends at the
// latest. The scheduler has seen the nodes once.
func extremeFleet(b *testing.B) *fleet {
	gpuNodes := make([]*v1alpha1.GPUNode, 1000)
	for i := range gpuNodes {
		gpuNodes[i] = gpuNode(fmt.Sprintf("node-%05d", i), 8)
	}
	f := &fleet{desk: newDesk(b, gpuNodes...)}
	var err error
	f.plugin.lifetimes, err = newLifetimes()
	must.OK(b, err)
	began := metav1.Now()
	free := 1
	for _, g := range gpuNodes {
		for i := range g.Status.Devices {
			for k := free; k < 10; k++ {
				free = 0
				p := pod(fmt.Sprintf("%s-%d-%d", g.Name, i, k), 1)
				p.Spec.ActiveDeadlineSeconds, p.Status.StartTime = new(int64(3600+i*10+k)), &began
				f.add(bound(b, p, share(p, g.Name, g.Status.Devices[i].ID, 1)), g.Name)
			}
		}
	}
	f.measure(b)
	f.follow("tandem")
	f.usual(usualKinds()...)
	f.cycle(b, pod("last", 1))
	return f
}

// BenchmarkSnapshotExtremes is what 80,000 pods with an end each cost the snapshot: made anew, as after a start of the scheduler, and made, written and
// redacted while ten nodes change.
func BenchmarkSnapshotExtremes(b *testing.B) {
	f := extremeFleet(b)
	show := func() *snapshot.Snapshot {
		return &snapshot.Snapshot{Source: snapshot.FromScheduler, Nodes: f.plugin.SnapshotNodes(noGang)}
	}
	writer := &snapshotjson.Writer{}
	_, err := writer.Write(show())
	must.OK(b, err)
	for _, part := range []struct {
		name string
		do   func()
	}{
		{"make-anew", func() {
			f.plugin.shown.nodes = nil
			show()
		}},
		{"make-and-write-10-changed-nodes", func() {
			for i := range 10 {
				delete(f.plugin.shown.nodes, fmt.Sprintf("node-%05d", 100*i))
			}
			_, err := writer.Write(show())
			must.OK(b, err)
		}},
		{"redact-and-write", func() {
			_, err := snapshotjson.Write(show().Redact(func(string) bool { return false }))
			must.OK(b, err)
		}},
	} {
		b.Run("snapshot/1000-nodes/80000-pods-that-end/"+part.name, func(b *testing.B) {
			for b.Loop() {
				part.do()
			}
		})
	}
}

// dearPod is a pod of the tenant that makes its neighbour wait: 16 unlike containers, with amounts that no other pod has. Nine of them need more than half of the
// memory of a device, so no node of eight devices has an arrangement, although its sums allow one.
func dearPod(i int) *v1.Pod {
	p := pod(fmt.Sprint("dear-", i), 1)
	p.Spec.Containers = nil
	for k := range vgpu.MaxContainers {
		memory := int64(2<<30 + k<<27 + i<<20)
		if k > 6 {
			memory += 18 << 30
		}
		limits := v1.ResourceList{v1alpha1.ResourceVGPU: *resource.NewQuantity(1, resource.DecimalSI), v1alpha1.ResourceMemory: *resource.NewQuantity(memory, resource.BinarySI)}
		p.Spec.Containers = append(p.Spec.Containers, v1.Container{Name: fmt.Sprint("c", k), Image: "none", Resources: v1.ResourceRequirements{Limits: limits, Requests: limits.DeepCopy()}})
	}
	return p
}

// BenchmarkNeighbourExtremes is how long a pod of one slot waits for its bind that comes right after the dearest pods of another namespace, of the same priority.
// The scheduler is the real one, on 1,000 nodes of eight devices in 72 states. "ms" is from the creation to the bind, "turns" how many pods of the other namespace were
// refused meanwhile.
func BenchmarkNeighbourExtremes(b *testing.B) {
	gpuNodes := make([]*v1alpha1.GPUNode, 1000)
	for i := range gpuNodes {
		gpuNodes[i] = gpuNode(fmt.Sprintf("node-%05d", i), 8)
	}
	for _, dear := range []int{0, 10, 100} {
		b.Run(fmt.Sprintf("neighbour/%d-pods-of-16-containers", dear), func(b *testing.B) {
			for b.Loop() {
				took, turns := waitBehind(b, dear, gpuNodes)
				b.ReportMetric(took, "ms")
				b.ReportMetric(float64(turns), "turns")
			}
		})
	}
}

// waitBehind returns how many ms the neighbour waits, and the pods that are tried in that time.
func waitBehind(b *testing.B, dear int, gpuNodes []*v1alpha1.GPUNode) (took float64, turns int) {
	c := newCluster(b, gpuNodes...)
	defer c.stop()
	pods, err := c.client.CoreV1().Pods(metav1.NamespaceAll).Watch(b.Context(), metav1.ListOptions{})
	must.OK(b, err)
	defer pods.Stop()
	for i, g := range gpuNodes {
		p := pod("on-"+g.Name, 1+i/8%9)
		c.createPod(bound(b, p, share(p, g.Name, g.Status.Devices[i%8].ID, vgpu.Slots(1+i/8%9))))
	}
	c.createPod(pod("first", 1)) // when it is bound, the scheduler has read all nodes
	awaitPods(b, pods, 1, func(p *v1.Pod) bool { return p.Name == "first" && isBound(p) })
	for i := range dear {
		c.createPod(dearPod(i))
	}
	neighbour := pod("neighbour", 1)
	neighbour.Namespace = "another"
	began, tried := time.Now(), map[string]bool{}
	c.createPod(neighbour)
	awaitPods(b, pods, 1, func(p *v1.Pod) bool {
		if strings.HasPrefix(p.Name, "dear-") && len(p.Status.Conditions) > 0 {
			tried[p.Name] = true
		}
		return p.Namespace == "another" && isBound(p)
	})
	return 1000 * time.Since(began).Seconds(), len(tried)
}
