package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// killed is the exit code of a process that SIGKILL ended.
const killed = 137

// preemption: a pod of a higher priority takes the share of the pod that costs the least. That one keeps its whole grace,
// though not on the GPU to the last; then the preemptor runs on exactly that share. Its neighbour on the GPU works on all the
// time, by the same process on the same MPS server, and the pod on the other GPU is left alone.
func preemption(n *Tenant) {
	const grace = 8 // seconds; the agent ends GPU work 3 before the kill
	n.urgentClass()
	n.create(newPod("elder", share("main", slotsPerGPU))) // the other GPU: more work is lost with it
	elder := n.running("elder")[0]
	n.create(countingPod("neighbour", 4))
	neighbour := n.running("neighbour")[0]
	n.works(neighbour)
	process := n.onlyClient(n.device(neighbour))
	n.create(stubbornPod("victim", 6, grace))
	victim := n.running("victim")[0]
	n.works(victim)
	n.hasRunFor(elder, 2*time.Second) // lost work counts in whole seconds
	device := n.device(victim)
	if n.device(neighbour) != device || n.device(elder) == device {
		n.t.Fatalf("victim on %s, neighbour on %s, elder on %s", device, n.device(neighbour), n.device(elder))
	}
	own := n.assignment(victim).Containers[0]
	others, server := n.witness([]*v1.Pod{neighbour, elder}), n.mpsOf(device)
	ends, err := n.agentMetric(n.t.Context(), "tandem_agent_clients_ended_total", `cause="termination"`)
	n.must(err)

	course := n.watchCourse()
	n.create(urgently(newPod("preemptor", work(6))))
	said := n.workWhile("preemptor", neighbour, victim)
	n.t.Logf("event of the victim: %s", n.event("victim", "Preempted by", "/preemptor"))
	end, due := course.seen("victim")
	message, err := disrupted(end)
	n.must(err)
	n.t.Logf("condition of the victim: %s", message)
	n.tookItsGrace(end, due)
	if want := []string{"asked to end", "saves", "terminated"}; !slices.Equal(said, want) {
		n.t.Errorf("the victim said %q after it was connected, want %q", said, want)
	}
	if now, err := n.agentMetric(n.t.Context(), "tandem_agent_clients_ended_total", `cause="termination"`); err != nil || now != ends+1 {
		n.t.Errorf("the agent ended %v clients for the victim (%v), want one", now-ends, err)
	}

	preemptor := n.running("preemptor")[0]
	n.works(preemptor)
	n.checkShares(preemptor)
	n.must(course.follows("preemptor", "victim"))
	if diff := cmp.Diff(own, n.assignment(preemptor).Containers[0]); diff != "" {
		n.t.Errorf("the preemptor's share is not that of the victim (-victim +preemptor):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]bool{"victim": true}, course.evicted()); diff != "" {
		n.t.Errorf("pods that were deleted (-want +got):\n%s", diff)
	}
	others.undisturbed()
	if now := n.mpsOf(device); now != server {
		n.t.Errorf("MPS server %s of the device became %s", server, now)
	}
	n.serves(device, process)
	n.must(connects(n.t.Context(), device, patience))
	n.noDrift()
}

// hasRunFor waits until a pod has run for a time.
func (n *Tenant) hasRunFor(pod *v1.Pod, least time.Duration) {
	n.t.Helper()
	n.await("pod "+pod.Name+" having run for "+least.String(), func(context.Context) error {
		if ran := time.Since(pod.Status.StartTime.Time); ran < least {
			return fmt.Errorf("it has run for %v", ran)
		}
		return nil
	})
}

// workWhile waits until a pod runs, and fails the test where the program of a countingPod does not work on the way. A look ends
// when the program has done something since the one before: a busy machine may keep it from that for a while. workWhile returns
// what the pod that leaves said since it was connected, each line once.
func (n *Tenant) workWhile(name string, counting, leaving *v1.Pod) (said []string) {
	n.t.Helper()
	begin, looks := time.Now(), 0
	done, err := n.steps(n.t.Context(), counting)
	n.must(err)
	n.await("running pod "+name, func(ctx context.Context) error {
		words, err := story(leaving)
		if err == nil && len(words) > len(said) { // they go with the pod
			said = words
		}
		now, err := n.steps(ctx, counting)
		switch {
		case err != nil:
			n.t.Fatalf("pod %s, after %v steps: %v", counting.Name, done, err)
		case now <= done:
			return fmt.Errorf("pod %s had done %v steps, and has done %v", counting.Name, done, now)
		}
		done, looks = now, looks+1
		pod, err := n.pods.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		return runs(pod)
	})
	n.t.Logf("pod %s ran after %.1f s; pod %s worked in %d intervals on the way", name, time.Since(begin).Seconds(), counting.Name, looks)
	return each(said)[1:]
}

// tookItsGrace fails the test unless the pod's container was killed, and not before its grace was over.
func (n *Tenant) tookItsGrace(pod *v1.Pod, due time.Time) {
	n.t.Helper()
	if len(pod.Status.ContainerStatuses) != 1 || pod.Status.ContainerStatuses[0].State.Terminated == nil {
		n.t.Fatalf("containers of pod %s: %+v", pod.Name, pod.Status.ContainerStatuses)
	}
	end := pod.Status.ContainerStatuses[0].State.Terminated
	n.t.Logf("the container ended with %d, %v from the end of its grace", end.ExitCode, end.FinishedAt.Sub(due))
	// Both times are in whole seconds.
	if end.ExitCode != killed || end.FinishedAt.Time.Before(due.Add(-time.Second)) {
		n.t.Errorf("the container of pod %s ended with %d at %v, want that it is killed at %v", pod.Name, end.ExitCode, end.FinishedAt, due)
	}
}

// each returns the lines in the order of their first time, each once.
func each(said []string) []string {
	lines := []string{}
	for _, line := range said {
		if !slices.Contains(lines, line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// gangPreemption: an urgent pod takes the place of a member that its gang can do without, and the others of the gang work on.
// An urgent gang then takes the places of all of them, and no other pod's.
func gangPreemption(n *Tenant) {
	n.urgentClass()
	small := func(name, gang string) *v1.Pod {
		pod := newPod(name, work(5))
		if gang != "" {
			pod.Labels = map[string]string{v1alpha1.LabelGang: gang}
			pod.Annotations[v1alpha1.AnnotationMinMembers] = "2"
		}
		return pod
	}
	n.create(small("bystander", ""))
	places := map[string]string{}
	trainers := []string{"train-0", "train-1", "train-2"}
	for _, name := range trainers {
		n.create(small(name, "train"))
	}
	for _, pod := range n.running(append(trainers, "bystander")...) {
		n.works(pod)
		places[pod.Name] = n.device(pod)
	}

	course := n.watchCourse()
	n.create(urgently(small("single", "")))
	single := n.running("single")[0]
	n.works(single)
	gone := slices.Collect(maps.Keys(course.evicted()))
	if len(gone) != 1 || !slices.Contains(trainers, gone[0]) {
		n.t.Fatalf("pods that were deleted: %v, want one of %v", gone, trainers)
	}
	n.must(course.follows("single", gone[0]))
	if n.device(single) != places[gone[0]] {
		n.t.Errorf("pod single is on %s, want %s, which %s left", n.device(single), places[gone[0]], gone[0])
	}
	n.t.Logf("event of %s: %s", gone[0], n.event(gone[0], "Preempted by", "/single"))
	left := slices.DeleteFunc(slices.Clone(trainers), func(name string) bool { return name == gone[0] })
	for _, pod := range n.running(left...) {
		n.works(pod)
	}

	others := n.witness(n.running("bystander", "single"))
	for _, name := range []string{"rush-0", "rush-1"} {
		n.create(urgently(small(name, "rush")))
	}
	var got, want []string
	for i, pod := range n.running("rush-0", "rush-1") {
		n.works(pod)
		n.checkShares(pod)
		got, want = append(got, n.device(pod)), append(want, places[left[i]])
		for _, name := range left {
			n.must(course.follows(pod.Name, name))
		}
	}
	slices.Sort(got)
	slices.Sort(want)
	if diff := cmp.Diff(want, got); diff != "" {
		n.t.Errorf("devices of the urgent gang (-those of the other +got):\n%s", diff)
	}
	if diff := cmp.Diff(trainers, slices.Sorted(maps.Keys(course.evicted()))); diff != "" {
		n.t.Errorf("pods that were deleted (-want +got):\n%s", diff)
	}
	n.t.Logf("event of %s: %s", left[0], n.event(left[0], "Preempted by", "/rush"))
	others.undisturbed()
	n.noDrift()
}
