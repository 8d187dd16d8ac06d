package deviceplugin

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

func shown(list []resident) []string {
	out := make([]string, 0, len(list))
	for _, r := range list {
		out = append(out, fmt.Sprintf("%s/%s on %s: %d/%d, %d GiB, %d, %s, shared %v",
			r.pod, r.name, r.deviceID[:5], r.slots, r.of, r.memoryRequest>>30, r.computeLimit, r.grade, r.shared))
	}
	return out
}

func TestResidentsHoldWhatTheyWereGiven(t *testing.T) {
	devices := []device{{GPU: gpu(g0, 0, 0), Slots: 10}, {GPU: gpu(g1, 1, 1), Slots: 10}}
	old := gpu("GPU-2222", 2, 2)
	old.ComputeMajor = 6
	devices = append(devices, device{GPU: old, Slots: 10})
	granted := placed(t, "granted", app(g0, 3))
	grants := map[string]grant{string(granted.UID): {Assignment: granted.Annotations[v1alpha1.AnnotationAssignment]}}
	granted.Annotations[v1alpha1.AnnotationAssignment] = placed(t, "granted", app(g1, 3)).Annotations[v1alpha1.AnnotationAssignment]
	over := placed(t, "over", app(g0, 1))
	over.Status.Phase = v1.PodSucceeded
	evicted := placed(t, "evicted", app(g0, 1))
	evicted.Status.Phase = v1.PodFailed
	evicted.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}
	prep := placed(t, "prep", want{name: "fetch", kind: vgpu.Init, devices: []string{g0}, slots: 1},
		want{name: "warm", kind: vgpu.Init, devices: []string{g0}, slots: 2}, app(g0, 2))
	prep.Status.InitContainerStatuses = []v1.ContainerStatus{
		{Name: "fetch", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{}}},
		{Name: "warm", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: 1}}}, // it is started again
	}
	broken := placed(t, "broken", app(g0, 1))
	broken.Annotations[v1alpha1.AnnotationAssignment] = "{"
	pods := tenants(granted, over, evicted, prep, broken, placed(t, "aged", app("GPU-2222", 5)), unplaced("unplaced", app(g0, 1)),
		placed(t, "whole", want{name: "main", devices: []string{g0, g1}, slots: 10}), placed(t, "lost", app("GPU-3333", 1)))
	want := []string{
		"aged/main on GPU-2: 5/10, 20 GiB, 500, none, shared false",
		"evicted/main on GPU-0: 1/10, 4 GiB, 100, cooperative, shared true",
		"granted/main on GPU-0: 3/10, 12 GiB, 300, cooperative, shared true",
		"prep/warm on GPU-0: 2/10, 8 GiB, 200, cooperative, shared true",
		"prep/main on GPU-0: 2/10, 8 GiB, 200, cooperative, shared true",
		"whole/main on GPU-0: 10/10, 40 GiB, 1000, partition, shared false",
		"whole/main on GPU-1: 10/10, 40 GiB, 1000, partition, shared false",
	}
	if diff := cmp.Diff(want, shown(residents(pods, grants, devices))); diff != "" {
		t.Errorf("residents (-want +got):\n%s", diff)
	}
}
