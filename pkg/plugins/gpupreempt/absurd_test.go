package gpupreempt

import (
	"strings"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// asks adds a request of memory to a pod.
func asks(p *v1.Pod, memory string) *v1.Pod {
	r := &p.Spec.Containers[0].Resources
	if r.Requests == nil {
		r.Requests = v1.ResourceList{}
	}
	r.Requests[v1.ResourceMemory] = resource.MustParse(memory)
	return p
}

// A pod without vGPUs that names its node itself, and asks for more bytes than 64 bits hold, keeps no pod from being evicted
// elsewhere; and where only its node would do, it goes as well.
func TestAbsurdNeighbour(t *testing.T) {
	t.Parallel()
	for name, amount := range map[string]string{
		"2^63": "9223372036854775808", "2^64 + 1, which counts as one": "18446744073709551617",
		"2^64 - 32Gi, which counts as less than nothing": "18446744039349813248", "2^63 - 1": "9223372036854775807", "more than all hosts": "1Pi",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1, 1)
				c.createBound(asks(pod("low-0", 10, 1), "1Gi"), asks(pod("low-1", 10, 2), "1Gi"))
				absurd := asks(pod("absurd", 0, 0), amount)
				absurd.Spec.NodeName = c.Pod("low-0").Spec.NodeName
				c.Create(absurd)
				c.Create(asks(pod("high-0", 10, 100), "1Gi"))
				c.Create(asks(pod("high-1", 10, 99), "1Gi"))
				expect(t, "victims", []string{"absurd", "low-0", "low-1"}, c.awaitVictims(3))
				c.Remove("absurd", "low-0", "low-1")
				c.AwaitBound("high", 2)
			})
		})
	}
}

// A victim that the API server takes no update of is evicted without its mark.
func TestFullVictim(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1)
		c.full = map[string]bool{"low": true}
		c.start()
		c.createBound(pod("low", 10, 0))
		c.Create(pod("high", 10, 100))
		expect(t, "victims", []string{"low"}, c.awaitVictims(1))
		expect(t, "conditions of the victim", 1, len(c.Pod("low").Status.Conditions)) // PodScheduled
		c.Remove("low")
		c.AwaitBound("high", 1)
	})
}

// The message of a request that no node could ever meet does not speak of preemption, whichever pods could leave.
func TestNothingIsSaidOfTheImpossible(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.createBound(pod("low", 10, 0))
		c.Create(asks(pod("high", 5, 100), "2Ti"))
		text := c.AwaitMessage("high", "Insufficient memory")
		if strings.Contains(text, "preemption:") {
			t.Errorf("the message is %q", text)
		}
	})
}
