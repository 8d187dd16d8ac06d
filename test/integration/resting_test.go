package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const (
	resting = "two equal jobs come to rest"
	// calm is how long nothing may change any more, by the clock of the controller, and calmInBubble in a bubble, where the kubelets look at the
	// pods as often as they do elsewhere and six hours take four minutes.
	calm         = 6 * time.Hour
	calmInBubble = 10 * time.Minute
	// restingSpeed is how many times as fast that clock runs: a pass, each second, is then a minute.
	restingSpeed = 60
)

// TestEqualJobsRest runs scheduler and controller as they are built, but for the controller's clock, under the rights of their accounts.
func TestEqualJobsRest(t *testing.T) {
	if !everything() {
		t.Skip("takes six minutes of the real clock for decisions that TestPlays sees in a bubble: make nightly runs it (TANDEM_PLAYS=all)")
	}
	t.Parallel()
	c := startLendingCluster(t, restingSpeed)
	c.gangCluster.play(t, resting, func(t *testing.T, _ *gangCluster) { equalJobsRest(t, c) })
	c.checkController(t)
}

// equalJobsRest has two equal jobs share seven places, which none of them can have half of. Each changes its size twice at most, and then never again:
// a swap from 4 and 3 members to 3 and 4 gains nothing.
func equalJobsRest(t *testing.T, c *lendingCluster) {
	c.namespace = c.gangCluster.namespace
	targets := v1alpha1.ElasticTargets
	ctx, cancel := context.WithCancel(life(t))
	c.stop, c.last = cancel, map[schema.GroupVersionResource]int64{}
	c.follow(ctx, t, targets, func(o *unstructured.Unstructured) map[string]int64 {
		workers, _, _ := unstructured.NestedInt64(o.Object, "spec", "workers")
		return map[string]int64{o.GetName(): workers}
	})
	t.Cleanup(c.end)

	c.submit(t, patientPod("filler", "", "", 5))
	c.startJob(t, c.elasticJob("one", 5, 8))
	c.awaitWorkers(t, "one", 7)
	c.startJob(t, c.elasticJob("two", 5, 8))
	c.poll(t, "the jobs share the places", func() (bool, string) {
		one, two := len(c.indexesOf(t, "one")), len(c.indexesOf(t, "two"))
		return one+two == 7 && min(one, two) == 3, fmt.Sprintf("%d and %d members", one, two)
	})
	before := len(c.changes())
	if c.speed == 0 {
		time.Sleep(calmInBubble)
	} else {
		time.Sleep(calm / time.Duration(c.speed))
	}

	if all := c.changes(); len(all) > before {
		t.Errorf("the jobs changed their sizes while they rested: %+v", all[before:])
	}
	if one, two := len(c.indexesOf(t, "one")), len(c.indexesOf(t, "two")); one+two != 7 || min(one, two) != 3 {
		t.Errorf("after the rest the jobs have %d and %d members", one, two)
	}
	changes := map[string][]int64{}
	for _, change := range c.changes() {
		changes[change.what] = append(changes[change.what], change.to)
	}
	for _, job := range []string{"one", "two"} {
		if sizes := changes[job]; len(sizes) == 0 || len(sizes) > 3 { // the size with which the target is made, and two changes of it
			t.Errorf("job %s should have had the sizes %v: a first one and two others at most", job, sizes)
		} else if now := c.target(t, job).Spec.Workers; int64(now) != sizes[len(sizes)-1] {
			t.Errorf("job %s should have the size %d, and the record ends with %v", job, now, sizes)
		}
		c.checkJob(t, job)
	}
	c.checkRunning(t)
}
