package integration

import (
	"testing"

	v1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/sandbox"
)

// Priority classes of the tests, the first to go first.
const (
	low  = "test-low"
	mid  = "test-mid"
	high = "test-high"
	top  = "test-top"
	// modest is high without the right to evict.
	modest = "test-modest"
)

// TestPreemption runs the scheduler as it is built and configured for clusters, under the rights of its account, on nodes of
// 2, 8, 8 and 4 GPUs. No kubelet runs: a victim is asked to leave and stays until its test ends it.
func TestPreemption(t *testing.T) {
	t.Parallel()
	c := startPreemptionCluster(t, gangModes()[0], buildScheduler(t), 2, 8, 8, 4)
	for _, test := range []struct {
		name string
		play func(*testing.T, *gangCluster)
	}{
		{"the victims are those of one GPU", oneGPU},
		{"eight GPUs are freed where they are together", eightTogether},
		{"a node is freed slot by slot", slotBySlot},
		{"victims are told for whom", toldForWhom},
		{"another plan spares the budget", sparesBudget},
		{"a budget that forbids all is the last resort", lastResort},
		{"required budgets are never violated", requiredBudget},
		{"a rush of lower priority does not take the room", rush},
		{"two preemptors do not share a victim", twoPreemptors},
		{"a higher priority takes the room of a preemptor", outranked},
		{"the room is let go when the preemptor is deleted", preemptorDeleted},
		{"who leaves anyway is waited for", leavesAnyway},
		{"the scheduler is killed while the victim leaves", restartedScheduler},
		{"the node is lost while the victim leaves", lostNode},
		{"preemptionPolicy Never", neverPreempts},
		{"what would not fit evicts nobody", neverInVain},
		{"a dry run evicts nobody", dryRun},
		{"pods without vGPUs", withoutVGPUs},
		{"a class that does not exist", classUnknown},
		{"a class that is deleted", classDeleted},
		{"a minimum for a class that does not exist", minimumOfNoClass},
	} {
		c.play(t, test.name, test.play)
	}
}

// TestPreemptionInTime has the plays in which the scheduler waits for half a minute, on a cluster of their own: no other play waits
// for them.
func TestPreemptionInTime(t *testing.T) {
	t.Parallel()
	c := startPreemptionCluster(t, gangModes()[0], buildScheduler(t), 2, 8, 8, 4)
	c.play(t, "a victim that never ends is given up", staysOn)
	c.play(t, "evictions in a minute are bounded", bounded)
	c.play(t, "more victims than the bound allows at once", beyondBound)
}

// TestGangPreemption is TestPreemption for gangs, once for every way in which they can be declared.
func TestGangPreemption(t *testing.T) {
	t.Parallel()
	for _, mode := range gangModes() {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			c := startPreemptionCluster(t, mode, buildScheduler(t), 2, 8, 8, 4)
			c.play(t, "a gang goes whole for a gang", gangForGang)
			c.play(t, "surplus goes before a gang dies", surplusFirst)
			c.play(t, "a gang of a higher priority stays", gangStays)
			c.play(t, "the gang is deleted while its victims leave", gangDeleted)
		})
	}
}

// startPreemptionCluster returns a cluster of nodes with so many GPUs each, and with the priority classes.
func startPreemptionCluster(t *testing.T, mode gangMode, binary string, gpus ...int) *gangCluster {
	t.Helper()
	c := startCluster(t, mode, binary, gpus...)
	for name, value := range map[string]int32{low: 10, mid: 100, high: 1000, modest: 1000, top: 2000} {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value}
		if name == modest {
			never := v1.PreemptNever
			class.PreemptionPolicy = &never
		}
		sandbox.CreatePriorityClassForTest(t.Context(), t, c.admin, class)
	}
	return c
}
