package deviceplugin

import (
	"context"
	"reflect"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/internal/metrics"
)

// sweeper compares, again and again, what is on disk with the pods that are there: it removes the specs of pods that
// are gone, restores specs that are missing, and counts containers that drifted.
//
// A round in which nothing can have changed since the last one ends early; one of them in a while is made in full.
type sweeper struct {
	binder *binder
	// watch knows the pods; pods asks for them while a device is sick, when a container that has just started must not
	// be missed.
	watch      *podWatch
	pods       podReader
	checkpoint *holdingsFile
	metrics    *metrics.Agent
	every      time.Duration
	// grace is how long a pod must be missing before its specs go. The kubelet lists its pods one by one while it
	// starts, so a pod that runs may be missing for a moment.
	grace      time.Duration
	unreadable func()
	beat       func()
	// bound says that a container was let start.
	bound <-chan struct{}

	missing map[string]time.Time
	drifted map[string]string
	// seen is what the last full round looked at, at the time full. waiting says that something is forgotten soon.
	seen    sight
	full    time.Time
	waiting bool
}

const (
	sweepEvery = 10 * time.Second
	sweepGrace = time.Minute
	// sweepTimeout bounds one round.
	sweepTimeout = 30 * time.Second
	// sweepFull is the longest time between two full rounds. They find what nobody tells of: device files that moved, and
	// records that have had their time.
	sweepFull = time.Minute
)

func (a *Agent) sweeper() *sweeper {
	return &sweeper{
		binder: a.binder, watch: a.podWatch, pods: a.plugin.pods, checkpoint: &holdingsFile{path: a.plugin.checkpoint},
		metrics: a.metrics, every: a.timing.sweep, grace: a.timing.grace, unreadable: a.kubeletUnreadable,
		beat: a.pulse.of("sweep"), bound: a.bound, missing: map[string]time.Time{},
	}
}

func (s *sweeper) run(ctx context.Context) {
	tick := time.NewTicker(s.every)
	defer tick.Stop()
	for {
		s.beat()
		if err := s.sweep(ctx, time.Now()); err != nil && ctx.Err() == nil {
			klog.FromContext(ctx).V(2).Info("Cannot compare specs with pods now", "why", err.Error())
		}
		_, changed := s.binder.inventory.snapshot()
		_, told, err := s.watch.snapshot()
		if err == nil {
			told = nil // only the first word of the kubelet is worth a round
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-changed:
		case <-told:
		case <-s.bound:
		}
	}
}

// scene is what one round looks at.
type scene struct {
	pods    map[string]*v1.Pod
	list    []*v1.Pod
	held    []holding
	specs   []cdi.Spec
	devices []device
	records recordsData
	// blind: the kubelet's checkpoint was unreadable, so held is not known.
	blind bool
	// sight tells this scene from others; the zero value tells nothing.
	sight sight
}

// sight is what a scene was made of. The channels are new ones after each change.
type sight struct {
	pods, devices <-chan struct{}
	checkpoint    stamp
	specs         []cdi.Spec
}

func (s sight) equal(other sight) bool {
	return s.pods != nil && s.pods == other.pods && s.devices == other.devices && s.checkpoint == other.checkpoint &&
		reflect.DeepEqual(s.specs, other.specs)
}

// sweep makes one round. It changes nothing where the kubelet does not tell its pods.
func (s *sweeper) sweep(ctx context.Context, now time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTimeout)
	defer cancel()
	v, err := s.look(ctx)
	if err != nil {
		return err
	}
	if !s.waiting && now.Sub(s.full) < sweepFull && v.sight.equal(s.seen) {
		return nil
	}
	s.forget(ctx, v, now)
	s.removeSick(ctx, v)
	s.restore(ctx, v)
	if v.specs, err = s.binder.specs.List(); err != nil {
		klog.FromContext(ctx).Error(err, "Some CDI specs are unreadable")
	}
	s.report(ctx, v)
	v.sight.specs = v.specs
	s.seen, s.full = v.sight, now
	return nil
}

func (s *sweeper) look(ctx context.Context) (*scene, error) {
	// Health first: a container that started before its device fell ill is then seen as started.
	devices, devicesChanged := s.binder.inventory.snapshot()
	v := &scene{pods: map[string]*v1.Pod{}, devices: devices}
	v.sight.devices = devicesChanged
	if err := s.findPods(ctx, v); err != nil {
		return nil, err
	}
	v.records = s.binder.records.snapshot()
	var err error
	if v.held, v.sight.checkpoint, err = s.checkpoint.read(); err != nil {
		v.blind = true
		v.sight.pods = nil // nothing is known to be the same
		s.unreadable()
		klog.FromContext(ctx).Error(err, "Cannot use the kubelet's checkpoint")
	}
	v.specs, _ = s.binder.specs.List() // sweep lists again and reports
	v.sight.specs = v.specs
	return v, nil
}

