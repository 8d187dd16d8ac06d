package placeable

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// in sets a field of a Workload, such as spec.priority.
func in(group, field string, value any) func(map[string]any) {
	return func(workload map[string]any) { workload[group].(map[string]any)[field] = value }
}

// run shows a pod to the controller.
func (w *world) run(t *testing.T, p *v1.Pod) {
	t.Helper()
	must.OK(t, w.core.Core().V1().Pods().Informer().GetStore().Add(p))
}

// since is the time at which our check of a Workload got its state, as the API has it.
func (w *world) since(t *testing.T, name string) string {
	t.Helper()
	checks, _, err := unstructured.NestedSlice(w.object(t, Workloads, "ns", name).Object, "status", "admissionChecks")
	must.OK(t, err)
	return checks[1].(map[string]any)["lastTransitionTime"].(string)
}

// The Workload of the highest priority comes first, then the oldest.
func TestPassByTurn(t *testing.T) {
	for name, changes := range map[string][]func(map[string]any){
		"the oldest":           {in("metadata", "creationTimestamp", noon.Add(-time.Hour).Format(time.RFC3339))},
		"the highest priority": {in("spec", "priority", int64(5))},
	} {
		w := newWorld(t)
		w.submit(t, "a", 8, noon)
		w.submit(t, "b", 8, noon, changes...)
		w.pass(t)
		a, _ := w.check(t, "a")
		if b, message := w.check(t, "b"); a != "Pending" || b != "Ready" {
			t.Errorf("%s is %s, %s; the other is %s", name, b, message, a)
		}
	}
}

// Pods on nodes have their devices, and those of a lower priority make room for a Workload of a higher one.
func TestPassSeesPods(t *testing.T) {
	w := newWorld(t)
	for _, p := range everywhere(t, 10, 3) {
		w.run(t, p)
	}
	unbound := runs(t, "unbound", "n0", 0, 10, 0)
	unbound.Spec.NodeName = ""
	w.run(t, unbound)
	w.submit(t, "low", 8, noon, func(workload map[string]any) {
		set := workload["spec"].(map[string]any)["podSets"].([]any)[0].(map[string]any)
		must.OK(t, unstructured.SetNestedField(set, "low", "template", "spec", "priorityClassName"))
	})
	w.submit(t, "usual", 8, noon)
	w.pass(t)
	if state, message := w.check(t, "low"); state != "Pending" {
		t.Errorf("a Workload of a class that there is not, with priority 0: %s, %s", state, message)
	}
	if state, message := w.check(t, "usual"); state != "Ready" || message != "8 of 8 pods have places on 4 nodes, once the scheduler has evicted pods of a lower priority" {
		t.Errorf("a Workload of priority 7 above pods of priority 3: %s, %s", state, message)
	}
}

// The pods of a Workload that was answered a moment ago count once, whether they have nodes yet or not.
func TestPassSeesStarted(t *testing.T) {
	w := newWorld(t)
	w.submit(t, "started", 4, noon, in("metadata", "ownerReferences", []any{
		map[string]any{"apiVersion": "batch/v1", "kind": "Job", "name": "job", "uid": "uid-job"},
	}))
	w.pass(t)
	w.object(t, Workloads, "ns", "started")
	for i := range 2 {
		p := runs(t, fmt.Sprint("started-", i), "n0", i, 10, 7)
		p.OwnerReferences = owner("job")
		w.run(t, p)
	}
	waits := runs(t, "started-2", "n1", 0, 10, 7)
	waits.OwnerReferences, waits.Spec.NodeName = owner("job"), ""
	w.run(t, waits)
	w.submit(t, "four", 4, noon)
	w.submit(t, "fifth", 1, noon.Add(time.Second))
	w.pass(t)
	if state, message := w.check(t, "four"); state != "Ready" {
		t.Errorf("four of eight GPUs beside the four of a started Workload: %s, %s", state, message)
	}
	if state, message := w.check(t, "fifth"); state != "Pending" {
		t.Errorf("a ninth GPU of eight: %s, %s", state, message)
	}
}

