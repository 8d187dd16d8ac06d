package deviceplugin

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// rated is the container of a pod that asks for 2 slots and was given more, since it wants a rate.
func rated(device string, slots int) fixture.Want {
	return fixture.Want{Name: "main", Kind: vgpu.App, Devices: []string{device}, Slots: slots, Asked: 2}
}

// A pod that wants a rate holds as many slot IDs as it asks for, and starts with the larger share of its assignment.
func TestContainerGetsMoreThanItAskedFor(t *testing.T) {
	b := newBench(t)
	b.run()
	pod := fixture.Placed(t, "rated", rated(fixture.G1, 5))
	b.kubelet.admit(pod)
	if held := b.kubelet.entry(string(pod.UID), "main").DeviceIDs; len(idsOf(held)) != 2 {
		t.Fatalf("the kubelet handed out %v, want two slots", held)
	}
	must.OK(t, b.kubelet.begin(pod, "main"))
	s, err := b.spec(pod, "main")
	must.OK(t, err)
	for _, env := range []string{
		"NVIDIA_VISIBLE_DEVICES=" + fixture.G1, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=50", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=" + fixture.G1 + "=20480M",
	} {
		if !slices.Contains(s.Edits.Env, env) {
			t.Errorf("the environment %v has no %s", s.Edits.Env, env)
		}
	}
	b.awaitMetric(`tandem_agent_slots{device="`+fixture.G1+`",state="held"}`, "5")
	b.awaitMetric("tandem_agent_assignment_drift", "0")
}

// The kubelet's slots go to the device of a share that they are fewer than.
func TestPreferredSlotsOfALargerShare(t *testing.T) {
	b := newBench(t)
	b.run()
	pod := fixture.Placed(t, "rated", rated(fixture.G1, 5))
	b.kubelet.add(pod)
	b.kubelet.admit(pod)
	for _, id := range idsOf(b.kubelet.entry(string(pod.UID), "main").DeviceIDs) {
		if device, _, _ := allocation.ParseSlotID(id); device != fixture.G1 {
			t.Errorf("the kubelet was hinted to %s, assigned is %s", id, fixture.G1)
		}
	}
}

// The capacity counts assignments, not slot IDs: 6 + 5 of 10 are too many though the kubelet handed out 2 + 2.
func TestLargerSharesAreNeverOverfull(t *testing.T) {
	b := newBench(t)
	b.run()
	first, second, third := fixture.Placed(t, "first", rated(fixture.G0, 6)), fixture.Placed(t, "second", rated(fixture.G0, 5)), fixture.Placed(t, "third", rated(fixture.G0, 4))
	for _, pod := range []*v1.Pod{first, second, third} {
		b.kubelet.admit(pod)
	}
	must.OK(t, b.kubelet.begin(first, "main"))
	if err := b.kubelet.begin(second, "main"); err == nil || !strings.Contains(err.Error(), "does not fit") {
		t.Errorf("the second pod: %v, want a refusal", err)
	}
	if err := b.kubelet.begin(third, "main"); err != nil {
		t.Errorf("the third pod fits: %v", err)
	}
}

func TestLargerSharesThatAreRefused(t *testing.T) {
	forged := func(from, to string) *v1.Pod {
		pod := fixture.Placed(t, "victim", rated(fixture.G0, 5))
		replace(pod, from, to)
		return pod
	}
	other := fixture.Placed(t, "victim", fixture.App(fixture.G0, 3))
	replace(other, `"slots":3`, `"slots":5,"askedSlots":2`)
	two := fixture.Placed(t, "victim", fixture.App(fixture.G0, 2), fixture.Want{Name: "side", Devices: []string{fixture.G0}, Slots: 1})
	replace(two, `"slots":2`, `"slots":5,"askedSlots":2`)
	cases := []struct {
		name  string
		pod   *v1.Pod
		slots int
		says  []string
	}{
		{"without the mark", forged(`"askedSlots":2,`, ``), 2, []string{"5 slots", "asks for 2"}},
		{"more asked for than the pod does", forged(`"askedSlots":2`, `"askedSlots":3`), 3, []string{"3 slots", "asks for 2"}},
		{"less asked for than the pod does", other, 3, []string{"2 slots", "asks for 3"}},
		{"as many as asked for", forged(`"slots":5,"askedSlots":2`, `"slots":2,"askedSlots":2`), 2, []string{"askedSlots 2"}},
		{"fewer than asked for", forged(`"slots":5`, `"slots":1`), 2, []string{"askedSlots 2"}},
		{"a negative number", forged(`"askedSlots":2`, `"askedSlots":-2`), 2, []string{"askedSlots -2"}},
		{"more than the device has", forged(`"slots":5`, `"slots":11`), 2, []string{"11"}},
		{"more memory than the slots are worth", forged(fmt.Sprint(20*fixture.GiB), fmt.Sprint(24*fixture.GiB)), 2, []string{fmt.Sprint(24 * fixture.GiB), fmt.Sprint(20 * fixture.GiB)}},
		{"memory of the slots asked for", forged(fmt.Sprint(20*fixture.GiB), fmt.Sprint(8*fixture.GiB)), 2, []string{fmt.Sprint(8 * fixture.GiB), fmt.Sprint(20 * fixture.GiB)}},
		{"the kubelet handed out the slots of the share", fixture.Placed(t, "victim", rated(fixture.G0, 5)), 5, []string{"2 slots", "handed out 5"}},
		{"the kubelet handed out less than asked for", fixture.Placed(t, "victim", rated(fixture.G0, 5)), 1, []string{"2 slots", "handed out 1"}},
		{"two containers", two, 2, []string{"askedSlots 2", "one container"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			refuses(t, c.pod, c.slots, "AssignmentMismatch", c.says)
		})
	}
}