func (s *sweeper) findPods(ctx context.Context, v *scene) error {
	known, changed, err := s.watch.snapshot()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(v.devices, func(d device) bool { return d.Sick != nil }) {
		if v.list, err = s.pods.list(ctx); err != nil {
			return err
		}
	} else {
		v.sight.pods = changed
		for _, t := range byName(known) {
			v.list = append(v.list, t.pod)
		}
	}
	for _, pod := range v.list {
		v.pods[string(pod.UID)] = pod
	}
	return nil
}

// forget drops specs, grants and names of pods that are gone for longer than the grace.
func (s *sweeper) forget(ctx context.Context, v *scene, now time.Time) {
	gone := func(uid string) bool {
		if v.pods[uid] != nil {
			delete(s.missing, uid)
			return false
		}
		if _, known := s.missing[uid]; !known {
			s.missing[uid] = now
		}
		return now.Sub(s.missing[uid]) >= s.grace
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
		if err := s.binder.specs.Remove(spec.Name); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot remove the spec of a pod that is gone", "owner", spec.Owner.String())
		}
	}
	dropGrants, dropNames := map[string]bool{}, map[string]bool{}
	for uid := range v.records.Grants {
		dropGrants[uid] = gone(uid)
	}
	s.waiting = len(s.missing) > 0
	for name, n := range v.records.Names {
		dropNames[name] = !v.blind && !used[name] && now.Sub(n.Allocated) >= s.grace
		s.waiting = s.waiting || !used[name]
	}
	s.drop(ctx, dropGrants, dropNames)
	for uid, since := range s.missing {
		if now.Sub(since) > 2*s.grace {
			delete(s.missing, uid)
		}
	}
}

func (s *sweeper) drop(ctx context.Context, grants, names map[string]bool) {
	if !anyTrue(grants) && !anyTrue(names) {
		return
	}
	err := s.binder.records.update(func(d *recordsData) {
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
func (s *sweeper) removeSick(ctx context.Context, v *scene) {
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
		if err := s.binder.specs.Remove(spec.Name); err != nil {
			klog.FromContext(ctx).Error(err, "Cannot remove a spec", "owner", spec.Owner.String())
		}
	}
}

// restore writes the specs of containers again that have started once and whose file is missing: the folder does not
// survive a reboot. Containers that have not started get theirs in PreStartContainer.
func (s *sweeper) restore(ctx context.Context, v *scene) {
	have := map[string]bool{}
	for _, spec := range v.specs {
		have[spec.Name] = true
	}
	for _, h := range v.held {
		pod := v.pods[h.UID]
		g, granted := v.records.Grants[h.UID]
		if pod == nil || over(pod) || !granted || h.Name == "" || have[h.Name] || !started(pod, h.Container) ||
			onSickDevice(pod, g, h.Container, v.devices) {
			continue
		}
		a, err := grantOf(pod, g)
		if err == nil {
			err = s.binder.write(withAssignment(pod, g), a, []holding{h})
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

func onSickDevice(pod *v1.Pod, g grant, container string, devices []device) bool {
	a, err := grantOf(pod, g)
	if err != nil {
		return false
	}
	c := containerOf(a, container)
	if c == nil {
		return false
	}
	for _, id := range c.Devices {
		if d := find(devices, string(id)); d == nil || d.Sick != nil {
			return true
		}
	}
	return false
}

// report sets the gauges and logs each drift once.
func (s *sweeper) report(ctx context.Context, v *scene) {
	found := drift(v.specs, v.held, v.pods, v.devices, s.binder.renderer)
	s.metrics.SetDrift(len(found))
	s.metrics.SetSpecs(len(v.specs))
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

func (s *sweeper) reportSlots(v *scene) {
	healthy := 0
	devices, err := s.binder.devices()
	if err != nil {
		return
	}
	ledger, _, err := s.binder.ledger(devices, v.list, "")
	if err != nil {
		return
	}
	for i := range v.devices {
		d := &v.devices[i]
		held := 0
		if at := ledger.Index(devices[i].ID); at >= 0 {
			held = int(ledger.Used(at).Slots)
		}
		if d.Sick != nil {
			s.metrics.SetSlots(d.ID, 0, held, d.Slots-held)
			continue
		}
		healthy++
		s.metrics.SetSlots(d.ID, d.Slots-held, held, 0)
	}
	s.metrics.SetDevices(healthy, len(v.devices)-healthy)
}
