package integration

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// holding is a patch that holds a size, or lets the controller choose it again where it says nothing.
func holding(said string) []byte {
	value := "null"
	if said != "" {
		value = fmt.Sprintf("%q", said)
	}
	return fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %s}}}`, v1alpha1.AnnotationSize, value)
}

// fleetHeld: a user pauses a fleet while more requests come, and scales it by hand. Then the user pins a variant, and lets the controller choose again.
func fleetHeld(t *testing.T, s *fleetScene) {
	hold := func(said string) {
		t.Helper()
		_, err := s.objects.Resource(fleets).Namespace(s.namespace).Patch(t.Context(), "bert", types.MergePatchType, holding(said), metav1.PatchOptions{})
		must.OK(t, err)
	}
	s.arrives(20)
	s.create(t, "bert", twoVariants())
	s.awaitReason(t, "bert", v1alpha1.ConditionScaled, "Scaled")
	hold("paused")
	s.awaitReason(t, "bert", v1alpha1.ConditionFleetReady, "Paused")
	s.arrives(100)
	s.lookOn()
	if replicas, weights := s.sizes(t, "bert"); replicas != [2]int64{1, 0} || weights != [2]int64{1000, 0} {
		t.Errorf("in the pause the sizes are %v and the weights %v", replicas, weights)
	}
	hold("t4=2")
	s.awaitReason(t, "bert", v1alpha1.ConditionFleetReady, "Pinned")
	s.awaitSizes(t, "bert", "two t4 are pinned, and a100 serve the rest", func(replicas, weights [2]int64) bool {
		return replicas[0] >= 2 && replicas[1] == 2 && weights[1] > 0
	})
	s.arrives(20)
	hold("")
	s.awaitSizes(t, "bert", "one a100 is left", func(replicas, weights [2]int64) bool {
		return replicas == [2]int64{1, 0} && weights == [2]int64{1000, 0}
	})
	s.awaitReason(t, "bert", v1alpha1.ConditionFleetReady, "Controlled")
}

// heldJob: a job that is paused keeps its members while another gang waits, and one that is pinned has its number while GPUs are idle.
func heldJob(t *testing.T, c *gangCluster) {
	hold := func(said string) {
		t.Helper()
		_, err := c.objects.Resource(v1alpha1.ElasticTargets).Namespace(c.namespace).Patch(t.Context(), "train", types.MergePatchType, holding(said), metav1.PatchOptions{})
		must.OK(t, err)
	}
	c.startJob(t, c.elasticJob("train", 10, 8))
	c.awaitWorkers(t, "train", 8)
	hold("paused")
	c.awaitCondition(t, "train", "Paused", "paused by the annotation")
	c.create(t, testGang{name: "rigid", members: 9, min: 9, slots: 10})
	c.lookOn()
	c.awaitWorkers(t, "train", 8)
	hold("")
	c.awaitGang(t, "rigid", 9)
	c.awaitWorkers(t, "train", 7)
	c.deletePods(t, "rigid")
	hold("3")
	c.awaitWorkers(t, "train", 3)
	c.lookOn()
	c.awaitWorkers(t, "train", 3)
	hold("")
	c.awaitWorkers(t, "train", 8)
	c.checkJob(t, "train")
	c.checkRunning(t)
}

// lookOn lets many passes of the controller go by, in which nothing may change. No event says that nothing happens. In a bubble the time costs nothing; on a
// control plane a shorter one has to do.
func (c *gangCluster) lookOn() {
	if c.mayLag() {
		time.Sleep(30 * time.Second)
		return
	}
	time.Sleep(10 * time.Minute)
}
