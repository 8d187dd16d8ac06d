package fakekubelet

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	checkpointerrors "k8s.io/kubernetes/pkg/kubelet/checkpointmanager/errors"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"
	plugin "k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/plugin/v1beta1"
)

// checkpointName is the kubelet's name of the device manager's checkpoint.
const checkpointName = "kubelet_internal_checkpoint"

// devices is the device manager: which devices the plugins have, and which container holds which of them.
type devices struct {
	checkpoints checkpointmanager.CheckpointManager
	active      func() (uids sets.Set[string], known bool) // pods that may hold devices, and whether the pods are known
	changed     func()                                     // called when the capacity changed

	mu        sync.Mutex
	resources map[string]*resourceDevices
	held      map[holder]*holding
	reuse     reusable
}

// resourceDevices are the devices of one resource.
type resourceDevices struct {
	// endpoint is the plugin for calls, one of those with a connection.
	endpoint endpoint
	// connected are the plugins that registered and have not gone, by socket. While a plugin restarts there are two.
	connected map[string]endpoint
	known     map[string]*pluginapi.Device
	healthy   sets.Set[string]
	sick      sets.Set[string]
}

// endpoint is a plugin that registered; the zero value is one that has not, since the kubelet started.
type endpoint struct {
	client  pluginapi.DevicePluginClient
	options *pluginapi.DevicePluginOptions
}

// holder is a container that holds devices of a resource.
type holder struct{ uid, container, resource string }

// holding is what a container holds: devices by NUMA node, and the plugin's answer to Allocate.
type holding struct {
	ids    checkpoint.DevicesPerNUMA
	answer *pluginapi.ContainerAllocateResponse
}

// reusable are the devices of the pod under admission that its init containers leave to the others, by resource.
type reusable struct {
	uid     string
	devices map[string]sets.Set[string]
}

// loadDevices takes up the checkpoint of a directory. Resources have no devices until their plugin registers again.
func loadDevices(dir string, active func() (sets.Set[string], bool), changed func()) (*devices, error) {
	checkpoints, err := checkpointmanager.NewCheckpointManager(dir)
	if err != nil {
		return nil, fmt.Errorf("open checkpoint: %w", err)
	}
	d := &devices{
		checkpoints: checkpoints, active: active, changed: changed,
		resources: map[string]*resourceDevices{}, held: map[holder]*holding{},
	}
	saved := checkpoint.New(nil, map[string][]string{})
	err = checkpoints.GetCheckpoint(checkpointName, saved)
	if errors.Is(err, checkpointerrors.ErrCheckpointNotFound) {
		return d, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read checkpoint: %w", err)
	}
	entries, registered := saved.GetData()
	for _, e := range entries {
		answer := &pluginapi.ContainerAllocateResponse{}
		if err := proto.Unmarshal(e.AllocResp, answer); err != nil {
			return nil, fmt.Errorf("read checkpoint: answer for container %s of pod %s: %w", e.ContainerName, e.PodUID, err)
		}
		d.held[holder{e.PodUID, e.ContainerName, e.ResourceName}] = &holding{ids: e.DeviceIDs, answer: answer}
	}
	for name := range registered {
		d.resources[name] = newResourceDevices()
	}
	return d, nil
}

func newResourceDevices() *resourceDevices {
	return &resourceDevices{connected: map[string]endpoint{}, known: map[string]*pluginapi.Device{}, healthy: sets.New[string](), sick: sets.New[string]()}
}

// save writes the checkpoint.
func (d *devices) save() error {
	d.mu.Lock()
	registered := map[string][]string{}
	for name, r := range d.resources {
		registered[name] = sets.List(r.healthy)
	}
	entries := make([]checkpoint.PodDevicesEntry, 0, len(d.held))
	for h, held := range d.held {
		answer, err := proto.Marshal(held.answer)
		if err != nil {
			d.mu.Unlock()
			return fmt.Errorf("write checkpoint: %w", err)
		}
		entries = append(entries, checkpoint.PodDevicesEntry{
			PodUID: h.uid, ContainerName: h.container, ResourceName: h.resource, DeviceIDs: held.ids, AllocResp: answer,
		})
	}
	d.mu.Unlock()
	if err := d.checkpoints.CreateCheckpoint(checkpointName, checkpoint.New(entries, registered)); err != nil {
		return fmt.Errorf("write checkpoint: %w", err)
	}
	return nil
}

