package gpushare

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/placement"
)

// Each policy that the arguments may name places pods in the real scheduler, with usual requests that are learned.
func TestEveryPolicyPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n1, n2 := gpuNode("n1", 2), gpuNode("n2", 2)
		c := newCluster(t, n1, n2)
		for _, policy := range placement.Policies() {
			c.stop()
			c.configure = func(args *config.GPUShareArgs) { args.Policy = policy }
			c.start()
			for _, k := range []int{3, 1} {
				name := fmt.Sprintf("%s-%d", policy, k)
				c.createPod(pod(name, k))
				c.awaitBound(name)
			}
		}
		sum := 0
		for _, used := range c.checkLedger(n1, n2) {
			sum += int(used)
		}
		if want := 4 * len(placement.Policies()); sum != want {
			t.Errorf("%d slots are used, want %d", sum, want)
		}
	})
}

// The seed of the arguments decides what random does, and each pod has its own order of nodes: nothing is remembered.
func TestSeedOfRandom(t *testing.T) {
	d := manyNodes(t, 120)
	ranks := func(seed int64, name string) map[string]int64 {
		d.plugin.seed = seed
		d.follow("random")
		return d.ranks(pod(name, 1))
	}
	first := ranks(1, "a")
	if diff := cmp.Diff(first, ranks(1, "a")); diff != "" {
		t.Errorf("the same seed ranks differently:\n%s", diff)
	}
	if cmp.Equal(first, ranks(2, "a")) {
		t.Error("another seed ranks the same")
	}
	if cmp.Equal(first, ranks(1, "b")) {
		t.Error("another pod has the same order of nodes")
	}
}
