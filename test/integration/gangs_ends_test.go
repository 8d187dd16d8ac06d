package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/test/must"
)

// endPlays have kubelets and Kubernetes' own controller of Jobs. In each of them a gang that ran lacks members, or gets more, and at the end
// each pod runs that can.
//
// Kubernetes' own queue keeps a gang by its PodGroup out while fewer members exist than must run, also where the others are done.
func endPlays() []play {
	counted := []podgroup.Source{podgroup.Label, podgroup.XK8s}
	return []play{
		{name: "the last worker fails", run: lastWorker, modes: counted},
		{name: "the last two lose their node", run: lastTwo, modes: counted},
		{name: "the last wave is small", run: lastWave, modes: counted},
		{name: "two gangs hold what the other needs", run: eachHoldsHalf},
		{name: "a lost member goes before older pods", run: goesBeforeOlder, modes: counted},
		{name: "a StatefulSet makes members in order", run: orderedMembers, modes: counted},
		{name: "a rolling update changes what must be alike", run: unlikeRevisions, modes: counted},
		{name: "a second job has the label of a running gang", run: secondJob},
		{name: "a launcher has a Job of its own", run: launcherAndWorkers, modes: counted},
	}
}

// gangJob returns an indexed Job whose pods are a gang, so many at a time as it has members.
func (c *gangCluster) gangJob(g testGang, completions int) *batchv1.Job {
	pod := c.member(g, 0)
	pod.Spec.TerminationGracePeriodSeconds = new(int64(1))
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: g.name},
		Spec: batchv1.JobSpec{
			Completions: new(int32(completions)), Parallelism: new(int32(g.members)), CompletionMode: new(batchv1.IndexedCompletion),
			Template: v1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: pod.Labels, Annotations: pod.Annotations}, Spec: pod.Spec},
		},
	}
}

func (c *gangCluster) createJob(t *testing.T, job *batchv1.Job) {
	t.Helper()
	_, err := c.admin.BatchV1().Jobs(c.namespace).Create(t.Context(), job, metav1.CreateOptions{})
	must.OK(t, err)
}

// startGang makes a gang whose members a Job makes, and waits until they run.
func (c *gangCluster) startGang(t *testing.T, g testGang, completions int) []v1.Pod {
	t.Helper()
	c.createPodGroup(t, g)
	c.createJob(t, c.gangJob(g, completions))
	return c.awaitRunning(t, g.name, g.members)
}

// runs tells whether a pod runs and is not about to end, and hasEnded whether it has ended by itself.
func runs(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning && p.DeletionTimestamp == nil }
func hasEnded(p *v1.Pod) bool {
	return p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed
}

// awaitRunning waits until so many members of a gang run, no more and no fewer, and returns them by name.
func (c *gangCluster) awaitRunning(t *testing.T, gang string, count int) (pods []v1.Pod) {
	t.Helper()
	c.poll(t, fmt.Sprintf("%d members of gang %s run", count, gang), func() (bool, string) {
		pods = slices.DeleteFunc(c.members(t, gang), func(p v1.Pod) bool { return !runs(&p) })
		return len(pods) == count, c.phases(t, gang)
	})
	return pods
}

// awaitEachRuns waits until the namespace has so many pods that have not ended, and each of them runs. No device is given twice.
func (c *gangCluster) awaitEachRuns(t *testing.T, count int) {
	t.Helper()
	var pods []v1.Pod
	c.poll(t, fmt.Sprintf("%d pods run and none waits", count), func() (bool, string) {
		pods = slices.DeleteFunc(c.pods(t), func(p v1.Pod) bool { return hasEnded(&p) })
		waits := slices.DeleteFunc(slices.Clone(pods), func(p v1.Pod) bool { return runs(&p) })
		return len(pods) == count && len(waits) == 0, fmt.Sprintf("there are %v; %v do not run", names(pods), names(waits))
	})
	checkLedger(t, pods, c.gpus)
}

