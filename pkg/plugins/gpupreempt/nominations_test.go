package gpupreempt

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
)

// loseNomination has the API server answer the first patch of a pod's nominated node, and not store it. The result says whether that
// has happened.
func (c *cluster) loseNomination(name string) *atomic.Bool {
	var lost atomic.Bool
	c.Client.PrependReactor("patch", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		a := action.(clienttesting.PatchAction)
		if a.GetName() != name || !strings.Contains(string(a.GetPatch()), "nominatedNodeName") || !lost.CompareAndSwap(false, true) {
			return false, nil, nil
		}
		return true, &v1.Pod{}, nil
	})
	return &lost
}

// activate has the scheduler try a pod.
func (c *cluster) activate(name string) {
	c.plugin.handle.Activate(klog.Background(), map[string]*v1.Pod{"default/" + name: c.Pod(name)})
}

// A plain preemptor may be tried again before the informer knows of its nomination: it waits for its victims, and no other pod takes
// their CPU.
func TestPlainNominationOutlivesAnEarlyTry(t *testing.T) {
	t.Parallel()
	for name, perMinute := range map[string]int32{"allowed": 1000, "deferred": 1} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := prepareCluster(t, 1, 1, 1, 1)
				c.args.EvictionsPerMinute = perMinute
				c.start()
				c.createBound(cpu(pod("low-0", 0, 0), "34"), cpu(pod("low-1", 0, 0), "34"), cpu(pod("low-2", 0, 0), "34"), cpu(pod("low-3", 0, 0), "34"))
				lost := c.loseNomination("high")
				c.Create(cpu(pod("high", 0, 100), "60"))
				first := c.awaitVictims(1)
				c.Await("the news is lost", lost.Load)
				c.activate("high")
				other := cpu(pod("other", 0, 0), "30")
				other.Spec.NodeSelector = map[string]string{v1.LabelHostname: c.Pod(first[0]).Spec.NodeName}
				c.Create(other)
				c.AwaitMessage("other", "Insufficient cpu")
				expect(t, "victims", first, c.victims())
				c.Remove(first...)
				c.AwaitBound("high", 1)
			})
		})
	}
}
