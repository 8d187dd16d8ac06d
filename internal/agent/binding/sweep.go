package binding

import (
	"context"
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/metrics"
	"github.com/tandem-gpu/tandem/internal/agent/podsource"
)

// SweeperOptions say what a sweeper compares, and how.
type SweeperOptions struct {
	Binder *Binder
	// Watch knows the pods. Pods lists them while a device is unhealthy, when the sweeper must not miss a container
	// that has just started.
	Watch *podsource.Watch
	Pods  podsource.Reader
	// CheckpointPath is the kubelet's checkpoint.
	CheckpointPath string
	Metrics        *metrics.Agent
	// Every is the time between two rounds.
	Every time.Duration
	// Grace is how long a pod must be missing before its specs go. The kubelet lists its pods one by one while it
	// starts, so a pod that runs may be missing for a moment.
	Grace time.Duration
	// The sweeper calls Unreadable where it cannot use the kubelet's checkpoint.
	Unreadable func()
	Beat       func()
	// Bound receives a signal when the binder has allowed a container to start.
	Bound <-chan struct{}
}

// Sweeper compares the specs on disk with the node's pods, again and again. It removes the specs of pods that are gone,
// restores missing ones, and counts containers that drifted.
//
// A round ends early where nothing can have changed since the last one, except for a full round now and then.
type Sweeper struct {
	SweeperOptions

	checkpoint *allocation.File
	missing    map[string]time.Time
	drifted    map[string]string
	// seen is the state that the last full round saw, at the time full. waiting means that a record is about to expire.
	seen    version
	full    time.Time
	waiting bool
}

const (
	// SweepEvery is the time between two rounds.
	SweepEvery = 10 * time.Second
	// SweepGrace is how old a spec is at least that a round removes.
	SweepGrace = time.Minute
	// sweepTimeout bounds one round.
	sweepTimeout = 30 * time.Second
	// sweepFull is the longest time between two full rounds. A full round finds what causes no event: device files that
	// moved, and records that have expired.
	sweepFull = time.Minute
)

// NewSweeper returns a sweeper.
func NewSweeper(o SweeperOptions) *Sweeper {
	return &Sweeper{SweeperOptions: o, checkpoint: &allocation.File{Path: o.CheckpointPath}, missing: map[string]time.Time{}}
}

// Run makes rounds until ctx ends.
func (s *Sweeper) Run(ctx context.Context) {
	tick := time.NewTicker(s.Every)
	defer tick.Stop()
	for {
		s.Beat()
		if _, err := s.Sweep(ctx, time.Now()); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Cannot compare specs with pods now", "why", err.Error())
		}
		_, changed := s.Binder.Inventory.Snapshot()
		_, told, err := s.Watch.Snapshot()
		if err == nil {
			told = nil // only the first word of the kubelet is worth a round
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-changed:
		case <-told:
		case <-s.Bound:
		}
	}
}

// snapshot is what one round compares.
type snapshot struct {
	pods    map[string]*v1.Pod
	list    []*v1.Pod
	held    []allocation.Holding
	specs   []cdi.Spec
	devices []inventory.Device
	records allocation.Data
	// blind: the kubelet's checkpoint was unreadable, so held is unknown.
	blind bool
	// version identifies the state of this snapshot. The zero value means that the state is unknown.
	version version
}

// version names the sources of a snapshot. Each change replaces the channels.
type version struct {
	pods, devices <-chan struct{}
	checkpoint    allocation.Stamp
	specs         []cdi.Spec
}

func (s version) equal(other version) bool {
	return s.pods != nil && s.pods == other.pods && s.devices == other.devices && s.checkpoint == other.checkpoint &&
		reflect.DeepEqual(s.specs, other.specs)
}

