package integration

import (
	"fmt"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/test/must"
)

// cheap are the nodes whose pods count the least.
var cheap = map[string]bool{"n2": true, "n5": true, "n7": true, "n11": true}

// The 320 pods of four nodes must go, one of which the API server keeps: the gang stays out, and so do those of the 320 that were
// not asked to leave by then. Once it is let go the rest follow, each told once, and nobody else.
func hundreds(t *testing.T, c *gangCluster) {
	c.restart(t, func(args map[string]any) { args["evictionsPerMinute"] = 0 })
	for _, g := range c.gpus {
		class := mid
		if cheap[g.Name] {
			class = low
		}
		c.createSingles(t, g.Name, 80, 1, func(p *v1.Pod) { p.Spec = patientPod(p.Name, class, g.Name, 1).Spec })
	}
	free := c.keep(t, "n2-40")
	c.create(t, testGang{name: "urgent", members: 4, min: 4, slots: 80, class: high})
	c.awaitSaid(t, "an eviction failed", "n2-40")
	first := c.leaving(t)
	// The gang tries again each 15 seconds, and each time evicts more.
	if attempts := c.timesSaid(t, "an eviction failed"); len(first) == 0 || len(first) > 300 && attempts < 2 {
		t.Errorf("%d pods leave after an eviction failed %d times", len(first), attempts)
	}
	if bound := c.history.most(c.namespace, "urgent"); bound != 0 {
		t.Errorf("%d members are bound", bound)
	}
	free()
	victims := c.awaitLeaving(t, 320)
	for i := range victims {
		if !cheap[victims[i].Spec.NodeName] {
			t.Errorf("pod %s leaves, on node %s", victims[i].Name, victims[i].Spec.NodeName)
		}
	}
	told := map[string]int32{}
	// A pod that the API server has marked without an answer in time is not told.
	c.await(t, "95 % of the victims are told", func() (bool, string) {
		told = c.told(t)
		return len(told)*100 >= len(victims)*95, fmt.Sprintf("%d of %d are", len(told), len(victims))
	})
	for pod, times := range told {
		if times != 1 {
			t.Errorf("pod %s is told %d times", pod, times)
		}
	}
	c.finish(t, names(victims)...)
	c.awaitGang(t, "urgent", 4)
	c.onlyThese(t)
	checkLedger(t, c.boundPods(t), c.gpus)
}

// timesSaid counts how often events said a text.
func (c *gangCluster) timesSaid(t *testing.T, text string) (times int32) {
	t.Helper()
	events, err := c.admin.EventsV1().Events(c.namespace).List(life(t), metav1.ListOptions{})
	must.OK(t, err)
	for _, e := range events.Items {
		switch {
		case !strings.Contains(e.Note, text):
		case e.Series != nil:
			times += e.Series.Count
		default:
			times++
		}
	}
	return times
}

// told returns how often pods were told that they are evicted, by an event or by one that the API server did not take.
func (c *gangCluster) told(t *testing.T) map[string]int32 {
	t.Helper()
	events, err := c.admin.EventsV1().Events(c.namespace).List(life(t), metav1.ListOptions{})
	must.OK(t, err)
	told := map[string]int32{}
	for _, e := range events.Items {
		if strings.HasPrefix(e.Note, "Preempted by") {
			told[e.Regarding.Name]++
			if e.Series != nil {
				told[e.Regarding.Name] += e.Series.Count - 1
			}
		}
	}
	for _, e := range c.rejected(t, c.namespace) {
		if strings.HasPrefix(e.note, "Preempted by") && told[e.name] == 0 {
			told[e.name] = 1
		}
	}
	return told
}

// keep has the API server refuse the deletion of a pod until what is returned is called.
func (c *gangCluster) keep(t *testing.T, pod string) (free func()) {
	t.Helper()
	dry := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	return c.refuse(t, refusedRequests{
		operation: admissionv1.Delete, resource: "pods", name: "^" + pod + "$",
		try: func() error { return c.admin.CoreV1().Pods(c.namespace).Delete(life(t), pod, dry) },
	})
}
