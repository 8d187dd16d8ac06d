package gpugang

import (
	"errors"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
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

// A member with an unresolved bind is on no node of the snapshot, and takes its part of the host all the same: the other members get
// what is left, and a member for which the host has no room any more needs another place.
func TestUnresolvedMembersTakeTheHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 2)
		pods := members("train", 2, 2, 10)
		for _, p := range pods {
			p.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("30")}
		}
		c.RefuseBinds(func(string) error { return errors.New("no answer") })
		c.Create(pods...)
		c.checkUnresolved(pods, nil, 2, 64000-60000)
		other := pod("other", 0)
		other.Spec.Containers[0].Resources.Requests = v1.ResourceList{v1.ResourceCPU: resource.MustParse("10")}
		c.checkUnresolved(pods, other, 1, 64000-10000-30000)
	})
}

// checkUnresolved waits for a moment at which the binds of all members of a gang are unresolved. Then it checks how many members are
// counted where they may be, and what CPU is left on the node for more, where another pod is there.
func (c *cluster) checkUnresolved(pods []*v1.Pod, other *v1.Pod, want int, milliCPU int64) {
	c.T.Helper()
	var in *planInput
	c.Await("all binds are unresolved", func() bool {
		in = c.inputBeside(pods[0], other)
		return c.plugin.shares().UnresolvedBinds() == len(pods) && in.placed() == len(in.unresolved)
	})
	if in.placed() != want || len(in.group.Members) != len(pods)-want || in.ledger("n1").Room().MilliCPU != milliCPU {
		c.T.Errorf("%d members have a place, %d need one, and n1 has %dm CPU; want %d, %d and %dm", in.placed(), len(in.group.Members),
			in.ledger("n1").Room().MilliCPU, want, len(pods)-want, milliCPU)
	}
}

// inputBeside returns the question to core for the gang of a pod, where the snapshot has only another pod, nil for none.
func (c *cluster) inputBeside(p, other *v1.Pod) *planInput {
	c.T.Helper()
	node, err := c.Client.CoreV1().Nodes().Get(c.T.Context(), "n1", metav1.GetOptions{})
	must.OK(c.T, err)
	info := framework.NewNodeInfo()
	info.SetNode(node)
	if other != nil {
		info.AddPod(other)
	}
	ref, _ := c.plugin.gangs.Of(p)
	in, err := c.plugin.collectInput(c.T.Context(), &cycle{cs: framework.NewCycleState(), pod: p, nodes: []fwk.NodeInfo{info}}, ref, false)
	must.OK(c.T, err)
	return in
}
