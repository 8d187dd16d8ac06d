package gpupreempt

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakecluster"
	"github.com/tandem-gpu/tandem/test/must"
)

// fullCluster returns a cluster of three nodes with so many pods of one slot each, of which those of n2 count the least, and these. It
// has no scheduler.
func fullCluster(t *testing.T, perNode int) (c *cluster, lowest []string) {
	c = prepareCluster(t, perNode/10, perNode/10, perNode/10)
	for _, node := range []string{"n1", "n2", "n3"} {
		c.changeNode(node, func(n *v1.Node) { n.Status.Allocatable[v1.ResourcePods] = resource.MustParse("1000") })
	}
	for i := range 3 * perNode {
		node, slot := i/perNode+1, i%perNode
		p := pod(fmt.Sprintf("low-%04d", i), 1, 10)
		if node == 2 {
			*p.Spec.Priority = 9
			lowest = append(lowest, p.Name)
		}
		c.Place(p, fmt.Sprintf("n%d", node), map[string]string{v1alpha1.AnnotationAssignment: slotOf(t, p, node, slot/10)})
		must.OK(t, c.Client.Tracker().Add(p))
	}
	return c, lowest
}

// slotOf returns the annotation of a pod that has one of ten slots of a device.
func slotOf(t *testing.T, p *v1.Pod, node, device int) string {
	t.Helper()
	text, err := kube.EncodeAssignment(vgpu.Assignment{
		UID: kube.UIDOf(p), Pod: kube.PathOf(p), Node: fmt.Sprintf("n%d", node), Containers: []vgpu.ContainerAssignment{{
			Name: "main", Devices: []vgpu.DeviceID{vgpu.DeviceID(fmt.Sprintf("GPU-n%d-%d", node, device))},
			Share: vgpu.Share{Devices: 1, Slots: 1, Memory: 4 << 30, ComputeLimit: vgpu.WholeGPU / 10, MemoryLimit: 4 << 30},
		}},
	})
	must.OK(t, err)
	return text
}

// says waits until a pod is refused with a text, which fits an event. Unlike awaitMessage it does not list all pods.
func (c *cluster) says(name, text string) {
	c.T.Helper()
	said := ""
	c.Await("pod "+name+" is refused because of "+text, func() bool {
		said = fakecluster.Message(c.Pod(name))
		return strings.Contains(said, text)
	})
	if len(said) > 1024 {
		c.T.Errorf("the message has %d bytes, an event holds 1024", len(said))
	}
}

// asked counts what the API was asked to change of the pods of a crowd.
func (c *cluster) asked() map[string]int {
	count := map[string]int{}
	for _, a := range c.Client.Actions() {
		name := ""
		switch x := a.(type) {
		case clienttesting.PatchAction:
			name = x.GetName()
		case clienttesting.DeleteAction:
			name = x.GetName()
		}
		if a.GetResource() == fakecluster.PodResource && strings.HasPrefix(name, "low-") {
			count[strings.TrimSuffix(a.GetVerb()+" "+a.GetSubresource(), " ")]++
		}
	}
	return count
}

// victimEvents counts the events of victims.
func (c *cluster) victimEvents() (events, pods int) {
	c.T.Helper()
	list, err := c.Client.EventsV1().Events("default").List(c.T.Context(), metav1.ListOptions{})
	must.OK(c.T, err)
	of := map[string]bool{}
	for i := range list.Items {
		if e := &list.Items[i]; e.Reason == "Preempted" {
			events++
			if e.Series != nil {
				events += int(e.Series.Count) - 1
			}
			of[e.Regarding.Name] = true
		}
	}
	return events, len(of)
}

// The plugin evicts the 400 of 1,200 candidates that cost the least, with one condition, one deletion and one event each.
func TestHundredsOfVictims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const perNode = 400
		c, lowest := fullCluster(t, perNode)
		c.refuseDeletes(refuse())
		c.start()
		c.Create(pod("high", perNode, 100))
		expect(t, "victims", lowest, c.awaitVictims(perNode))
		c.Await("all victims are told", func() bool { events, _ := c.victimEvents(); return events >= perNode })
		events, pods := c.victimEvents()
		expect(t, "events and the pods that they are about", []int{perNode, perNode}, []int{events, pods})
		c.Await("the eviction is over", func() bool { return !c.plugin.isEvicting(pod("high", 0, 0)) })
		expect(t, "requests", map[string]int{"patch status": perNode, "delete": perNode}, c.asked())
		expect(t, "victims counted", float64(perNode), c.count("victims_total", "single"))
		c.says("high", "yet to leave")
		c.Remove(lowest...)
		expect(t, "place", map[string]string{"high": "n2"}, c.AwaitBound("high", 1))
		expect(t, "victims", lowest, c.victims())
	})
}

// One of 150 evictions fails in the middle: those that were not evicted stay, and count as candidates. The next try evicts those
// alone, and no other pod.
func TestFailureAmongHundreds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const perNode = 150
		c, lowest := fullCluster(t, perNode)
		c.refuseDeletes(refuse("low-0203"))
		c.start()
		c.Create(pod("high", perNode, 100))
		c.says("high", "the last one came to nothing")
		first := c.victims()
		if len(first) < maxSequential || len(first) > perNode-50 || slices.Contains(first, "low-0203") {
			t.Errorf("%d pods were evicted before the failure ended it", len(first))
		}
		if _, held := c.shares.Held("uid-high"); held || len(c.rooms()) > 0 {
			t.Error("room is kept")
		}
		for _, p := range c.Pods() {
			if leaves := c.plugin.isChosen(kube.UIDOf(&p)); leaves != slices.Contains(first, p.Name) {
				t.Errorf("%s counts as leaving: %v", p.Name, leaves)
			}
		}
		c.refuseDeletes(refuse())
		c.Clock.Pass(2 * time.Second)
		expect(t, "victims", lowest, c.awaitVictims(perNode))
		c.Remove(lowest...)
		expect(t, "place", map[string]string{"high": "n2"}, c.AwaitBound("high", 1))
		expect(t, "victims", lowest, c.victims())
		events, pods := c.victimEvents()
		expect(t, "events and the pods that they are about", []int{perNode, perNode}, []int{events, pods})
		expect(t, "deletions but those of the test", perNode+1, c.asked()["delete"]-perNode)
	})
}
