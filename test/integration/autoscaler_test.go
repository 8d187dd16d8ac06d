package integration

import (
	"fmt"
	"os"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Settings of a NodePool: it keeps its nodes, or removes those that it can do without.
const (
	kept         = `{consolidateAfter: Never}`
	consolidated = `{consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 0s, budgets: [{nodes: "100%"}]}`
)

// TestAutoscaler runs Karpenter beside the scheduler, on a cluster without nodes. It has what docs/guides/autoscaling.md promises.
func TestAutoscaler(t *testing.T) {
	if os.Getenv("TANDEM_AUTOSCALER") != "1" {
		t.Skip("needs Karpenter, minutes of building that no other test here needs: make test-autoscaler runs it (TANDEM_AUTOSCALER=1)")
	}
	t.Parallel()
	c := startCluster(t, gangModes()[0], schedulerProgram(t))
	c.startKubelets(t)
	c.startKarpenter(t)
	c.startAgents(t)
	c.scales(t, "no instance type has the memory of GPUs", memoryByOverlay)
	c.pool(t, sharedPool, kept, "gpu-1x", "gpu-2x", "gpu-8x")
	c.scales(t, "a fraction", fractionScales)
	c.scales(t, "a pod of eight GPUs", eightGPUsScale)
	c.scales(t, "a gang of four", gangScales)
	c.scales(t, "Karpenter adds slots up over GPUs", slotsAddUp)
	c.scales(t, "empty nodes are removed, running gangs stay", scalesDown)
}

// memoryPod returns a pod that asks for slots and for memory of GPUs.
func memoryPod(name string, slots int, memory string) *v1.Pod {
	p := vgpuPod(name, slots)
	p.Spec.Containers[0].Resources.Limits[v1alpha1.ResourceMemory] = resource.MustParse(memory)
	return p
}

// memoryByOverlay: Karpenter names the resources that no instance type has, and a NodeOverlay says which have them. Karpenter then waits
// for them on the new node. It counts the node as complete once the controller has written the memory there.
func memoryByOverlay(t *testing.T, c *gangCluster) {
	c.pool(t, "bare", kept, bareType)
	c.submit(t, memoryPod("memory", 2, "8Gi"))
	c.awaitSaid(t, "Failed to schedule pod", "no instance type has enough resources", `"tandem-gpu.io/vgpu":"2"`, `"tandem-gpu.io/vgpu-memory":"8Gi"`)
	c.wantInstances(t)
	c.plane.ApplyForTest(t.Context(), t, `
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: tandem}
spec:
  requirements:
  - {key: node.kubernetes.io/instance-type, operator: In, values: [bare-8x]}
  capacity: {tandem-gpu.io/vgpu: "80", tandem-gpu.io/vgpu-memory: 320Gi}
`)
	c.awaitPlace(t, "memory")
	c.wantInstances(t, bareType)
	c.awaitClaim(t, v1.ConditionUnknown, "ResourceNotRegistered")
	c.writeNodeMemory(t)
	c.awaitClaim(t, v1.ConditionTrue, "Initialized")
	pools := nodeClaims.GroupVersion().WithResource("nodepools")
	if err := c.objects.Resource(pools).Delete(t.Context(), "bare", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// fractionScales: the cheapest instance type that has the slots.
func fractionScales(t *testing.T, c *gangCluster) {
	c.submit(t, memoryPod("fraction", 2, "8Gi"))
	c.awaitPlace(t, "fraction")
	c.wantInstances(t, "gpu-1x")
}

func eightGPUsScale(t *testing.T, c *gangCluster) {
	c.submit(t, vgpuPod("whole", 80))
	c.awaitPlace(t, "whole")
	c.wantInstances(t, "gpu-8x")
}

// gangScales: Karpenter sees all members, not only the one that the scheduler tries for all of them.
func gangScales(t *testing.T, c *gangCluster) {
	c.create(t, testGang{name: "train", members: 4, min: 4, slots: 40})
	c.awaitGang(t, "train", 4)
	c.wantInstances(t, "gpu-8x", "gpu-8x")
}

// slotsAddUp: two GPUs with four free slots each count as eight to Karpenter, which makes no node for a pod of eight.
func slotsAddUp(t *testing.T, c *gangCluster) {
	for i := range 2 {
		p := vgpuPod(fmt.Sprint("six-", i), 6)
		p.Spec.NodeSelector = map[string]string{v1.LabelInstanceTypeStable: "gpu-2x"}
		c.submit(t, p)
	}
	for i := range 2 {
		c.awaitPlace(t, fmt.Sprint("six-", i))
	}
	c.wantInstances(t, "gpu-2x")
	node := c.pod(t, "six-0").Spec.NodeName
	c.submit(t, vgpuPod("eight", 8))
	c.awaitSaid(t, "Pod should schedule on: ", "node/"+node)
	c.awaitRefused(t, "eight", "largest free share is 4 of 10 slots")
	c.finish(t, "eight")
	p := vgpuPod("alone", 8)
	p.Spec.NodeSelector = map[string]string{v1.LabelInstanceTypeStable: "gpu-1x"}
	c.submit(t, p)
	c.awaitPlace(t, "alone")
	c.wantInstances(t, "gpu-1x", "gpu-2x")
}

// scalesDown: the placement packs pods on the fullest nodes, and Karpenter removes those that this leaves empty. It does not move the
// members of a gang that say so, although one node would do for them.
func scalesDown(t *testing.T, c *gangCluster) {
	gang := testGang{name: "train", members: 4, min: 2, slots: 40}
	for i := range gang.members {
		p := c.member(gang, i)
		p.Annotations[doNotDisrupt] = "true"
		c.submit(t, p)
	}
	c.awaitGang(t, "train", 4)
	small := func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelInstanceTypeStable: "gpu-1x"} }
	c.createSingles(t, "busy", 3, 10, small)
	c.wantInstances(t, "gpu-1x", "gpu-1x", "gpu-1x", "gpu-8x", "gpu-8x")
	first := c.pod(t, "train-0").Spec.NodeName
	for _, p := range c.members(t, "train") { // one member is left on each node
		if same := p.Spec.NodeName == first; same && p.Name != "train-0" || !same && len(c.elsewhere(t, "train", first)) > 1 {
			c.finish(t, p.Name)
		}
	}
	before := c.nodesOf(t, "train")
	c.finish(t, "busy-0", "busy-1", "busy-2")
	c.createSingles(t, "small", 2, 2, small)
	c.pool(t, sharedPool, consolidated, "gpu-1x", "gpu-2x", "gpu-8x")
	c.poll(t, "Karpenter has removed the empty nodes", func() (bool, string) {
		nodes := c.cloudNodes(t)
		return len(nodes) == 3, fmt.Sprint(nodes)
	})
	for _, p := range c.members(t, "train") {
		c.awaitKept(t, &p)
	}
	if now := c.nodesOf(t, "train"); !slices.Equal(now, before) || len(now) != 2 || now[0] == now[1] {
		t.Errorf("the gang was on %v, and is on %v", before, now)
	}
	if one, other := c.pod(t, "small-0").Spec.NodeName, c.pod(t, "small-1").Spec.NodeName; one != other {
		t.Errorf("the small pods are on %s and %s", one, other)
	}
}

// elsewhere returns the members of a gang that are on other nodes.
func (c *gangCluster) elsewhere(t *testing.T, gang, node string) []v1.Pod {
	t.Helper()
	return slices.DeleteFunc(c.members(t, gang), func(p v1.Pod) bool { return p.Spec.NodeName == node })
}