// The nodes of a Workload are those of the flavor that its quota is of.
func TestPassReadsFlavors(t *testing.T) {
	w := newWorld(t)
	w.put(t, ResourceFlavors, "ResourceFlavor", map[string]any{"metadata": map[string]any{"name": "second"}, "spec": map[string]any{"nodeLabels": map[string]any{rack: "r1"}}})
	for name, gpus := range map[string]int64{"fits": 4, "larger": 5} {
		w.submit(t, name, gpus, noon, in("status", "admission", map[string]any{"podSetAssignments": []any{
			map[string]any{"name": "main", "count": gpus, "flavors": map[string]any{v1alpha1.ResourceVGPU: "second"}},
		}}))
	}
	w.pass(t)
	if state, message := w.check(t, "fits"); state != "Ready" || message != "4 of 4 pods have places on 2 nodes" {
		t.Errorf("the GPUs of a flavor: %s, %s", state, message)
	}
	if state, message := w.check(t, "larger"); state != "Retry" {
		t.Errorf("more than the GPUs of a flavor: %s, %s", state, message)
	}
}

// A pass answers a bounded number of Workloads, the first by turn, and counts the others as waiting. The next pass goes on after them.
func TestPassIsBounded(t *testing.T) {
	w := newWorld(t)
	for i := range maxAnswers + 1 {
		w.submit(t, fmt.Sprintf("w%03d", i), 9, noon.Add(time.Duration(i)*time.Second))
	}
	w.time = noon.Add(time.Hour)
	w.pass(t)
	if state, _ := w.check(t, fmt.Sprintf("w%03d", maxAnswers-1)); state != "Retry" {
		t.Errorf("the last Workload within the bound is %s", state)
	}
	if state, message := w.check(t, fmt.Sprintf("w%03d", maxAnswers)); state != "Pending" || message != "" {
		t.Errorf("the first Workload beyond the bound is %s, %s", state, message)
	}
	if got := testutil.ToFloat64(w.metrics.waiting); got != maxAnswers+1 {
		t.Errorf("%v Workloads wait, want %d", got, maxAnswers+1)
	}
	for i := range maxAnswers { // Kueue has not read these answers
		w.submit(t, fmt.Sprintf("w%03d", i), 9, noon.Add(time.Duration(i)*time.Second))
	}
	w.object(t, Workloads, "ns", fmt.Sprintf("w%03d", maxAnswers))
	w.pass(t)
	if state, _ := w.check(t, fmt.Sprintf("w%03d", maxAnswers)); state != "Retry" {
		t.Errorf("after a second pass the last Workload is %s", state)
	}
	if state, _ := w.check(t, "w000"); state != "Pending" {
		t.Errorf("after a second pass the first Workload is %s", state)
	}
	w.pass(t)
	if state, _ := w.check(t, "w000"); state != "Retry" {
		t.Errorf("after a third pass the first Workload is %s", state)
	}
}

// A Workload that cannot be read is an error, and others are answered.
func TestPassUnreadable(t *testing.T) {
	w := newWorld(t)
	w.submit(t, "broken", 1, noon, in("spec", "podSets", "none"))
	w.submit(t, "sound", 1, noon)
	if err := w.Pass(t.Context()); err == nil || !strings.Contains(err.Error(), "read Workload ns/broken") {
		t.Errorf("the error is %v", err)
	}
	if state, _ := w.check(t, "sound"); state != "Ready" {
		t.Errorf("the other Workload is %s", state)
	}
}

// A Workload keeps its quota for a while from the time at which it got it, however old the Workload is.
func TestPassIsPatient(t *testing.T) {
	w := newWorld(t)
	for _, p := range everywhere(t, 10, 7) {
		w.run(t, p)
	}
	w.submit(t, "old", 1, noon, in("metadata", "creationTimestamp", noon.Add(-time.Hour).Format(time.RFC3339)))
	w.pass(t)
	if state, message := w.check(t, "old"); state != "Pending" {
		t.Errorf("with quota since this moment: %s, %s", state, message)
	}
}

