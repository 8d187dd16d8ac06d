package inventory

import (
	"cmp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Inventory holds the devices and signals their changes. A device is known by its UUID: its index and its minor number
// may change under it.
type Inventory struct {
	// slots is the number of slots of a model.
	slots func(model string) int

	mu      sync.Mutex
	devices []Device
	// changed closes at a change for the kubelet and the GPUNode, noted at one for the GPUNode alone.
	changed, noted chan struct{}
}

// New returns the inventory of devices that the driver lists. slots is the number of slots of a model.
func New(gpus []GPU, slots func(model string) int) *Inventory {
	inv := &Inventory{slots: slots, changed: make(chan struct{}), noted: make(chan struct{})}
	inv.devices = reconcile(nil, gpus, slots)
	return inv
}

// Snapshot returns the devices by index and a channel that is closed at the next change. The caller owns the slice.
func (inv *Inventory) Snapshot() ([]Device, <-chan struct{}) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return slices.Clone(inv.devices), inv.changed
}

// Notes returns a channel that closes at the next change that does not concern the kubelet.
func (inv *Inventory) Notes() <-chan struct{} {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	return inv.noted
}

// Rescan takes over what the driver lists now. Rescan returns the devices that are new and those that are no more.
func (inv *Inventory) Rescan(gpus []GPU) (added, removed []GPU) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	next := reconcile(inv.devices, gpus, inv.slots)
	for i := range next {
		if Find(inv.devices, next[i].ID) == nil {
			added = append(added, next[i].GPU)
		}
	}
	for i := range inv.devices {
		if Find(next, inv.devices[i].ID) == nil {
			removed = append(removed, inv.devices[i].GPU)
		}
	}
	if !slices.EqualFunc(inv.devices, next, equalDevice) {
		inv.devices = next
		inv.tell()
	}
	return added, removed
}

// reconcile returns the devices after the driver has listed gpus. Listed devices take over what is new about them and
// keep their health. A device that is no longer listed stays, for its health to say that it is lost, unless the driver
// now divides its GPU otherwise. Such devices are gone for good: a MIG instance whose GPU is whole or has other
// instances, and a GPU that has become instances.
func reconcile(have []Device, gpus []GPU, slots func(model string) int) []Device {
	next := make([]Device, 0, max(len(have), len(gpus)))
	divided := map[string]bool{} // GPUs whose division the list shows
	for _, g := range gpus {
		d := Device{Slots: slots(g.Model)}
		if before := Find(have, g.ID); before != nil {
			d = *before
		}
		d.GPU = g
		next = append(next, d)
		divided[cmp.Or(g.Parent, g.ID)] = true
	}
	for i := range have {
		if Find(next, have[i].ID) == nil && !divided[cmp.Or(have[i].Parent, have[i].ID)] {
			next = append(next, have[i])
		}
	}
	slices.SortFunc(next, func(a, b Device) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.ID, b.ID))
	})
	return next
}

func equalDevice(a, b Device) bool {
	return equality.Semantic.DeepEqual(a.GPU, b.GPU) && a.Slots == b.Slots && EqualSickness(a.Sick, b.Sick) && a.Recovering == b.Recovering
}

// SetHealth records the health of a device and reports whether that is news.
func (inv *Inventory) SetHealth(id string, sick *Sickness, recovering bool) bool {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	d := Find(inv.devices, id)
	if d == nil || EqualSickness(d.Sick, sick) && d.Recovering == recovering {
		return false
	}
	d.Sick, d.Recovering = sick, recovering
	inv.tell()
	return true
}

// SetMonitored records why the agent cannot monitor a device, nil where it can, and reports whether that is news.
// Another text for the same reason is none: the text of a failed probe may differ each time.
func (inv *Inventory) SetMonitored(id string, why *Sickness) bool {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	d := Find(inv.devices, id)
	if d == nil || d.Unmonitored == why || d.Unmonitored != nil && why != nil && d.Unmonitored.Reason == why.Reason {
		return false
	}
	d.Unmonitored = why
	inv.note()
	return true
}

// SetContexts records how many clients a device serves. The number reaches the GPUNode at its next write; announce
// makes that now.
func (inv *Inventory) SetContexts(id string, used int, announce bool) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	if d := Find(inv.devices, id); d != nil {
		d.ContextsUsed = used
	}
	if announce {
		inv.note()
	}
}

// Usage is what the GPUNode says of the use of a device.
type Usage struct {
	// Device is nil without a measurement.
	Device  *v1alpha1.GPUUsage
	Tenants []v1alpha1.GPUTenant
}

// SetUsages records what the GPUNode shall say of the use of each device, and has it written. The caller keeps the
// intervals, and changes nothing of what it gave.
func (inv *Inventory) SetUsages(usages map[string]Usage) {
	inv.mu.Lock()
	defer inv.mu.Unlock()
	for i := range inv.devices {
		t := usages[inv.devices[i].ID]
		inv.devices[i].Usage, inv.devices[i].Tenants = t.Device, t.Tenants
	}
	inv.note()
}

// tell wakes the followers of the devices. The caller holds the lock.
func (inv *Inventory) tell() {
	close(inv.changed)
	inv.changed = make(chan struct{})
}

// note wakes the writer of the GPUNode. The caller holds the lock.
func (inv *Inventory) note() {
	close(inv.noted)
	inv.noted = make(chan struct{})
}