// CleanupPluginDirectory removes the sockets of earlier runs, as the kubelet does when it starts.
func (d *devices) CleanupPluginDirectory(_ klog.Logger, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type()&os.ModeSocket == 0 {
			continue
		}
		if err := os.Remove(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

// PluginConnected reads the options of a plugin that registered. Its devices come with ListAndWatch.
func (d *devices) PluginConnected(ctx context.Context, name string, p plugin.DevicePlugin) error {
	options, err := p.API().GetDevicePluginOptions(ctx, &pluginapi.Empty{})
	if err != nil {
		return fmt.Errorf("ask plugin of %s for its options: %w", name, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.resources[name] == nil {
		d.resources[name] = newResourceDevices()
	}
	r := d.resources[name]
	if _, ok := r.connected[p.SocketPath()]; ok {
		return fmt.Errorf("connect plugin of %s: already connected: %s", name, p.SocketPath())
	}
	r.endpoint = endpoint{p.API(), options}
	r.connected[p.SocketPath()] = r.endpoint
	return nil
}

// PluginDisconnected makes all devices of the resource unhealthy until a plugin comes back. Another connected plugin of
// the resource serves from then on.
func (d *devices) PluginDisconnected(_ klog.Logger, name, socket string) {
	if d.disconnect(name, socket) {
		d.changed()
	}
}

// disconnect reports whether the health of devices changed.
func (d *devices) disconnect(name, socket string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.resources[name]
	if r == nil {
		return false
	}
	if _, ok := r.connected[socket]; !ok {
		return false // the plugin never got a connection
	}
	delete(r.connected, socket)
	if left := slices.Sorted(maps.Keys(r.connected)); len(left) > 0 {
		r.endpoint = r.connected[left[0]] // the kubelet takes any of them
		return false
	}
	r.sick = r.sick.Union(r.healthy)
	r.healthy = sets.New[string]()
	return true
}

// PluginListAndWatchReceiver takes the plugin's list of devices.
func (d *devices) PluginListAndWatchReceiver(logger klog.Logger, name string, list *pluginapi.ListAndWatchResponse) {
	d.mu.Lock()
	r := newResourceDevices()
	if old := d.resources[name]; old != nil {
		r.endpoint, r.connected = old.endpoint, old.connected
	}
	for _, device := range list.Devices {
		r.known[device.ID] = device
		if device.Health == pluginapi.Healthy {
			r.healthy.Insert(device.ID)
		} else {
			r.sick.Insert(device.ID)
		}
	}
	d.resources[name] = r
	d.mu.Unlock()
	if err := d.save(); err != nil {
		logger.Error(err, "Take the plugin's devices", "resource", name)
	}
	d.changed()
}

// capacity returns the number of devices, all of them and the healthy ones, by resource.
func (d *devices) capacity() (total, healthy v1.ResourceList) {
	d.mu.Lock()
	defer d.mu.Unlock()
	total, healthy = v1.ResourceList{}, v1.ResourceList{}
	for name, r := range d.resources {
		total[v1.ResourceName(name)] = *resource.NewQuantity(int64(r.healthy.Len()+r.sick.Len()), resource.DecimalSI)
		healthy[v1.ResourceName(name)] = *resource.NewQuantity(int64(r.healthy.Len()), resource.DecimalSI)
	}
	return total, healthy
}

// collect frees the devices of pods that are gone or have ended. The kubelet does it before it allocates and for calls
// of pod-resources, not when a pod ends.
func (d *devices) collect() {
	active, known := d.active()
	if !known {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.held, func(h holder, _ *holding) bool { return !active.Has(h.uid) })
}

// used returns the held devices of a resource. The caller holds mu.
func (d *devices) used(resource string) sets.Set[string] {
	used := sets.New[string]()
	for h, held := range d.held {
		if h.resource == resource {
			used = used.Union(held.ids.Devices())
		}
	}
	return used
}

// resourcesOf returns the names of the resources that a container holds, sorted. The caller holds mu.
func (d *devices) resourcesOf(uid, container string) []string {
	var names []string
	for h := range d.held {
		if h.uid == uid && h.container == container {
			names = append(names, h.resource)
		}
	}
	slices.Sort(names)
	return names
}