// The time of a check is that of its state and not of its message, which is told again only after a while.
func TestPassTellsNews(t *testing.T) {
	w := newWorld(t)
	pods := everywhere(t, 10, 7)
	for _, p := range pods {
		w.run(t, p)
	}
	w.submit(t, "waits", 2, noon)
	takes := func(after time.Duration, want string) {
		t.Helper()
		w.time = noon.Add(after)
		w.pass(t)
		state, message := w.check(t, "waits")
		if at := w.since(t, "waits"); state != "Pending" || !strings.Contains(message, want) || at != noon.Format(time.RFC3339) {
			t.Errorf("after %v the Workload is %s since %s: %s; want it Pending since noon and %q", after, state, at, message, want)
		}
	}
	takes(5*time.Second, "the cluster takes 0")
	must.OK(t, w.core.Core().V1().Pods().Informer().GetStore().Delete(pods[0]))
	takes(5*time.Second+retellAfter-time.Second, "the cluster takes 0")
	takes(5*time.Second+retellAfter, "the cluster takes 1")
	must.OK(t, w.core.Core().V1().Pods().Informer().GetStore().Delete(pods[1]))
	w.time = noon.Add(40 * time.Second)
	w.pass(t)
	if state, _ := w.check(t, "waits"); state != "Ready" || w.since(t, "waits") != w.time.Format(time.RFC3339) {
		t.Errorf("with two free GPUs the Workload is %s since %s, want it Ready since %v", state, w.since(t, "waits"), w.time)
	}
	must.OK(t, w.kueue.ForResource(Workloads).Informer().GetStore().Delete(w.object(t, Workloads, "ns", "waits")))
	w.pass(t)
	if len(w.told) > 0 {
		t.Errorf("the controller remembers Workloads that are gone: %v", w.told)
	}
}

// Each try in vain makes the time until the next one longer.
func TestPassBacksOff(t *testing.T) {
	w := newWorld(t)
	w.submit(t, "huge", 9, noon, in("status", "requeueState", map[string]any{"count": int64(2), "requeueAt": noon.Format(time.RFC3339)}))
	w.pass(t)
	requeue, _, err := unstructured.NestedMap(w.object(t, Workloads, "ns", "huge").Object, "status", "requeueState")
	must.OK(t, err)
	if requeue["count"] != int64(3) || requeue["requeueAt"] != noon.Add(4*time.Minute).Format(time.RFC3339) {
		t.Errorf("the third try is %v, want a count of 3 and four minutes", requeue)
	}
}

// A Workload that was answered Retry has no answer until Kueue asks anew.
func TestPassAnswersOnce(t *testing.T) {
	w := newWorld(t)
	w.submit(t, "given-back", 1, noon, func(workload map[string]any) {
		workload["status"].(map[string]any)["admissionChecks"].([]any)[1].(map[string]any)["state"] = string(Retry)
	})
	w.pass(t)
	if state, message := w.check(t, "given-back"); state != string(Retry) || message != "" {
		t.Errorf("a Workload that gives its quota back: %s, %s", state, message)
	}
}

// An elastic gang that was started keeps the places of as many members as fit, and not those of all or none.
func TestKeepPart(t *testing.T) {
	o := racks()
	w := work("started", set("main", 12, template(10, inGang("train", "2", elastic, "2-12"))))
	w.OwnerReferences = owner("job")
	p := runs(t, "started-0", "n0", 0, 10, 0)
	p.OwnerReferences = []metav1.OwnerReference{owner("job")[0]}
	o.Pods = append(o.Pods, p)
	v := viewOf(t, o)
	v.keep(w)
	if got := v.Decide(work("other", set("main", 1, template(10)))); got.State != Pending {
		t.Errorf("beside an elastic gang that takes all GPUs: %+v", got)
	}
}

// A pass looks at as many Workloads as have a bounded number of pods together, at one at least.
func TestLargeWorkloadsTakeTurns(t *testing.T) {
	var waiting []*visit
	for range 30 {
		w := &visit{}
		w.Spec.PodSets = []PodSet{{Count: 600}, {Count: 400}}
		waiting = append(waiting, w)
	}
	c, looked := &Controller{}, 0
	for pass := range 6 {
		turn := c.turn(waiting)
		if looked += len(turn); len(turn) != maxPodsInPass/1000 {
			t.Fatalf("pass %d looks at %d Workloads of 1,000 pods", pass, len(turn))
		}
	}
	if looked != len(waiting) {
		t.Errorf("six passes look at %d of %d Workloads", looked, len(waiting))
	}
	waiting[0].Spec.PodSets[0].Count = 10 * maxPodsInPass
	if turn := c.turn(waiting); len(turn) != 1 || turn[0] != waiting[0] {
		t.Errorf("a pass looks at %d Workloads, one of them very large", len(turn))
	}
}