// Sweep makes one round and reports whether it was a full one. A round changes nothing while the kubelet does not list
// its pods.
func (s *Sweeper) Sweep(ctx context.Context, now time.Time) (full bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	v, err := s.look(ctx)
	if err != nil {
		return false, err
	}
	if !s.waiting && now.Sub(s.full) < sweepFull && v.version.equal(s.seen) {
		return false, nil
	}
	s.forget(ctx, v, now)
	s.removeSick(ctx, v)
	s.restore(ctx, v)
	if v.specs, err = s.Binder.Specs.List(); err != nil {
		klog.FromContext(ctx).Error(err, "Some CDI specs are unreadable")
	}
	s.report(ctx, v)
	v.version.specs = v.specs
	s.seen, s.full = v.version, now
	return true, nil
}

func (s *Sweeper) look(ctx context.Context) (*snapshot, error) {
	// Health first: the round then counts a container that started before its device became unhealthy as started.
	devices, devicesChanged := s.Binder.Inventory.Snapshot()
	v := &snapshot{pods: map[string]*v1.Pod{}, devices: devices}
	v.version.devices = devicesChanged
	if err := s.findPods(ctx, v); err != nil {
		return nil, err
	}
	v.records = s.Binder.Records.Snapshot()
	var err error
	if v.held, v.version.checkpoint, err = s.checkpoint.Read(); err != nil {
		v.blind = true
		v.version.pods = nil // the pods may have changed
		s.Unreadable()
		klog.FromContext(ctx).Error(err, "Cannot use the kubelet's checkpoint")
	}
	v.specs, _ = s.Binder.Specs.List() // sweep lists again and reports
	v.version.specs = v.specs
	return v, nil
}

func (s *Sweeper) findPods(ctx context.Context, v *snapshot) error {
	known, changed, err := s.Watch.Snapshot()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(v.devices, func(d inventory.Device) bool { return d.Sick != nil }) {
		if v.list, err = s.Pods.List(ctx); err != nil {
			return err
		}
	} else {
		v.version.pods = changed
		for _, t := range podsource.ByName(known) {
			v.list = append(v.list, t.Pod)
		}
	}
	for _, pod := range v.list {
		v.pods[string(pod.UID)] = pod
	}
	return nil
}

// forget drops specs, grants and names of pods that have been gone for longer than the grace.
func (s *Sweeper) forget(ctx context.Context, v *snapshot, now time.Time) {
	gone := func(uid string) bool {
		if v.pods[uid] != nil {
			delete(s.missing, uid)
			return false
		}
		if _, known := s.missing[uid]; !known {
			s.missing[uid] = now
		}
		return now.Sub(s.missing[uid]) >= s.Grace
	}
	used := map[string]bool{}
	for _, h := range v.held {
		used[h.Name] = true
	}
	for _, spec := range v.specs {
		if !gone(spec.Owner.UID) {
			used[spec.Name] = true
			continue
		}
		if err := s.Binder.Specs.Remove(spec.Name); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot remove the spec of a pod that is gone", "owner", spec.Owner.String())
		}
	}
	dropGrants, dropNames := map[string]bool{}, map[string]bool{}
	for uid := range v.records.Grants {
		dropGrants[uid] = gone(uid)
	}
	s.waiting = len(s.missing) > 0
	for name, n := range v.records.Names {
		dropNames[name] = !v.blind && !used[name] && now.Sub(n.Allocated) >= s.Grace
		s.waiting = s.waiting || !used[name]
	}
	s.drop(ctx, dropGrants, dropNames)
	for uid, since := range s.missing {
		if now.Sub(since) > 2*s.Grace {
			delete(s.missing, uid)
		}
	}
}

func (s *Sweeper) drop(ctx context.Context, grants, names map[string]bool) {
	if !anyTrue(grants) && !anyTrue(names) {
		return
	}
	err := s.Binder.Records.Update(func(d *allocation.Data) {
		for uid, yes := range grants {
			if yes {
				delete(d.Grants, uid)
			}
		}
		for name, yes := range names {
			if yes {
				delete(d.Names, name)
			}
		}
	})
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot forget pods that are gone")
	}
}

func anyTrue(m map[string]bool) bool {
	for _, yes := range m {
		if yes {
			return true
		}
	}
	return false
}