// end has pods end by themselves, in the same moment.
func (c *gangCluster) end(t *testing.T, phase v1.PodPhase, pods ...v1.Pod) {
	t.Helper()
	for i := range pods {
		c.patchStatus(t, pods[i].Name, fmt.Sprintf(`{"status":{"phase":%q}}`, phase))
	}
}

// succeed ends the pods of a Job that run, and waits until the Job is complete.
func (c *gangCluster) succeed(t *testing.T, name string, pods []v1.Pod) {
	t.Helper()
	c.end(t, v1.PodSucceeded, pods...)
	c.poll(t, "Job "+name+" is complete", func() (bool, string) {
		job, err := c.admin.BatchV1().Jobs(c.namespace).Get(t.Context(), name, metav1.GetOptions{})
		must.OK(t, err)
		return slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool {
			return c.Type == batchv1.JobComplete && c.Status == v1.ConditionTrue
		}), fmt.Sprintf("%+v", job.Status)
	})
}

// lastWorker: three of four members have succeeded when the last one fails.
func lastWorker(t *testing.T, c *gangCluster) {
	pods := c.startGang(t, testGang{name: "train", members: 4, min: 4, slots: 10}, 4)
	c.end(t, v1.PodSucceeded, pods[:3]...)
	c.end(t, v1.PodFailed, pods[3])
	again := c.awaitRunning(t, "train", 1)
	if index := again[0].Labels[batchv1.JobCompletionIndexAnnotation]; index != "3" {
		t.Errorf("the member of index %s runs, want 3", index)
	}
	c.awaitEachRuns(t, 1)
	c.succeed(t, "train", again)
}

// lastTwo: two of four members have succeeded, and the node of the other two is lost.
func lastTwo(t *testing.T, c *gangCluster) {
	for _, g := range c.gpus {
		c.settle(t, "half-"+g.Name, "", g.Name, 10, 10)
	}
	pods := c.startGang(t, testGang{name: "train", members: 4, min: 4, slots: 10}, 4)
	lost := pods[0].Spec.NodeName
	others := slices.DeleteFunc(pods, func(p v1.Pod) bool { return p.Spec.NodeName == lost })
	if len(others) != 2 {
		t.Fatalf("nodes have room for two members, and %v are not on %s", names(others), lost)
	}
	c.end(t, v1.PodSucceeded, others...)
	c.loseNode(t, lost)
	again := c.awaitRunning(t, "train", 2)
	c.awaitEachRuns(t, 2+2*(gangNodes-1))
	c.succeed(t, "train", again)
}

// lastWave: of six pods four run at a time, so the last two are fewer than must run at the start.
func lastWave(t *testing.T, c *gangCluster) {
	c.end(t, v1.PodSucceeded, c.startGang(t, testGang{name: "train", members: 4, min: 4, slots: 10}, 6)...)
	last := c.awaitRunning(t, "train", 2)
	c.awaitEachRuns(t, 2)
	c.succeed(t, "train", last)
}

// eachHoldsHalf: two gangs of two nodes each lose one of them, and two nodes are left. One gang gives way after the deadline.
func eachHoldsHalf(t *testing.T, c *gangCluster) {
	const deadline = "30s" // five minutes of a real clock are too long
	c.scheduler.Stop(0)
	c.startScheduler(t, func(gang map[string]any) { gang["placementDeadline"] = deadline })
	t.Cleanup(func() {
		c.scheduler.Stop(0)
		c.startScheduler(t)
	})
	left := c.startGang(t, testGang{name: "left", members: 2, min: 2, slots: 40}, 2)
	right := c.startGang(t, testGang{name: "right", members: 2, min: 2, slots: 40}, 2)
	comeBack := []func(){c.loseNode(t, left[0].Spec.NodeName), c.loseNode(t, right[0].Spec.NodeName)}
	c.awaitSaid(t, "can be evicted for", "lacks members too")
	c.poll(t, "one gang is whole and the other one has no place", func() (bool, string) {
		counts := []int{placed(c.nodesOf(t, "left")), placed(c.nodesOf(t, "right"))}
		slices.Sort(counts)
		return slices.Equal(counts, []int{0, 2}), c.phases(t, "left") + "; " + c.phases(t, "right")
	})
	for _, back := range comeBack {
		back()
	}
	c.awaitEachRuns(t, 4)
}

