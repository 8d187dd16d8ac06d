package e2e

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// shares: two app containers and an init container with three different requests on one pod.
func shares(n *Tenant) {
	pod := newPod("three", share("main", 3), share("side", 2))
	pod.Spec.InitContainers = []v1.Container{initShare("prepare", 4)}
	n.create(pod)
	pod = n.running("three")[0]
	got := map[string]int32{}
	for _, c := range n.assignment(pod).Containers {
		got[c.Name] = c.Slots
		if c.ComputeLimitPercent != c.Slots*100/slotsPerGPU {
			n.t.Errorf("container %s has %d slots and a compute limit of %d %%", c.Name, c.Slots, c.ComputeLimitPercent)
		}
	}
	if want := map[string]int32{"prepare": 4, "main": 3, "side": 2}; fmt.Sprint(got) != fmt.Sprint(want) {
		n.t.Errorf("the assignment gives %v, want %v", got, want)
	}
	n.checkShares(pod)
	n.noDrift()
}

// swap: two pods of one size are bound within milliseconds to different devices. Slots are tokens, so it must not matter
// whose the kubelet hands out. In the first half of the rounds it is free to follow the agent's hint; in the second half
// it has none left of the device that one of the pods is assigned.
func swap(n *Tenant) {
	rounds := 20
	switch {
	case smoke():
		rounds = 4
	case os.Getenv("SOAK") != "":
		rounds = 200
	}
	foreign := n.rounds("free", rounds/2, 6) // 6 + 6 do not fit on one device
	n.t.Logf("%d rounds with free slots: drift 0, %d of %d containers held slots of another device", rounds/2, foreign, rounds)
	n.misalign()
	foreign = n.rounds("misaligned", rounds/2, 4)
	n.t.Logf("%d rounds with misaligned slots: drift 0, %d of %d containers held slots of another device", rounds/2, foreign, rounds)
	if foreign < rounds/2 {
		n.t.Errorf("only %d containers held slots of another device: this tests less than it says", foreign)
	}
}

// rounds runs pairs of pods of the size and returns how many containers held no slot of their device.
func (n *Tenant) rounds(kind string, count, size int) int {
	n.t.Helper()
	foreign := 0
	for round := range count {
		pods := n.together(fmt.Sprintf("%s-%d", kind, round), size, round%2 == 1)
		for _, pod := range pods {
			if n.slots(pod, "main")[n.device(pod)] == 0 {
				foreign++
			}
		}
		n.delete(pods[0].Name, pods[1].Name)
	}
	return foreign
}

// misalign leaves 5 slots of the first device and 4 of the second to the scheduler, and none of the second to the
// kubelet. A squatter, bound past the scheduler, holds the first device's slots; so the kubelet gives five of the second's to a
// pod on the first device. When the squatter is gone, a pod on the second device takes the other five. That needs the agent's hint:
// if the kubelet asks before the agent knows the pod, the kubelet may choose other slots, and the test creates the pod again.
func (n *Tenant) misalign() {
	n.t.Helper()
	n.withoutPolicies()
	squatter := newPod("squatter", share("main", 10))
	squatter.Spec.NodeName = nodeName
	n.create(squatter)
	n.event("squatter", "assigned")
	n.create(newPod("filler-5", share("main", 5)))
	n.checkShares(n.running("filler-5")[0])
	n.delete("squatter")
	for range 10 {
		n.create(newPod("filler-6", share("main", 6)))
		pod := n.running("filler-6")[0]
		n.checkShares(pod)
		if n.slots(pod, "main")[n.device(pod)] == 5 {
			return
		}
		n.delete("filler-6")
	}
	n.t.Fatal("the kubelet never gave filler-6 all slots that were free of its device")
}

// together has two pods bound at once that do not fit on one device, and checks what they were given.
func (n *Tenant) together(prefix string, size int, reverse bool) []*v1.Pod {
	n.t.Helper()
	names := []string{prefix + "-a", prefix + "-b"}
	if reverse {
		slices.Reverse(names) // the order of creation must not matter
	}
	for _, name := range names {
		pod := newPod(name, share("main", size))
		pod.Spec.SchedulingGates = []v1.PodSchedulingGate{{Name: "e2e.example.com/together"}}
		n.create(pod)
	}
	for _, name := range names {
		n.patch(name, `{"spec": {"schedulingGates": null}}`)
	}
	pods := n.running(names...)
	for _, pod := range pods {
		n.checkShares(pod)
	}
	if first, second := n.device(pods[0]), n.device(pods[1]); first == second {
		n.t.Errorf("both pods of %s were assigned %s", prefix, first)
	}
	n.noDrift()
	if n.t.Failed() {
		n.t.FailNow()
	}
	return pods
}

