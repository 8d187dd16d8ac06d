package fakekubelet

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"
)

// withoutTopology is the kubelet's NUMA node for devices that name none.
const withoutTopology = -1

// allocate gives a container of a pod under admission its devices. Callers come one after the other, all containers of
// a pod in a row, init containers first. A resource without a plugin gets nothing, as in the kubelet.
func (d *devices) allocate(ctx context.Context, pod *v1.Pod, c container) error {
	uid := string(pod.UID)
	if d.reuse.uid != uid {
		d.reuse = reusable{uid: uid, devices: map[string]sets.Set[string]{}}
	}
	d.collect()
	for _, name := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
		limit := c.Resources.Limits[name]
		h := holder{uid, c.Name, string(name)}
		if err := d.allocateOne(ctx, h, int(limit.Value())); err != nil {
			return err
		}
		d.mu.Lock()
		if held := d.held[h]; held != nil {
			if c.kind == ordinaryInit {
				d.reuse.devices[h.resource] = d.reuse.devices[h.resource].Union(held.ids.Devices())
			} else {
				d.reuse.devices[h.resource] = d.reuse.devices[h.resource].Difference(held.ids.Devices())
			}
		}
		d.mu.Unlock()
	}
	return nil
}

func (d *devices) allocateOne(ctx context.Context, h holder, needed int) error {
	chosen, plugin, err := d.choose(ctx, h, needed)
	if err != nil || len(chosen) == 0 {
		return err
	}
	answer, err := plugin.client.Allocate(ctx, &pluginapi.AllocateRequest{
		ContainerRequests: []*pluginapi.ContainerAllocateRequest{{DevicesIds: chosen}},
	})
	if err != nil {
		return err
	}
	if len(answer.ContainerResponses) == 0 {
		return fmt.Errorf("no containers return in allocation response %v", answer)
	}
	d.mu.Lock()
	ids := checkpoint.NewDevicesPerNUMA()
	for _, id := range chosen {
		device := d.resources[h.resource].known[id]
		if len(device.GetTopology().GetNodes()) == 0 {
			ids[withoutTopology] = append(ids[withoutTopology], id)
		}
		for _, node := range device.GetTopology().GetNodes() {
			ids[node.ID] = append(ids[node.ID], id)
		}
	}
	d.held[h] = &holding{ids: ids, answer: answer.ContainerResponses[0]}
	d.mu.Unlock()
	return d.save()
}

// choose picks devices, none when the container needs no new ones. The errors are the kubelet's words.
func (d *devices) choose(ctx context.Context, h holder, needed int) ([]string, endpoint, error) {
	d.mu.Lock()
	r, has := d.resources[h.resource]
	if !has {
		d.mu.Unlock()
		return nil, endpoint{}, nil
	}
	held, used := d.held[h], d.used(h.resource)
	healthy, plugin := r.healthy.Clone(), r.endpoint
	d.mu.Unlock()
	if healthy.Len() == 0 {
		return nil, endpoint{}, fmt.Errorf("no healthy devices present; cannot allocate unhealthy devices %s", h.resource)
	}
	if held != nil {
		if !healthy.IsSuperset(held.ids.Devices()) {
			return nil, endpoint{}, fmt.Errorf("previously allocated devices are no longer healthy; cannot allocate unhealthy devices %s", h.resource)
		}
		return nil, endpoint{}, nil
	}
	chosen := sets.New[string]()
	take := func(from sets.Set[string]) {
		for _, id := range sets.List(from.Difference(chosen)) {
			if chosen.Len() < needed {
				chosen.Insert(id)
			}
		}
	}
	take(d.reuse.devices[h.resource])
	if missing := needed - chosen.Len(); missing > 0 {
		free := healthy.Difference(used)
		if free.Len() < missing {
			return nil, endpoint{}, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", h.resource, missing, free.Len())
		}
		preferred, err := prefer(ctx, plugin, free.Union(chosen), chosen, needed)
		if err != nil {
			return nil, endpoint{}, err
		}
		take(preferred.Intersection(free))
		take(free)
	}
	return sets.List(chosen), plugin, nil
}

// prefer gets from the plugin the devices that it prefers to give away.
func prefer(ctx context.Context, p endpoint, available, must sets.Set[string], size int) (sets.Set[string], error) {
	if !p.options.GetGetPreferredAllocationAvailable() {
		return nil, nil
	}
	answer, err := p.client.GetPreferredAllocation(ctx, &pluginapi.PreferredAllocationRequest{
		ContainerRequests: []*pluginapi.ContainerPreferredAllocationRequest{{
			AvailableDeviceIDs: sets.List(available), MustIncludeDeviceIDs: sets.List(must), AllocationSize: int32(size),
		}},
	})
	if err != nil {
		return nil, fmt.Errorf("device plugin GetPreferredAllocation rpc failed with err: %w", err)
	}
	if len(answer.ContainerResponses) == 0 {
		return nil, nil
	}
	return sets.New(answer.ContainerResponses[0].DeviceIDs...), nil
}

// preStart calls PreStartContainer for each resource of a container whose plugin wants it, and returns the plugins'
// answers to Allocate.
func (d *devices) preStart(ctx context.Context, uid, container string) ([]*pluginapi.ContainerAllocateResponse, []string, error) {
	d.mu.Lock()
	names := d.resourcesOf(uid, container)
	d.mu.Unlock()
	answers := make([]*pluginapi.ContainerAllocateResponse, 0, len(names))
	var all []string
	for _, name := range names {
		d.mu.Lock()
		held := d.held[holder{uid, container, name}]
		var plugin endpoint
		if r := d.resources[name]; r != nil {
			plugin = r.endpoint
		}
		d.mu.Unlock()
		if held == nil {
			return nil, nil, fmt.Errorf("no devices found allocated in local cache for pod %s, container %s, resource %s", uid, container, name)
		}
		ids := sets.List(held.ids.Devices())
		answers, all = append(answers, held.answer), append(all, ids...)
		if !plugin.options.GetPreStartRequired() { // also while the plugin has not come back after a restart of the kubelet
			continue
		}
		limit, cancel := context.WithTimeout(ctx, pluginapi.KubeletPreStartContainerRPCTimeoutInSecs*time.Second)
		_, err := plugin.client.PreStartContainer(limit, &pluginapi.PreStartContainerRequest{DevicesIds: ids})
		cancel()
		if err != nil {
			return nil, nil, fmt.Errorf("device plugin PreStartContainer rpc failed with err: %w", err)
		}
	}
	return answers, all, nil
}
