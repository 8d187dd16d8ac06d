package deviceplugin

import (
	"context"
	"maps"
	"os"
	"slices"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"

	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// admit allocates for all containers of the pod in the kubelet's order: preferred slots where the plugin names free
// ones, init containers' slots again for later containers.
func (k *kubelet) admit(pod *v1.Pod) {
	k.t.Helper()
	k.add(pod)
	var reusable []string
	for _, c := range pod.Spec.InitContainers {
		ids := k.allocate(pod, c, reusable)
		if c.RestartPolicy == nil {
			reusable = append(reusable, ids...)
			slices.Sort(reusable)
			reusable = slices.Compact(reusable)
			continue
		}
		reusable = slices.DeleteFunc(reusable, func(id string) bool { return slices.Contains(ids, id) })
	}
	for _, c := range pod.Spec.Containers {
		ids := k.allocate(pod, c, reusable)
		reusable = slices.DeleteFunc(reusable, func(id string) bool { return slices.Contains(ids, id) })
	}
}

func (k *kubelet) allocate(pod *v1.Pod, c v1.Container, reusable []string) []string {
	k.t.Helper()
	q, ok := c.Resources.Limits[v1alpha1.ResourceVGPU]
	if !ok {
		return nil
	}
	need := int(q.Value())
	ids := slices.Clone(reusable[:min(need, len(reusable))])
	if len(ids) < need {
		free := k.free()
		answer, err := k.client().GetPreferredAllocation(k.t.Context(), &pluginapi.PreferredAllocationRequest{
			ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{
				AvailableDeviceIDs: append(slices.Clone(free), ids...), MustIncludeDeviceIDs: ids, AllocationSize: int32(need),
			}},
		})
		must.OK(k.t, err)
		for _, id := range append(slices.Clone(answer.ContainerResponses[0].DeviceIDs), free...) {
			if len(ids) < need && slices.Contains(free, id) && !slices.Contains(ids, id) {
				ids = append(ids, id)
			}
		}
	}
	if len(ids) < need {
		k.t.Fatalf("pod %s, container %s: %d slots of %d are free", pod.Name, c.Name, len(ids), need)
	}
	k.give(pod, c.Name, ids)
	return ids
}

// give allocates these slots, whoever they were meant for.
func (k *kubelet) give(pod *v1.Pod, container string, ids []string) {
	k.t.Helper()
	k.add(pod)
	answer, err := k.client().Allocate(k.t.Context(), &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: ids}},
	})
	must.OK(k.t, err)
	raw, err := proto.Marshal(answer.ContainerResponses[0])
	must.OK(k.t, err)
	k.mu.Lock()
	defer k.mu.Unlock()
	k.entries = slices.DeleteFunc(k.entries, func(e checkpoint.PodDevicesEntry) bool { return k.pods[e.PodUID] == nil })
	k.entries = append(k.entries, checkpoint.PodDevicesEntry{
		PodUID: string(pod.UID), ContainerName: container, ResourceName: v1alpha1.ResourceVGPU,
		DeviceIDs: checkpoint.DevicesPerNUMA{0: slices.Clone(ids)}, AllocResp: raw,
	})
	k.writeCheckpoint()
}

func (k *kubelet) writeCheckpoint() {
	blob, err := checkpoint.New(k.entries, map[string][]string{v1alpha1.ResourceVGPU: {}}).MarshalCheckpoint()
	must.OK(k.t, err)
	must.OK(k.t, os.WriteFile(k.checkpointPath(), blob, 0o600))
}

// free lists healthy slots that no pod of the node holds.
func (k *kubelet) free() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	held := map[string]bool{}
	for _, e := range k.entries {
		for _, id := range idsOf(e.DeviceIDs) {
			held[id] = held[id] || k.pods[e.PodUID] != nil
		}
	}
	var free []string
	for _, d := range k.devices {
		if d.Health == pluginapi.Healthy && !held[d.ID] {
			free = append(free, d.ID)
		}
	}
	return free
}

// begin calls PreStartContainer as the kubelet does before it creates a container, but waits for longer than its 30 s.
func (k *kubelet) begin(pod *v1.Pod, container string) error {
	k.t.Helper()
	k.mu.Lock()
	e := k.entry(string(pod.UID), container)
	k.mu.Unlock()
	if e == nil {
		k.t.Fatalf("pod %s, container %s holds no slots", pod.Name, container)
	}
	ctx, cancel := context.WithTimeout(k.t.Context(), fixture.TooLong)
	defer cancel()
	_, err := k.client().PreStartContainer(ctx, &pluginapi.PreStartContainerRequest{DevicesIds: idsOf(e.DeviceIDs)})
	return err
}

// cdiName returns the name that the runtime is told for a container.
func (k *kubelet) cdiName(pod *v1.Pod, container string) string {
	k.t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	e := k.entry(string(pod.UID), container)
	if e == nil {
		k.t.Fatalf("pod %s, container %s holds no slots", pod.Name, container)
	}
	var r pluginapi.ContainerAllocateResponse
	must.OK(k.t, proto.Unmarshal(e.AllocResp, &r))
	if len(r.CdiDevices) != 1 || len(r.Envs)+len(r.Mounts)+len(r.Devices)+len(r.Annotations) != 0 {
		k.t.Fatalf("allocation %v, want one CDI name and nothing else", &r)
	}
	name, ok := cdi.ParseQualified(r.CdiDevices[0].Name)
	if !ok {
		k.t.Fatalf("allocation %v, want a name of kind %s", &r, v1alpha1.CDIKind)
	}
	return name
}

// idsOf returns the slots of all NUMA nodes, sorted, once each.
func idsOf(perNUMA checkpoint.DevicesPerNUMA) []string {
	ids := slices.Concat(slices.Collect(maps.Values(perNUMA))...)
	slices.Sort(ids)
	return slices.Compact(ids)
}