// goesBeforeOlder: a gang loses a member with its node while older pods wait. The node comes back.
func goesBeforeOlder(t *testing.T, c *gangCluster) {
	train := c.startGang(t, testGang{name: "train", members: 2, min: 2, slots: 40}, 2)
	var full []string
	for _, g := range c.gpus {
		if g.Name != train[0].Spec.NodeName && g.Name != train[1].Spec.NodeName {
			c.settle(t, "full-"+g.Name, "", g.Name, 40)
			full = append(full, "full-"+g.Name+"-0")
		}
	}
	older := []string{"older-0", "older-1", "older-2"}
	for _, name := range older {
		c.probe(t, name, "", "", 40)
	}
	comeBack := c.loseNode(t, train[1].Spec.NodeName)
	c.poll(t, "the lost member waits for room", func() (bool, string) {
		return slices.ContainsFunc(c.members(t, "train"), func(p v1.Pod) bool {
			return p.Spec.NodeName == "" && strings.Contains(refusal(&p), "needs")
		}), c.phases(t, "train")
	})
	comeBack()
	again := c.awaitRunning(t, "train", 2)
	for _, name := range older {
		c.waits(t, name)
	}
	c.finish(t, full...)
	c.succeed(t, "train", again)
	c.awaitEachRuns(t, len(older))
}

// secondJob: each pod of a Job with the name of a running gang runs, and says once whose gang it has joined.
func secondJob(t *testing.T, c *gangCluster) {
	g := testGang{name: "train", members: 4, min: 4, slots: 10}
	c.startGang(t, g, 4)
	time.Sleep(32 * time.Second) // what comes within half a minute may belong to the gang, and the times of the API are whole seconds
	second := c.gangJob(g, 4)
	second.Name = "again"
	c.createJob(t, second)
	c.awaitSaid(t, "the pod belongs to Job again, and the members that run to Job train: it joins gang "+c.namespace+"/train by itself",
		"give each job a gang name of its own, in "+podgroup.FieldOf(c.source))
	c.awaitEachRuns(t, 8)
	c.poll(t, "each pod of the second Job has one warning", func() (bool, string) {
		warned := c.warnedOfName(t)
		return len(warned) == 4 && !slices.ContainsFunc(warned, func(name string) bool { return !strings.HasPrefix(name, "again-") }), fmt.Sprint(warned)
	})
}

// launcherAndWorkers: two Jobs make up one gang. The launcher fails and comes again, and nobody is warned.
func launcherAndWorkers(t *testing.T, c *gangCluster) {
	g := testGang{name: "train", members: 1, min: 3, slots: 10}
	c.createPodGroup(t, g)
	launcher := c.gangJob(g, 1)
	launcher.Name = "launcher"
	c.createJob(t, launcher)
	g.members = 3
	workers := c.gangJob(g, 3)
	workers.Name = "workers"
	c.createJob(t, workers)
	pods := c.awaitRunning(t, "train", 4)
	c.end(t, v1.PodFailed, pods[0])
	c.awaitRunning(t, "train", 3)
	c.awaitRunning(t, "train", 4)
	c.awaitEachRuns(t, 4)
	if warned := c.warnedOfName(t); len(warned) > 0 {
		t.Errorf("pods %v are said to have joined the gang of others", warned)
	}
}

// warnedOfName returns the pods with an event that they have the name of another's gang, one for each event, sorted.
func (c *gangCluster) warnedOfName(t *testing.T) (names []string) {
	t.Helper()
	events, err := c.admin.EventsV1().Events(c.namespace).List(life(t), metav1.ListOptions{})
	must.OK(t, err)
	for i := range events.Items {
		if e := &events.Items[i]; e.Reason == "GangNameTaken" {
			names = append(names, e.Regarding.Name)
		}
	}
	slices.Sort(names)
	return names
}
