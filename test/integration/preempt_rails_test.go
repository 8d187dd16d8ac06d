package integration

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// A pod that says so evicts nobody, and one that does not say so does.
func neverPreempts(t *testing.T, c *gangCluster) {
	c.fill(t, "old", low, "n0")
	c.submit(t, patientPod("modest", modest, "n0", 10))
	c.awaitRefused(t, "modest", "preemptionPolicy is Never")
	c.onlyThese(t)
	c.submit(t, patientPod("urgent", high, "n0", 10))
	c.awaitLeaving(t, 1)
}

// Nine GPUs of a node of eight, two GPUs of which one is of a higher priority, three of equal priority: nobody goes.
func neverInVain(t *testing.T, c *gangCluster) {
	c.settle(t, "stays", top, "n0", 10)
	c.settle(t, "old", low, "n0", 10)
	c.fill(t, "equal", high, "n3")
	c.probe(t, "beyond", high, "n3", 50)
	c.probe(t, "blocked", high, "n0", 20)
	c.probe(t, "equals", high, "n3", 10)
	c.probe(t, "below", low, "n0", 10)
	c.onlyThese(t)
	c.submit(t, patientPod("fits", high, "n0", 10))
	c.awaitLeaving(t, 1)
}

// dryRun: the scheduler says which pods it would evict, and evicts them once the mode is Enabled.
func dryRun(t *testing.T, c *gangCluster) {
	c.restart(t, func(args map[string]any) { args["mode"] = "DryRun" })
	c.settle(t, "stays", top, "n0", 10)
	c.settle(t, "old", low, "n0", 10)
	c.submit(t, patientPod("urgent", high, "n0", 10))
	c.awaitRefused(t, "urgent", "dry run", "n0", c.namespace+"/old-0")
	c.probe(t, "probe", high, "n0", 10)
	c.onlyThese(t)
	c.finish(t, "probe")
	c.restart(t, nil)
	c.awaitLeaving(t, 1)
}

// Two pods in a minute: the third preemptor says that it waits for its turn, and has it within the next minute.
func bounded(t *testing.T, c *gangCluster) {
	c.restart(t, func(args map[string]any) { args["evictionsPerMinute"] = 2 })
	c.fill(t, "old", low, "n3")
	began := time.Now()
	for i := range 3 {
		c.submit(t, patientPod(fmt.Sprintf("urgent-%d", i), high, "n3", 10))
	}
	c.awaitTurn(t, 3)
	var last time.Time
	for _, p := range c.awaitLeaving(t, 3) {
		if at := askedAt(&p); at.After(last) {
			last = at
		}
	}
	if after := last.Sub(began); after < turn {
		t.Errorf("the third pod was asked to leave %v after the preemptors came, want %v at least", after, turn)
	}
}

// turn is how long it takes until one more pod may be evicted of two in a minute, less a second that the API server rounds off. The
// tests count from the time before the first preemptor came: the scheduler decides after that, and a busy API server may carry the
// first eviction out much later than the scheduler decides.
const turn = 29 * time.Second

// awaitTurn waits until a preemptor says that it waits for its turn. If the machine may be starved, it is enough that so many pods leave: the turn
// may have come before the scheduler saw the preemptor. The times at which the pods were asked to leave tell whether it was their turn.
func (c *gangCluster) awaitTurn(t *testing.T, victims int) {
	t.Helper()
	c.poll(t, "a preemptor waits for its turn or has had it", func() (bool, string) {
		leaving := c.leaving(t)
		return c.mayLag() && len(leaving) >= victims || c.says(t, "evicts 2 pods in a minute at most", "would fit on node n3"), fmt.Sprintf("%v leave", names(leaving))
	})
}

// askedAt returns when a pod was asked to leave.
func askedAt(p *v1.Pod) time.Time {
	return p.DeletionTimestamp.Add(-time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
}

// A pod of four GPUs needs four victims, two are allowed in a minute, and one has been evicted: it waits until nobody was for
// long enough, and then has all of them at once.
func beyondBound(t *testing.T, c *gangCluster) {
	c.restart(t, func(args map[string]any) { args["evictionsPerMinute"] = 2 })
	c.fill(t, "old", low, "n3")
	began := time.Now()
	c.submit(t, patientPod("small", mid, "n3", 10))
	first := c.awaitLeaving(t, 1)[0]
	c.finish(t, first.Name)
	c.awaitPlace(t, "small")
	c.submit(t, patientPod("urgent", high, "n3", 40))
	c.awaitTurn(t, 4)
	victims := c.awaitLeaving(t, 4)
	for i := range victims {
		if after := askedAt(&victims[i]).Sub(began); after < turn {
			t.Errorf("pod %s was asked to leave %v after the first preemptor came, want %v at least", victims[i].Name, after, turn)
		}
	}
	c.finish(t, names(victims)...)
	c.awaitPlace(t, "urgent")
	c.onlyThese(t)
}

// A pod that asks for no vGPU evicts one of its kind for its CPU, as with the stock scheduler; and then one with a vGPU.
func withoutVGPUs(t *testing.T, c *gangCluster) {
	plain := func(name, class, cores string) *v1.Pod {
		p := patientPod(name, class, "n0", 1)
		p.Spec.Containers[0].Resources = v1.ResourceRequirements{Requests: v1.ResourceList{v1.ResourceCPU: resource.MustParse(cores)}}
		return p
	}
	gpu := patientPod("gpu", mid, "n0", 10)
	gpu.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("500")}
	c.submit(t, gpu)
	c.submit(t, plain("web", low, "400"))
	c.awaitPlace(t, "gpu")
	c.awaitPlace(t, "web")
	c.submit(t, plain("urgent", high, "300"))
	if victims := names(c.awaitLeaving(t, 1)); victims[0] != "web" {
		t.Errorf("pod %s leaves, want the one of the lowest priority", victims[0])
	}
	c.awaitSaid(t, "Preempted by")
	c.finish(t, "web")
	c.awaitPlace(t, "urgent")
	c.onlyThese(t)
	c.submit(t, plain("more", high, "300"))
	if victims := names(c.awaitLeaving(t, 1)); victims[0] != "gpu" {
		t.Errorf("pod %s leaves, want the one with the vGPU", victims[0])
	}
	c.finish(t, "gpu")
	c.awaitPlace(t, "more")
}
