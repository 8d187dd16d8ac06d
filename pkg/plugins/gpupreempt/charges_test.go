package gpupreempt

import (
	"testing"
	"testing/synctest"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/reservation"
)

// A budget that must be kept is kept by preemptors that come one right after the other: before its controller has counted the
// victims of the first.
func TestBudgetIsChargedAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1, 1)
		c.args.PodDisruptionBudgets = config.BudgetsRequired
		b := c.budget("low", 1)
		c.start()
		c.createBound(labelled(pod("low-0", 10, 0), "app", "low"), labelled(pod("low-1", 10, 0), "app", "low"))
		c.Create(pod("high-0", 10, 100))
		first := c.awaitVictims(1)
		c.Create(pod("high-1", 10, 100))
		c.AwaitMessage("high-1", "budget default/pdb-low allows 0 of the 1 evictions")
		expect(t, "victims", first, c.victims())
		b.Status.ObservedGeneration = 1 // it has counted the victim, and allows another one
		if _, err := c.Client.PolicyV1().PodDisruptionBudgets("default").UpdateStatus(t.Context(), b, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		c.Await("the budget is read", func() bool {
			all, err := c.plugin.budgets.List(labels.Everything())
			return err == nil && len(all) == 1 && all[0].Status.ObservedGeneration == 1
		})
		c.Remove(first...)
		c.AwaitBound("high-0", 1)
		c.awaitVictims(2)
	})
}

// A charge to a budget ends with the version of the budget, and with the victim.
func TestCharges(t *testing.T) {
	t.Parallel()
	now := time.Unix(1e9, 0)
	p := &Plugin{machine: newMachine(func() time.Time { return now })}
	take := func(e reservation.Event) { p.machine.Step(func(machine.Locked) reservation.Event { return e }) }
	budget := func(name, version string) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: "u", ResourceVersion: version}}
	}
	x, y := reservation.Stamp{Name: "team/x", Version: "u/1"}, reservation.Stamp{Name: "team/y", Version: "u/1"}
	take(reservation.PodRoomMade{PodRef: reservation.PodRef{UID: "high"}, Evict: []reservation.Chosen{
		{UID: "a", Until: now, Budgets: []reservation.Stamp{x}}, {UID: "b", Until: now, Budgets: []reservation.Stamp{x, y}},
		{UID: "c", Until: now.Add(time.Second), Budgets: []reservation.Stamp{y}},
	}})
	allowed := func(x, y string) []int {
		left := []preemption.Budget{{Name: "team/x", Allowed: 5}, {Name: "team/y", Allowed: 1}, {Name: "team/z", Allowed: 1}}
		p.charge(left, []*policyv1.PodDisruptionBudget{budget("z", "1"), budget("y", y), budget("x", x)})
		return []int{left[0].Allowed, left[1].Allowed, left[2].Allowed}
	}
	expect(t, "as they were", []int{3, 0, 1}, allowed("1", "1"))
	expect(t, "one has changed", []int{5, 0, 1}, allowed("2", "1"))
	take(reservation.VictimGone{UID: "b"})
	expect(t, "one victim is gone", []int{4, 0, 1}, allowed("1", "1"))
	now = now.Add(2 * time.Second)
	take(reservation.SecondPassed{})
	expect(t, "all are gone", []int{5, 1, 1}, allowed("1", "1"))
}
