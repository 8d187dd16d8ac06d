package integration

import (
	"testing"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/sandbox"
)

// gangMode is one way in which a cluster lets gangs be declared.
type gangMode struct {
	name string
	// source that the gangs of the tests have.
	source podgroup.Source
	// api are the options of the API server that it needs, and crds what is installed beside deploy/.
	api  sandbox.Options
	crds []string
	// stable: the scheduler reaches the API server by a proxy that shows Kubernetes' PodGroup in v1 alone.
	stable bool
}

// authorization is that of a cluster, so that the scheduler has the rights of its account alone.
const authorization = "Node,RBAC"

func gangModes() []gangMode {
	return []gangMode{
		{name: "no PodGroup is served", source: podgroup.Label, api: sandbox.Options{Authorization: authorization}},
		{
			name: "PodGroup of the scheduler plugins", source: podgroup.XK8s, api: sandbox.Options{Authorization: authorization},
			crds: []string{xk8sCRD},
		},
		nativeMode(),
	}
}

// nativeMode is that of Kubernetes' own PodGroup.
func nativeMode() gangMode {
	return gangMode{
		name: "PodGroup of Kubernetes", source: podgroup.Native, api: sandbox.Options{
			Authorization: authorization,
			// The second gate is for spec.schedulingConstraints alone.
			FeatureGates:  map[string]bool{"GenericWorkload": true, "TopologyAwareWorkloadScheduling": true},
			RuntimeConfig: map[string]string{"scheduling.k8s.io/v1beta1": "true"},
		},
	}
}

// TestGangs runs the scheduler as it is built and configured for clusters, under the rights of its account, once for every
// way in which gangs can be declared.
func TestGangs(t *testing.T) {
	t.Parallel()
	for _, mode := range gangModes() {
		t.Run(mode.name, func(t *testing.T) {
			t.Parallel()
			c := startGangCluster(t, mode, buildScheduler(t))
			c.play(t, "the examples run", examplesRun)
			c.play(t, "a gang that does not fit waits whole", waitsWhole)
			c.play(t, "a gang beyond the cluster is refused at once", neverFits)
			c.play(t, "autoscalers see who waits", seenByAutoscalers)
			c.play(t, "two gangs of more than half", twoHalves)
			c.play(t, "a member that is made again returns to its siblings", returnsNear)
			c.play(t, "members arrive late", lateMembers)
			c.play(t, "members of unlike priority", unlikePriorities)
			c.play(t, "a hundred and fifty members", manyMembers)
			c.play(t, "the scheduler is killed between two binds", killedScheduler)
			c.play(t, "a gang that stays half-bound is released", releasedHalf)
			if mode.source != podgroup.Label {
				c.play(t, "the PodGroup is deleted while its gang waits", deletedPodGroup)
				return
			}
			c.play(t, "two thousand members", twoThousandMembers)
			c.play(t, "a PodGroup is served later", servedLater)
		})
	}
}

// buildScheduler returns the command as it is built for clusters, so that its own main decides what it starts with.
func buildScheduler(t *testing.T) string {
	t.Helper()
	return sandbox.ProgramForTest(t, "scheduler")
}