// removeSick removes the specs of containers that have not started yet on a device that takes no work.
func (s *Sweeper) removeSick(ctx context.Context, v *snapshot) {
	for _, spec := range v.specs {
		pod := v.pods[spec.Owner.UID]
		if pod == nil || started(pod, spec.Owner.Container) {
			continue
		}
		g, ok := v.records.Grants[spec.Owner.UID]
		if !ok || !onSickDevice(pod, g, spec.Owner.Container, v.devices) {
			continue
		}
		klog.FromContext(ctx).Info("Removing the spec of a container that has not started: its device takes no work", "owner", spec.Owner.String())
		if err := s.Binder.Specs.Remove(spec.Name); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot remove a spec", "owner", spec.Owner.String())
		}
	}
}

// restore writes the specs of containers again that have started once and whose file is missing: the folder does not
// survive a reboot. Containers that have not started get theirs in PreStartContainer.
func (s *Sweeper) restore(ctx context.Context, v *snapshot) {
	have := map[string]bool{}
	for _, spec := range v.specs {
		have[spec.Name] = true
	}
	for _, h := range v.held {
		pod := v.pods[h.UID]
		g, granted := v.records.Grants[h.UID]
		if pod == nil || podsource.Over(pod) || !granted || h.Name == "" || have[h.Name] || !started(pod, h.Container) ||
			onSickDevice(pod, g, h.Container, v.devices) {
			continue
		}
		a, err := allocation.AssignmentOf(pod, g)
		if err == nil {
			err = s.Binder.write(allocation.WithAssignment(pod, g), a, []allocation.Holding{h})
		}
		if err != nil {
			klog.FromContext(ctx).Error(err, "Cannot restore a spec", "pod", klog.KObj(pod), "container", h.Container)
		}
	}
}

// started reports whether a container of the pod has run.
func started(pod *v1.Pod, container string) bool {
	for _, list := range [][]v1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, c := range list {
			if c.Name == container {
				return c.State.Running != nil || c.State.Terminated != nil || c.RestartCount > 0
			}
		}
	}
	return false
}

func onSickDevice(pod *v1.Pod, g allocation.Grant, container string, devices []inventory.Device) bool {
	a, err := allocation.AssignmentOf(pod, g)
	if err != nil {
		return false
	}
	c := containerOf(a, container)
	if c == nil {
		return false
	}
	for _, id := range c.Devices {
		if d := inventory.Find(devices, string(id)); d == nil || d.Sick != nil {
			return true
		}
	}
	return false
}

// report sets the gauges and logs each drift once.
func (s *Sweeper) report(ctx context.Context, v *snapshot) {
	found := drift(v.specs, v.held, v.pods, v.devices, s.Binder.Renderer)
	s.Metrics.SetDrift(len(found))
	s.Metrics.SetSpecs(len(v.specs))
	now := map[string]string{}
	for _, f := range found {
		now[f.Name] = f.Why
		if s.drifted[f.Name] != f.Why {
			klog.FromContext(ctx).Error(nil, "A container differs from its assignment", "owner", f.Owner.String(), "cdiName", f.Name, "why", f.Why)
		}
	}
	s.drifted = now
	s.reportSlots(v)
}

// reportSlots reports the devices as they are now: one that is gone since the round began has no figures any more.
func (s *Sweeper) reportSlots(v *snapshot) {
	healthy := 0
	list, _ := s.Binder.Inventory.Snapshot()
	devices, err := ledgerDevices(list)
	if err != nil {
		return
	}
	ledger, _, err := s.Binder.ledger(devices, v.list, "")
	if err != nil {
		return
	}
	for i := range list {
		d := &list[i]
		held := 0
		if at := ledger.Index(devices[i].ID); at >= 0 {
			held = int(ledger.Used(at).Slots)
		}
		if d.Sick != nil {
			s.Metrics.SetSlots(d.ID, 0, held, d.Slots-held)
			continue
		}
		healthy++
		s.Metrics.SetSlots(d.ID, d.Slots-held, held, 0)
	}
	s.Metrics.SetDevices(healthy, len(list)-healthy)
}