// noDrift fails the test unless the agent reports that every container runs as assigned.
func (n *Tenant) noDrift() {
	n.t.Helper()
	drift, err := n.drift(n.t.Context())
	n.must(err)
	if drift != 0 {
		n.t.Errorf("the agent reports drift of %v containers, want 0", drift)
	}
}

// deletion: a pod that waits for room runs when another one goes.
func deletion(n *Tenant) {
	n.create(newPod("first", share("main", 10)))
	n.create(newPod("second", share("main", 10)))
	pods := n.running("first", "second")
	n.create(newPod("waits", share("main", 5)))
	n.event("waits", "0/1 nodes", "5")
	n.unbound("waits")
	n.delete("second")
	waited := n.running("waits")[0]
	if got, want := n.device(waited), n.device(pods[1]); got != want {
		n.t.Errorf("the pod that waited got %s, want %s, which was freed", got, want)
	}
	n.checkShares(waited)
}

// illegal: a request that no device can meet as it stands.
func illegal(n *Tenant) {
	n.create(newPod("odd", share("main", 13)))
	message := n.event("odd", v1alpha1.ResourceVGPU, "13", "10", "20", "replace")
	n.t.Logf("event: %s", message)
	n.unbound("odd")
}

// corrected: annotations, unlike resources, can be changed.
func corrected(n *Tenant) {
	pod := newPod("typo", share("main", 2))
	pod.Annotations[v1alpha1.AnnotationComputeLimit] = "half"
	n.create(pod)
	message := n.event("typo", v1alpha1.AnnotationComputeLimit, "half")
	n.t.Logf("event: %s", message)
	n.unbound("typo")
	n.patch("typo", fmt.Sprintf(`{"metadata": {"annotations": {%q: "50"}}}`, v1alpha1.AnnotationComputeLimit))
	pod = n.running("typo")[0]
	if got := n.assignment(pod).Containers[0].ComputeLimitPercent; got != 50 {
		n.t.Errorf("the compute limit is %d %%, want 50", got)
	}
	n.checkShares(pod)
}

// capacity: the node's total would admit what one device cannot hold.
func capacity(n *Tenant) {
	names := n.createSizes("fits", 5, 6, 5, 4)
	held := map[string]int32{}
	for _, pod := range n.running(names...) {
		n.checkShares(pod)
		held[n.device(pod)] += n.assignment(pod).Containers[0].Slots
	}
	for device, slots := range held {
		if slots > slotsPerGPU {
			n.t.Errorf("device %s holds %d slots of %d", device, slots, slotsPerGPU)
		}
	}
	n.delete(names...)
	names = n.createSizes("full", 6, 6, 8)
	n.running(names[:2]...)
	message := n.event(names[2], "0/1 nodes", "4 of 10", "8")
	n.t.Logf("event: %s", message)
	n.unbound(names[2])
}

// createSizes creates a pod for each size and returns the names.
func (n *Tenant) createSizes(prefix string, sizes ...int) []string {
	n.t.Helper()
	var names []string
	for i, size := range sizes {
		name := fmt.Sprintf("%s-%d", prefix, i)
		n.create(newPod(name, share("main", size)))
		names = append(names, name)
	}
	return names
}

func TestParseGiven(t *testing.T) {
	const line = "2026-01-01T00:00:00Z stdout F "
	log := strings.Join([]string{
		line + "CUDA_VISIBLE_DEVICES=GPU-1", line + "device /dev/nvidia0 1:3", line + "memory 24576 4096", line + "told", line + "X=later", "",
	}, "\n")
	g, err := parseGiven(log)
	if err != nil || g.env["CUDA_VISIBLE_DEVICES"] != "GPU-1" || g.devices["/dev/nvidia0"] != "1:3" || g.memory != 96<<20 || len(g.env) != 1 {
		t.Errorf("parsed %+v, %v", g, err)
	}
	if _, err := parseGiven(line + "A=b\n"); err == nil {
		t.Error("a log without its last line was accepted")
	}
}
