package integration

import (
	"testing"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/sandbox"
)

// TestOlderAPIServer runs the scheduler with an API server that has no DeviceTaintRule, as those before Kubernetes 1.37: it
// schedules without them, and says nothing of waiting. `make demo KUBERNETES=…` does so with the older API servers themselves.
func TestOlderAPIServer(t *testing.T) {
	t.Parallel()
	mode := gangMode{name: "no DeviceTaintRule is served", source: podgroup.Label, api: sandbox.Options{
		Authorization: authorization,
		RuntimeConfig: map[string]string{"resource.k8s.io/v1/devicetaintrules": "false"},
	}}
	c := startGangCluster(t, mode, schedulerProgram(t))
	served, err := c.admin.Discovery().ServerResourcesForGroupVersion("resource.k8s.io/v1")
	if err != nil {
		t.Fatal(err)
	}
	for _, resource := range served.APIResources {
		if resource.Name == "devicetaintrules" {
			t.Fatal("the API server serves DeviceTaintRule: the test shows nothing")
		}
	}
	c.play(t, "a gang runs", func(t *testing.T, c *gangCluster) {
		g := testGang{name: "train", members: 4, min: 4, slots: 10}
		c.create(t, g)
		c.awaitGang(t, g.name, g.members)
	})
}
