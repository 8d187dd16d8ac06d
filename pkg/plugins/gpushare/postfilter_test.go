package gpushare

import (
	"strings"
	"testing"
	"testing/synctest"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/bubble"
)

// t4s returns a GPUNode with devices of 4 slots.
func t4s(name string, count int) *v1alpha1.GPUNode {
	g := gpuNode(name, count)
	for i := range g.Status.Devices {
		g.Status.Devices[i].Model, g.Status.Devices[i].Slots = "T4", 4
	}
	return g
}

// cordon sets whether a node takes new pods.
func (c *cluster) cordon(name string, closed bool) {
	c.t.Helper()
	patch := []byte(`{"spec":{"unschedulable":true}}`)
	if !closed {
		patch = []byte(`{"spec":{"unschedulable":null}}`)
	}
	if _, err := c.client.CoreV1().Nodes().Patch(c.t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// Slots that are legal on GPUs of nodes that are closed are legal: the pod's message says what closes them, and the pod waits for
// that.
func TestClosedNodesAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, gpuNode("n1", 1), gpuNode("n2", 1), gpuNode("n3", 1), t4s("n4", 2))
		c.createPod(pod("busy", 10))
		busy := c.awaitBound("busy")
		for _, name := range []string{"n1", "n2"} {
			c.cordon(name, true)
		}
		c.taint("n3")
		bubble.Rest() // the scheduler has seen it
		c.createPod(pod("large", 10))
		got := c.awaitPending("large", "nearest GPU: only 3 nodes have GPUs for such a request, and they do not take the pod: "+
			"1 node(s) had untolerated taint(s), 2 node(s) were unschedulable")
		if strings.Contains(got, "legal") {
			t.Errorf("the message is %q", got)
		}
		c.createPod(pod("absurd", 13)) // is legal nowhere
		c.awaitPending("absurd", `"13" is not legal`)
		c.createPod(pod("more", 30)) // takes three GPUs of a node
		c.awaitPending("more", "nearest GPU: number of A100 devices")
		for _, name := range []string{"n1", "n2"} {
			c.cordon(name, name == busy)
		}
		c.awaitBound("large")
	})
}

// So it is where the agents of the other nodes are not ready.
func TestNodesWithoutAgentAreNamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sick := gpuNode("n1", 1)
		sick.Status.Conditions[0].Status = metav1.ConditionFalse
		c := newCluster(t, sick, t4s("n2", 2))
		c.createPod(pod("large", 10))
		c.awaitPending("large", "nearest GPU: only 1 node has GPUs for such a request, and it does not take the pod: 1 "+notReady)
		c.applyGPUNode(gpuNode("n1", 1))
		c.awaitBound("large")
	})
}
