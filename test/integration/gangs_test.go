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

// schedulerProgram returns the file of the command as it is built for clusters, so that its own main decides what it starts with.
func schedulerProgram(t *testing.T) string {
	t.Helper()
	return sandbox.ProgramForTest(t, "scheduler")
}
