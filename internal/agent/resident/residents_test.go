package resident

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

func shown(list []Share) []string {
	out := make([]string, 0, len(list))
	for _, r := range list {
		out = append(out, fmt.Sprintf("%s/%s on %s: %d/%d, %d GiB, %d, %s, shared %v",
			r.Pod, r.Name, r.DeviceID[:5], r.Slots, r.Of, r.MemoryRequest>>30, r.ComputeLimit, r.Grade, r.Shared))
	}
	return out
}

func TestResidentsHoldWhatTheyWereGiven(t *testing.T) {
	devices := []inventory.Device{{GPU: fixture.GPU(fixture.G0, 0, 0), Slots: 10}, {GPU: fixture.GPU(fixture.G1, 1, 1), Slots: 10}}
	old := fixture.GPU("GPU-2222", 2, 2)
	old.ComputeMajor = 6
	devices = append(devices, inventory.Device{GPU: old, Slots: 10})
	granted := fixture.Placed(t, "granted", fixture.App(fixture.G0, 3))
	grants := map[string]allocation.Grant{string(granted.UID): {Assignment: granted.Annotations[v1alpha1.AnnotationAssignment]}}
	granted.Annotations[v1alpha1.AnnotationAssignment] = fixture.Placed(t, "granted", fixture.App(fixture.G1, 3)).Annotations[v1alpha1.AnnotationAssignment]
	over := fixture.Placed(t, "over", fixture.App(fixture.G0, 1))
	over.Status.Phase = v1.PodSucceeded
	evicted := fixture.Placed(t, "evicted", fixture.App(fixture.G0, 1))
	evicted.Status.Phase = v1.PodFailed
	evicted.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
	prep := fixture.Placed(t, "prep", fixture.Want{Name: "fetch", Kind: vgpu.Init, Devices: []string{fixture.G0}, Slots: 1},
		fixture.Want{Name: "warm", Kind: vgpu.Init, Devices: []string{fixture.G0}, Slots: 2}, fixture.App(fixture.G0, 2))
	prep.Status.InitContainerStatuses = []v1.ContainerStatus{
		{Name: "fetch", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}},
		{Name: "warm", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1}}}, // it is started again
	}
	broken := fixture.Placed(t, "broken", fixture.App(fixture.G0, 1))
	broken.Annotations[v1alpha1.AnnotationAssignment] = "{"
	pods := tenantsOf(granted, over, evicted, prep, broken, fixture.Placed(t, "aged", fixture.App("GPU-2222", 5)), fixture.Unplaced("unplaced", fixture.App(fixture.G0, 1)),
		fixture.Placed(t, "whole", fixture.Want{Name: "main", Devices: []string{fixture.G0, fixture.G1}, Slots: 10}), fixture.Placed(t, "lost", fixture.App("GPU-3333", 1)))
	want := []string{
		"aged/main on GPU-2: 5/10, 20 GiB, 500, none, shared false",
		"evicted/main on GPU-0: 1/10, 4 GiB, 100, cooperative, shared true",
		"granted/main on GPU-0: 3/10, 12 GiB, 300, cooperative, shared true",
		"prep/warm on GPU-0: 2/10, 8 GiB, 200, cooperative, shared true",
		"prep/main on GPU-0: 2/10, 8 GiB, 200, cooperative, shared true",
		"whole/main on GPU-0: 10/10, 40 GiB, 1000, partition, shared false",
		"whole/main on GPU-1: 10/10, 40 GiB, 1000, partition, shared false",
	}
	if diff := cmp.Diff(want, shown(List(pods, grants, devices))); diff != "" {
		t.Errorf("residents (-want +got):\n%s", diff)
	}
}
