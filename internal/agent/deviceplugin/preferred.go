package deviceplugin

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/binding"
	"github.com/tandem-gpu/tandem/internal/agent/podsource"
	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// preferred returns the best slots for the container that the kubelet is probably admitting: those of its assigned
// devices. If the assignment is unknown, it returns slots of as few devices as possible. The kubelet is free to take
// others, and does no harm by that; the hint keeps its own accounts close to the truth.
func preferred(r *pluginapi.ContainerPreferredAllocationRequest, want *vgpu.ContainerAssignment) []string {
	chosen := allocation.SlotSet(r.MustIncludeDeviceIDs)
	size := int(r.AllocationSize)
	free := allocation.SlotSet(slices.DeleteFunc(slices.Clone(r.AvailableDeviceIDs), func(id string) bool {
		return slices.Contains(chosen, id)
	}))
	if want != nil {
		for _, id := range want.Devices {
			chosen, free = take(chosen, free, string(id), int(want.Share.Slots)-count(chosen, string(id)))
		}
	}
	for len(chosen) < size && len(free) > 0 {
		chosen, free = take(chosen, free, tightest(free, size-len(chosen)), size-len(chosen))
	}
	return chosen[:min(len(chosen), max(size, len(r.MustIncludeDeviceIDs)))]
}

// take moves up to n slots of a device from free to chosen.
func take(chosen, free []string, id string, n int) (nextChosen, nextFree []string) {
	for _, slot := range free {
		if device, _, _ := allocation.ParseSlotID(slot); device == id && n > 0 {
			chosen = append(chosen, slot)
			n--
			continue
		}
		nextFree = append(nextFree, slot)
	}
	return chosen, nextFree
}

// tightest returns the device with the fewest free slots among those that have n, else the one with the most; ties by
// name.
func tightest(free []string, n int) string {
	counts := map[string]int{}
	for _, slot := range free {
		device, _, _ := allocation.ParseSlotID(slot)
		counts[device]++
	}
	return slices.MinFunc(slices.Sorted(maps.Keys(counts)), func(a, b string) int {
		fitsA, fitsB := counts[a] >= n, counts[b] >= n
		switch {
		case fitsA && fitsB:
			return cmp.Or(cmp.Compare(counts[a], counts[b]), cmp.Compare(a, b))
		case fitsA != fitsB:
			return map[bool]int{true: -1, false: 1}[fitsA]
		}
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
}

func count(slots []string, id string) int {
	n := 0
	for _, slot := range slots {
		if device, _, _ := allocation.ParseSlotID(slot); device == id {
			n++
		}
	}
	return n
}

// awaiting returns the share of the container that the kubelet is most probably admitting. It looks at pods with an
// assignment whose containers are not in the kubelet's checkpoint yet. It takes the first of these, by creation and
// name, whose next container requests that many slots.
func awaiting(pods []*v1.Pod, held []allocation.Holding, slots int) *vgpu.ContainerAssignment {
	pods = slices.Clone(pods)
	slices.SortFunc(pods, func(a, b *v1.Pod) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Namespace+"/"+a.Name, b.Namespace+"/"+b.Name),
			strings.Compare(string(a.UID), string(b.UID)))
	})
	admitted := map[[2]string]bool{}
	for _, h := range held {
		admitted[[2]string{h.UID, h.Container}] = true
	}
	for _, pod := range pods {
		a, err := kube.AssignmentOf(pod)
		if err != nil || podsource.Over(pod) {
			continue
		}
		for i := range a.Containers {
			c := &a.Containers[i]
			if admitted[[2]string{string(pod.UID), c.Name}] {
				continue
			}
			if binding.Tokens(c) == slots {
				return c
			}
			break // the kubelet admits containers in order: this one is next and has another number
		}
	}
	return nil
}

// hint returns the share that a request for slots is probably for, nil where the kubelet does not list its pods in
// time.
func (p *plugin) hint(ctx context.Context, slots int) *vgpu.ContainerAssignment {
	ctx, cancel := context.WithTimeout(ctx, p.hintTimeout)
	defer cancel()
	pods, err := p.pods.Glance(ctx)
	if err != nil {
		return nil
	}
	held, err := allocation.ReadHoldings(p.checkpoint)
	if err != nil {
		return nil
	}
	return awaiting(pods, held, slots)
}
