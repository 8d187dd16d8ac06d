package e2e

import (
	"fmt"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// names of the members of a gang, in the order of their ranks.
func memberNames(gang string) []string {
	names := make([]string, 0, gangSize)
	for i := range gangSize {
		names = append(names, fmt.Sprintf("%s-%d", gang, i))
	}
	return names
}

// gangTogether: nothing of a gang is bound before its last member exists, and all of it after that. Its containers start on
// the devices of their assignments.
func gangTogether(n *Tenant) {
	var took []time.Duration
	for round := range 3 {
		names := memberNames(fmt.Sprintf("train%d", round))
		bound := n.watchBindings()
		for _, name := range names[:gangSize-1] {
			n.create(member(names[0], name, share("main", 4)))
		}
		if round == 0 {
			n.t.Logf("event: %s", n.event(names[0], "3 of 4 members"))
			for _, name := range names[:gangSize-1] {
				n.unbound(name)
			}
		}
		begin := time.Now() // before the last member exists: the time is not too short
		n.create(member(names[0], names[gangSize-1], share("main", 4)))
		took = append(took, bound.all(names).Sub(begin))
		begin = time.Now()
		pods := n.running(names...)
		n.t.Logf("round %d: bound %d ms after the last member was sent, all run %.1f s later", round,
			took[round].Milliseconds(), time.Since(begin).Seconds())
		for _, pod := range pods {
			n.checkShares(pod)
		}
		n.noDrift()
		n.delete(names...)
	}
	n.t.Logf("gangs were bound %v at most after their last member was sent", slices.Max(took))
}

// gangStraggler: PreStart of a container waits for no sibling. One member of the gang cannot start, since its image is
// missing; the others do, on the device that they share with it.
func gangStraggler(n *Tenant) {
	names := memberNames("train")
	last := names[gangSize-1]
	for _, name := range names {
		c := share("main", 2)
		if name == last {
			c.Image = missingImage
		}
		n.create(member(names[0], name, c))
	}
	for _, pod := range n.running(names[:gangSize-1]...) {
		n.checkShares(pod)
	}
	if n.get(last).Spec.NodeName == "" {
		n.t.Errorf("member %s is not bound although its siblings run", last)
	}
	n.neverStarted(last)
	image := fmt.Sprintf(`{"spec": {"containers": [{"name": "main", "image": %q}]}}`, busyboxImage)
	_, err := n.pods.Patch(n.t.Context(), last, types.StrategicMergePatchType, []byte(image), metav1.PatchOptions{})
	n.must(err)
	n.checkShares(n.running(last)[0])
	n.noDrift()
	seconds, err := n.agentMetric(n.t.Context(), "tandem_agent_prestart_duration_seconds_sum")
	n.must(err)
	count, err := n.agentMetric(n.t.Context(), "tandem_agent_prestart_duration_seconds_count")
	n.must(err)
	n.t.Logf("PreStart took %.1f ms in the mean of %.0f container starts of this agent", 1000*seconds/count, count)
}

// missingImage is no image of the node, and nobody pulls it.
const missingImage = "localhost/missing:1"

// gangRepaired: the Binding of one member is refused after its siblings were bound. They run; its place is kept, from a
// pod that would fit there and also when there is room elsewhere; it is bound there once its Binding is let pass.
func gangRepaired(n *Tenant) {
	n.create(newPod("filler", share("main", slotsPerGPU)))
	names := memberNames("train")
	unlucky, pods := n.halfBound(names, 2)
	// Beside three members of two slots and the kept place of the fourth, two slots are left.
	n.create(newPod("rival", share("main", 4)))
	n.t.Logf("event: %s", n.event("rival", "0/1 nodes", "2 of 10"))
	n.unbound("rival")
	n.unbound(unlucky)
	n.delete("filler")
	if rival := n.running("rival")[0]; n.device(rival) == n.device(pods[0]) {
		n.t.Errorf("pod rival has a place on %s, which is kept for member %s", n.device(pods[0]), unlucky)
	}
	before := n.containers(names[:gangSize-1]...)
	begin := time.Now()
	n.letBind()
	pod := n.running(unlucky)[0]
	n.t.Logf("member %s ran %.1f s after its Binding was let pass; its siblings ran all the time", unlucky, time.Since(begin).Seconds())
	if got, want := n.device(pod), n.device(pods[0]); got != want {
		n.t.Errorf("member %s was bound to %s, want %s, which was kept for it", unlucky, got, want)
	}
	n.checkShares(pod)
	if diff := cmp.Diff(before, n.containers(names[:gangSize-1]...)); diff != "" {
		n.t.Errorf("the running siblings changed (-before +after):\n%s", diff)
	}
	n.noDrift()
}

// gangReleased: a gang that stays half-bound longer than the placement deadline is released whole: its bound members are
// evicted, and the room is free again.
func gangReleased(n *Tenant) {
	n.gangArgs(map[string]any{"placementDeadline": "10s"})
	names := memberNames("train")
	unlucky, pods := names[gangSize-1], make([]*v1.Pod, 0, gangSize)
	n.refuseBind(unlucky)
	bound := n.watchBindings()
	for _, name := range names {
		pods = append(pods, n.create(member(names[0], name, share("main", 2))))
	}
	begin := bound.all(names[:gangSize-1]) // on a busy machine the deadline may pass before they run
	n.t.Logf("event: %s", n.event(unlucky, refusal))
	n.t.Logf("event: %s", n.event(names[0], "evicted", "10s"))
	for _, pod := range pods[:gangSize-1] {
		n.gone(pod)
	}
	n.t.Logf("the bound members were gone %.1f s after the last of them was bound", time.Since(begin).Seconds())
	n.unbound(unlucky)
	// All room of the node is free.
	for _, pod := range n.running(n.createSizes("after", slotsPerGPU, slotsPerGPU)...) {
		n.checkShares(pod)
	}
}
