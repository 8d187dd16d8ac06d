package gpugang

import (
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// A host has back what its pods ask for when they end, and nothing of amounts that no host has: 64 bits hold a part of them, or one
// sum of them takes half a second.
func TestAbsurdPodsGiveNothingBack(t *testing.T) {
	for name, x := range map[string]struct {
		cpu, memory string
		want        vgpu.Room
	}{
		"legal":                   {"1500m", "2Gi", vgpu.Room{MilliCPU: 1500, Memory: 2 * vgpu.GiB}},
		"2^64 - 32Gi bytes":       {"1", "18446744039349813248", vgpu.Room{}},
		"2^64 + 1 bytes":          {"1", "18446744073709551617", vgpu.Room{}},
		"2^63 bytes":              {"1", "9223372036854775808", vgpu.Room{}},
		"2^64 thousandths of CPU": {"18446744073709551616m", "1Gi", vgpu.Room{}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1)
				p := pod("there", 0)
				p.Spec.NodeName = "n1"
				p.Spec.Containers[0].Resources.Requests = v1.ResourceList{
					v1.ResourceCPU: resource.MustParse(x.cpu), v1.ResourceMemory: resource.MustParse(x.memory),
				}
				c.Create(p)
				c.Await("the pod is seen", func() bool { return c.plugin.machine.Seen(kube.UIDOf(p), kube.PathOf(p)) != nil })
				if got := c.plugin.hostOf(kube.UIDOf(p), kube.PathOf(p)); got != x.want {
					t.Errorf("%v comes back, want %v", got, x.want)
				}
			})
		})
	}
}
