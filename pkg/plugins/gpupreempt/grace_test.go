package gpupreempt

import (
	"math"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const tenYears = 315_360_000

// taking returns a pod with a grace period.
func taking(seconds int64, p *v1.Pod) *v1.Pod {
	p.Spec.TerminationGracePeriodSeconds = &seconds
	return p
}

// A pod that is being deleted and takes ten years to end is not waited for: the GPU beside it is made free.
func TestEndlessVictimIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1)
		c.createBound(taking(tenYears, pod("endless", 10, 0)), pod("low", 10, 5))
		if err := c.Client.CoreV1().Pods("default").Delete(t.Context(), "endless", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		c.Create(pod("high", 10, 100))
		expect(t, "victims", []string{"endless", "low"}, c.awaitVictims(2)) // the first by the test
		node := c.Pod("low").Spec.NodeName
		c.Remove("low")
		expect(t, "place", map[string]string{"high": node}, c.AwaitBound("high", 1))
	})
}

// A victim that takes longer to end than its room is waited for is the last resort, whatever its priority; also where the seconds
// are more than a duration has. It is evicted once, and no other pod.
func TestSlowVictimsAreTheLastResort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, seconds := range []int64{601, 9_223_372_037, math.MaxInt64} {
			c := newCluster(t, 1, 1)
			c.createBound(taking(seconds, pod("slow", 10, 0)), taking(600, pod("low", 10, 5)))
			c.Create(pod("high-0", 10, 100))
			expect(t, "victims", []string{"low"}, c.awaitVictims(1))
			c.Remove("low")
			c.AwaitBound("high-0", 1)
			c.Create(pod("high-1", 10, 100))
			expect(t, "victims", []string{"low", "slow"}, c.awaitVictims(2))
			c.AwaitMessage("high-1", "1 of 1 pod (default/slow) yet to leave")
			c.Clock.Pass(11 * time.Minute)
			c.AwaitMessage("high-1", "did not leave node")
			expect(t, "victims", []string{"low", "slow"}, c.victims())
			c.stop()
		}
	})
}

// An administrator's bound cuts grace periods of victims, and so none is slow.
func TestMaximumGracePeriod(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1, 1)
		c.args.MaximumGracePeriod = metav1.Duration{Duration: time.Minute}
		c.start()
		c.createBound(taking(tenYears, pod("slow", 10, 0)), taking(5, pod("low", 10, 1)))
		c.Create(pod("high-0", 10, 100))
		expect(t, "first victim", []string{"slow"}, c.awaitVictims(1))
		c.Create(pod("high-1", 10, 100))
		c.awaitVictims(2)
		for name, most := range map[string]time.Duration{"slow": time.Minute, "low": 5 * time.Second} {
			if end := c.Pod(name).DeletionTimestamp; end == nil || end.Sub(c.Clock.Now()) > most {
				t.Errorf("pod %s ends at %v, want within %v", name, end, most)
			}
		}
	})
}
