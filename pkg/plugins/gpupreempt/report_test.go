package gpupreempt

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// A dry run asks other plugins too, and keeps no room: what it says is what would be done.
func TestDryRunOfAGangAsksOtherPlugins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1, 1, 1)
		c.args.Mode = config.PreemptionDryRun
		c.start()
		high := c.blockedGang()
		c.awaitMessage("high", "(dry run) on 2 nodes it would evict 2 pods: default/low-1, default/low-2")
		expect(t, "victims", nil, c.victims())
		for _, p := range high {
			if h, held := c.plugin.sharesOrNil().Held(uidOf(p)); held {
				t.Errorf("room is kept for %s on %s", p.Name, h.Node)
			}
		}
	})
}

// A dry run changes nothing: the room that is kept for a gang while others end stays.
func TestDryRunLetsADrainGoOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := prepareCluster(t, 1, 1)
		c.args.Mode = config.PreemptionDryRun
		c.start()
		c.createBound(pod("low-0", 10, 0), pod("low-1", 10, 0))
		high := team("high", 2, 2, 10, 100)
		c.create(high...)
		c.awaitMessage("high", "(dry run) on 2 nodes it would evict 2 pods: default/low-0, default/low-1")
		for i := range 2 { // others pass it over
			c.clock.pass(10 * time.Second)
			c.leave(fmt.Sprintf("low-%d", i))
			c.createBound(pod(fmt.Sprintf("late-%d", i), 10, 0))
		}
		c.clock.pass(2 * time.Minute)
		c.await("room is kept for the gang", func() bool { return c.held(high...) == 2 })
		c.clock.pass(2 * time.Minute)
		c.awaitMessage("high", "it would evict 2 pods: default/late-0, default/late-1; other plugins were not asked, since room is kept for the gang")
		expect(t, "members for which room is kept", 2, c.held(high...))
	})
}

// held counts the pods for which room is kept.
func (c *cluster) held(pods ...*v1.Pod) int {
	count := 0
	for _, p := range pods {
		if _, held := c.plugin.sharesOrNil().Held(uidOf(p)); held {
			count++
		}
	}
	return count
}

// A pod whose request no GPU can meet is told that, and nothing of preemption.
func TestIllegalRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1)
		c.createBound(pod("low", 5, 0))
		latency, memory := pod("latency", 10, 100), pod("memory", 10, 100)
		latency.Annotations = map[string]string{v1alpha1.AnnotationMaxLatency: "soon"}
		memory.Annotations = map[string]string{v1alpha1.AnnotationMemoryLimit: "all"}
		c.create(pod("slots", 15, 100), latency, memory)
		for name, says := range map[string]string{"slots": "15", "latency": "soon", "memory": "all"} {
			if got := c.awaitMessage(name, says); strings.Contains(got, "preemption") {
				t.Errorf("%s: the message is %q", name, got)
			}
		}
		expect(t, "attempts", 3.0, c.count("attempts_total", resultIneligible))
	})
}

func TestWould(t *testing.T) {
	t.Parallel()
	for is, want := range map[string]string{
		"evicts 2 pods: a, b": "would evict 2 pods: a, b", "evicts nobody, waits for c to leave": "would evict nobody, would wait for c to leave",
	} {
		expect(t, is, want, would(is))
	}
}
