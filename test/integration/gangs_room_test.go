package integration

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
)

// on has a pod run on a node.
func on(node string) func(*v1.Pod) {
	return func(p *v1.Pod) { p.Spec.NodeSelector = map[string]string{v1.LabelHostname: node} }
}

// Eight GPUs in one rack are wanted; one rack has seven, the other six. The gang waits without a single bind, says what it
// misses, and starts when the one GPU is free.
func waitsWhole(t *testing.T, c *gangCluster) {
	c.createSingles(t, "train-b", 1, 10, on("n0"))
	c.createSingles(t, "train-c", 2, 10, on("n2"))
	g := testGang{name: "big", members: 8, min: 8, slots: 10, required: rackLabel}
	c.create(t, g)
	c.awaitSaid(t, "8 × 1 GPU", "r0", "7", "train-b-0 (priority 0)")
	if c.source == podgroup.Native {
		c.awaitPodGroup(t, "big", metav1.ConditionFalse)
	}
	if bound := c.history.most(c.namespace, "big"); bound != 0 {
		t.Fatalf("%d members of a gang that waits are bound", bound)
	}
	c.deletePod(t, "train-b-0")
	nodes := c.awaitGang(t, "big", 8)
	if slices.ContainsFunc(nodes, func(n string) bool { return n != "n0" && n != "n1" }) {
		t.Errorf("the gang requires one rack and is on %v", nodes)
	}
	c.checkTogether(t, g)
}

// checkTogether waits until a watch has seen as many members of a gang bound at one time as are needed, and notes how soon after
// the first of them the last was: some tens of milliseconds on an idle machine.
func (c *gangCluster) checkTogether(t *testing.T, g testGang) {
	t.Helper()
	c.await(t, "the watch saw the binds of gang "+g.name, func() (bool, string) {
		_, ok := c.history.took(c.namespace, g.name, g.min)
		return ok, ""
	})
	took, _ := c.history.took(c.namespace, g.name, g.min)
	t.Logf("gang %s: %d members bound within %v", g.name, g.min, took)
}

// neverFits: a gang that can never run says so soon, and why.
func neverFits(t *testing.T, c *gangCluster) {
	for _, test := range []struct {
		gang testGang
		says []string
	}{
		{testGang{name: "beyond", members: clusterGPUs + 1, min: clusterGPUs + 1, slots: 10}, []string{"17 × 1 GPU", "16"}},
		{testGang{name: "one-node", members: 5, min: 5, slots: 10, required: v1.LabelHostname}, []string{"5 × 1 GPU", "4"}},
		{testGang{name: "no-such", members: 2, min: 2, slots: 10, required: "example.com/row"}, []string{"example.com/row"}},
	} {
		c.create(t, test.gang)
		begin := time.Now()
		c.awaitSaid(t, append(test.says, test.gang.name)...)
		t.Logf("gang %s was refused after %v", test.gang.name, time.Since(begin))
		if bound := c.history.most(c.namespace, test.gang.name); bound != 0 {
			t.Errorf("%d members of gang %s are bound", bound, test.gang.name)
		}
		c.deletePods(t, test.gang.name)
	}
}

// Two gangs that each need more than half of the GPUs come at the same time: one runs, the other waits whole, and runs when
// the first has ended.
func twoHalves(t *testing.T, c *gangCluster) {
	gangs := []testGang{{name: "left", members: 10, min: 10, slots: 10}, {name: "right", members: 10, min: 10, slots: 10}}
	for _, g := range gangs {
		c.createPodGroup(t, g)
	}
	var wg sync.WaitGroup
	for _, g := range gangs {
		wg.Go(func() { c.createMembers(t, g, 0, g.members) })
	}
	wg.Wait()
	var first, second testGang
	c.poll(t, "one of the gangs runs", func() (bool, string) {
		bound := [2]int{}
		for i, g := range gangs {
			bound[i] = placed(c.nodesOf(t, g.name))
			if bound[i] == g.members {
				first, second = g, gangs[1-i]
			}
		}
		return first.name != "", fmt.Sprintf("of 10 members each %v are bound", bound)
	})
	c.awaitSaid(t, second.name, "10 × 1 GPU", "6")
	if bound := c.history.most(c.namespace, second.name); bound != 0 {
		t.Fatalf("gang %s runs, and %d members of gang %s are bound", first.name, bound, second.name)
	}
	c.deletePods(t, first.name)
	c.awaitGang(t, second.name, second.members)
	c.checkTogether(t, first)
	c.checkTogether(t, second)
}

// The gang is on n3, which alone had room for it. When one of its members is made again, n3 has two GPUs free and every other
// node two as well: a pod that belongs to no gang goes to another one.
func returnsNear(t *testing.T, c *gangCluster) {
	const home = "n3"
	for _, n := range c.gpus {
		if n.Name != home {
			c.createSingles(t, "full-"+n.Name, 2, 10, on(n.Name))
		}
	}
	g := testGang{name: "near", members: 3, min: 3, slots: 10, preferred: v1.LabelHostname}
	c.create(t, g)
	c.awaitNodes(t, g, home)
	c.deletePod(t, "near-1")
	c.createSingles(t, "probe", 1, 10, nil)
	for _, p := range c.pods(t) {
		if p.Labels["single"] == "probe" && p.Spec.NodeName == home {
			t.Fatalf("a pod that belongs to no gang goes to %s as well: the test shows nothing", home)
		}
	}
	c.deletePod(t, "probe-0")
	c.createMembers(t, g, 1, 2)
	c.awaitNodes(t, g, home)
}

// awaitNodes waits until all members of a gang are bound, and fails where one is on another node.
func (c *gangCluster) awaitNodes(t *testing.T, g testGang, node string) {
	t.Helper()
	if nodes := c.awaitGang(t, g.name, g.members); slices.ContainsFunc(nodes, func(n string) bool { return n != node }) {
		t.Fatalf("gang %s is on %v, want %s alone", g.name, nodes, node)
	}
}
