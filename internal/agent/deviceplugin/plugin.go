package deviceplugin

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/binding"
	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/metrics"
	"github.com/tandem-gpu/tandem/internal/agent/podsource"
)

// hintTimeout bounds what a hint may cost: the kubelet admits one pod at a time and waits for it.
const hintTimeout = 500 * time.Millisecond

// plugin serves the kubelet's device plugin calls.
type plugin struct {
	pluginapi.UnimplementedDevicePluginServer

	inventory  *inventory.Inventory
	binder     *binding.Binder
	pods       podsource.Reader
	checkpoint string
	records    *allocation.Records
	metrics    *metrics.Agent
	// hintTimeout bounds what a hint may cost.
	hintTimeout time.Duration
	// stopping closes when the agent ends: the kubelet's watches end with it.
	stopping <-chan struct{}

	mu       sync.Mutex
	watchers int
	moved    chan struct{}
}

func pluginOptions() *pluginapi.DevicePluginOptions {
	return &pluginapi.DevicePluginOptions{PreStartRequired: true, GetPreferredAllocationAvailable: true}
}

// GetDevicePluginOptions makes the kubelet call PreStartContainer and GetPreferredAllocation.
func (p *plugin) GetDevicePluginOptions(context.Context, *pluginapi.Empty) (*pluginapi.DevicePluginOptions, error) {
	return pluginOptions(), nil
}

// ListAndWatch sends all slots, and again whenever the health of a device changes.
func (p *plugin) ListAndWatch(_ *pluginapi.Empty, stream pluginapi.DevicePlugin_ListAndWatchServer) error {
	p.watching(1)
	defer p.watching(-1)
	for {
		devices, changed := p.inventory.Snapshot()
		if err := stream.Send(&pluginapi.ListAndWatchResponse{Devices: advertised(devices)}); err != nil {
			return err
		}
		select {
		case <-changed:
		case <-stream.Context().Done():
			return nil
		case <-p.stopping:
			return status.Error(codes.Unavailable, "the agent stops")
		}
	}
}

func (p *plugin) watching(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers += n
	p.metrics.SetWatched(p.watchers > 0)
	close(p.moved)
	p.moved = make(chan struct{})
}

// watched reports whether the kubelet watches the slots, with a channel that closes when that may have changed.
func (p *plugin) watched() (bool, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.watchers > 0, p.moved
}

// GetPreferredAllocation steers the kubelet towards the slots of the assigned device. An error would make the kubelet
// reject the pod, so it never fails.
func (p *plugin) GetPreferredAllocation(ctx context.Context, r *pluginapi.PreferredAllocationRequest) (*pluginapi.PreferredAllocationResponse, error) {
	out := &pluginapi.PreferredAllocationResponse{}
	for _, c := range r.ContainerRequests {
		ids := preferred(c, p.hint(ctx, int(c.AllocationSize)))
		out.ContainerResponses = append(out.ContainerResponses, &pluginapi.ContainerPreferredAllocationResponse{DeviceIDs: ids})
	}
	return out, nil
}

// Allocate answers with a fresh CDI name for each container and nothing else. The kubelet keeps the answer for the life
// of the pod, which ties the name to pod and container; the agent writes the meaning of the name before the start.
func (p *plugin) Allocate(ctx context.Context, r *pluginapi.AllocateRequest) (*pluginapi.AllocateResponse, error) {
	out := &pluginapi.AllocateResponse{}
	names := map[string][]string{}
	for _, c := range r.ContainerRequests {
		if err := p.known(c.DevicesIds); err != nil {
			return nil, status.Error(codes.InvalidArgument, err.Error())
		}
		name, err := cdi.NewName()
		if err != nil {
			return nil, status.Error(codes.Internal, err.Error())
		}
		names[name] = c.DevicesIds
		out.ContainerResponses = append(out.ContainerResponses, &pluginapi.ContainerAllocateResponse{
			CdiDevices: []*pluginapi.CDIDevice{{Name: cdi.Qualified(name)}},
		})
	}
	if err := p.records.Allocated(names, time.Now()); err != nil {
		return nil, status.Error(codes.Internal, err.Error())
	}
	for name, ids := range names {
		p.metrics.Allocated()
		klog.FromContext(ctx).V(2).Info("Allocated", "cdiName", name, "slots", allocation.SlotSet(ids))
	}
	return out, nil
}

// known refuses slots that the node does not have.
func (p *plugin) known(ids []string) error {
	devices, _ := p.inventory.Snapshot()
	for _, id := range ids {
		name, slot, ok := allocation.ParseSlotID(id)
		if d := inventory.Find(devices, name); !ok || d == nil || slot >= d.Slots {
			return fmt.Errorf("allocate %s: the node has no such slot", id)
		}
	}
	return nil
}

// PreStartContainer lets a container start that has a valid assignment, and writes what its CDI name means.
func (p *plugin) PreStartContainer(ctx context.Context, r *pluginapi.PreStartContainerRequest) (*pluginapi.PreStartContainerResponse, error) {
	start := time.Now()
	err := p.binder.Bind(ctx, r.DevicesIds)
	p.metrics.PreStarted(time.Since(start), binding.ReasonOf(err))
	if err != nil {
		klog.FromContext(ctx).Info("Container may not start", "reason", binding.ReasonOf(err), "why", err.Error(), "slots", allocation.SlotSet(r.DevicesIds))
		return nil, binding.Answer(err)
	}
	return &pluginapi.PreStartContainerResponse{}, nil
}
