package fakekubelet_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestCallsComeInTheKubeletsOrder(t *testing.T) {
	b := newBench(t)
	b.plugin.set(func() { b.plugin.prefer = []string{"s2", "s3"} })
	pod := b.create("p", nil, []v1.Container{ask("one", 1), ask("two", 2), ask("none", 0)})
	b.awaitRunning(pod)
	diff(t, "calls", []string{
		"prefer 1 of {s0 s1 s2 s3} with {}", "allocate {s2}",
		"prefer 2 of {s0 s1 s3} with {}", "allocate {s0 s3}", // s2 is taken: the hint is met with s3 and the first free
		"prestart {s2}", "prestart {s0 s3}",
	}, b.plugin.take())
	diff(t, "checkpoint", map[string]string{"p/one": "{s2}", "p/two": "{s0 s3}"}, b.checkpoint(pod))
}

func TestContainersGetWhatTheCDISpecSays(t *testing.T) {
	b := newBench(t)
	pod := b.create("p", nil, []v1.Container{ask("main", 1)})
	b.awaitRunning(pod)
	given := b.kubelet.Containers()
	if len(given) != 1 {
		t.Fatalf("containers: %+v, want one", given)
	}
	diff(t, "environment", []string{"FROM_ALLOCATE=yes", "FROM_POD=yes", "NAME=c1"}, given[0].Env)
	diff(t, "devices", []string{"/dev/slot1"}, given[0].Devices)
	diff(t, "slots", []string{"s0"}, given[0].Slots)
}

// The kubelet gives the devices of an init container again to what starts after it, but never those of a sidecar.
func TestInitContainersLeaveTheirDevices(t *testing.T) {
	b := newBench(t)
	always := v1.ContainerRestartPolicyAlways
	proxy := ask("proxy", 1)
	proxy.RestartPolicy = &always
	pod := b.create("p", []v1.Container{ask("fetch", 2), proxy}, []v1.Container{ask("main", 3)})
	b.awaitRunning(pod)
	diff(t, "calls", []string{
		"prefer 2 of {s0 s1 s2 s3} with {}", "allocate {s0 s1}",
		"allocate {s0}",                                           // from fetch, without asking
		"prefer 3 of {s1 s2 s3} with {s1}", "allocate {s1 s2 s3}", // what proxy left of fetch, and new ones
		"prestart {s0 s1}", "prestart {s0}", "prestart {s1 s2 s3}",
	}, b.plugin.take())
}

// The order of admission is the kubelet's: a hint made for one pod may serve another of the same size.
func TestPodsMaySwapTheirDevices(t *testing.T) {
	b := newBench(t)
	b.plugin.set(func() { b.plugin.prefer = []string{"s3"} }) // meant for the first pod of the scheduler
	second := b.create("second", nil, []v1.Container{ask("main", 1)})
	b.awaitRunning(second)
	b.plugin.set(func() { b.plugin.prefer = []string{"s1"} })
	first := b.create("first", nil, []v1.Container{ask("main", 1)})
	b.awaitRunning(first)
	diff(t, "checkpoint", map[string]string{"second/main": "{s3}", "first/main": "{s1}"}, b.checkpoint(first, second))
}

func TestRefusedContainerWaitsAndStartsLater(t *testing.T) {
	b := newBench(t)
	b.plugin.set(func() { b.plugin.refuse = "no assignment of this pod" })
	pod := b.create("p", nil, []v1.Container{ask("main", 1)})
	b.awaitPod(pod, "a waiting container that says why", func(p *v1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
			strings.Contains(p.Status.ContainerStatuses[0].State.Waiting.Message, "no assignment of this pod")
	})
	b.eventually(func() error {
		events, err := b.admin.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod.Name})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(events.Items, func(e v1.Event) bool {
			return e.Reason == "Failed" && e.Type == v1.EventTypeWarning && strings.Contains(e.Message, "no assignment of this pod")
		}) {
			return fmt.Errorf("no event Failed with the plugin's words among %d", len(events.Items))
		}
		return nil
	})
	if given := b.kubelet.Containers(); len(given) != 0 {
		t.Errorf("started: %+v, want none", given)
	}
	b.plugin.set(func() { b.plugin.refuse = "" })
	b.awaitRunning(pod)
}

func TestPodWithoutRoomIsRejectedForGood(t *testing.T) {
	b := newBench(t)
	pod := b.create("p", nil, []v1.Container{ask("main", 5)})
	now := b.awaitPod(pod, "failed", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
	if now.Status.Reason != "UnexpectedAdmissionError" || !strings.Contains(now.Status.Message, "Requested: 5, Available: 4") {
		t.Errorf("status: %+v, want the kubelet's reason and numbers", now.Status)
	}
	next := b.create("next", nil, []v1.Container{ask("main", 4)})
	b.awaitRunning(next)
}
