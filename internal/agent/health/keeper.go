package health

import (
	"context"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/loop"
	"github.com/tandem-gpu/tandem/internal/agent/metrics"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Keeper watches the devices and keeps sharing up on those that take work. The keeper never stands between the kubelet
// and its slots: the agent still advertises a device whose MPS does not come up, and its containers wait before they
// start.
//
// Each device has a guard of its own, so a device that hangs holds up no other.
type Keeper struct {
	Options
	// alone reports whether a container has a device by itself, outside MPS.
	alone func(id string) bool
	began time.Time

	listing loop.Question[listed]
	// look receives a signal, without waiting, when the driver should list its devices again.
	look chan struct{}

	mu     sync.Mutex
	guards map[string]*guard
	// noEvents is the reason why the driver reports no XID errors, nil where it does.
	noEvents *inventory.Sickness
	// rewatch ends the present watch, so that it starts again with the devices that are there then.
	rewatch context.CancelFunc
}

type listed struct {
	gpus []inventory.GPU
	err  error
}

const (
	// RescanEvery is how often the driver lists its devices. A listing costs a dozen calls for each device, so it is
	// rarer than a look; a device that comes back after a loss starts one at once.
	RescanEvery = 30 * time.Second
	// DriverTimeout is how long one question to the driver may take. Answers take milliseconds; a driver that is busy
	// with a lost device takes seconds.
	DriverTimeout = 10 * time.Second
	// minWatchRetry and maxWatchRetry bound the pause before the keeper watches XID errors again. The keeper misses
	// errors of the meantime, except for their effect on the driver's health.
	minWatchRetry = time.Second
	maxWatchRetry = time.Minute
	// noEventsAfter failures in a row mean that the driver does not report errors.
	noEventsAfter = 3
)

// Options say what a keeper watches, and how.
type Options struct {
	Inventory *inventory.Inventory
	Driver    Driver
	Sharing   Sharing
	// Drains: the keeper ends the clients of an unhealthy device.
	Drains  bool
	Timing  Timing
	Metrics *metrics.Agent
	// The keeper calls Beat in each round of its loop.
	Beat func()
}

// Timing holds the times of a keeper.
type Timing struct {
	// Look is the time between two looks at a device, Canary the one between two probes, and Probe what a probe may take.
	Look, Canary, Probe time.Duration
	// Hold and DrainAfter are those of the configuration.
	Hold, DrainAfter time.Duration
	// Rescan is the time between two lists of the devices, and Announce the least time between two writes of the
	// GPUNode for the number of clients. Driver bounds one question to the driver.
	Rescan, Announce, Driver time.Duration
}

// New returns the keeper of the devices of an inventory.
func New(o Options) *Keeper {
	return &Keeper{
		Options: o, alone: func(string) bool { return false },
		began: time.Now(), look: make(chan struct{}, 1), guards: map[string]*guard{}, rewatch: func() {},
	}
}

// SetAlone sets the function that says whether a container has a device by itself, outside MPS. The caller calls it
// before Run.
func (k *Keeper) SetAlone(alone func(id string) bool) { k.alone = alone }

// now is the time on a clock that never jumps: time.Since reads the monotonic clock.
func (k *Keeper) now() time.Duration { return time.Since(k.began) }

// Run guards the devices until ctx ends. Run stops no MPS daemon: running clients outlive the agent.
func (k *Keeper) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	all.Go(func() { k.watch(ctx) })
	tick := time.NewTicker(k.Timing.Rescan)
	defer tick.Stop()
	for {
		k.Beat()
		devices, _ := k.Inventory.Snapshot()
		for i := range devices {
			k.start(ctx, &all, devices[i].ID)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-k.look:
		}
		k.rescan(ctx)
	}
}

// Examine queries the driver about all devices, once.
func (k *Keeper) Examine(ctx context.Context) {
	devices, _ := k.Inventory.Snapshot()
	var all sync.WaitGroup
	for i := range devices {
		all.Go(func() { k.guard(devices[i].ID).examine(ctx) })
	}
	all.Wait()
}

// start starts the guard of a device that has none at work.
func (k *Keeper) start(ctx context.Context, all *sync.WaitGroup, id string) {
	g := k.guard(id)
	if g.stop != nil {
		return
	}
	ctx, g.stop = context.WithCancel(ctx)
	all.Go(func() { g.run(ctx) })
}

// guard returns the guard of a device, which may be new.
func (k *Keeper) guard(id string) *guard {
	k.mu.Lock()
	defer k.mu.Unlock()
	g := k.guards[id]
	if g == nil {
		g = &guard{keeper: k, id: id}
		k.guards[id] = g
	}
	return g
}

// rescanSoon has the driver list its devices before the next regular time.
func (k *Keeper) rescanSoon() {
	select {
	case k.look <- struct{}{}:
	default:
	}
}

// rescan follows devices that came, went or moved to another index.
func (k *Keeper) rescan(ctx context.Context) {
	log := klog.FromContext(ctx)
	answer, ok := k.listing.Ask(ctx, k.Timing.Driver, func() listed {
		gpus, err := k.Driver.GPUs()
		return listed{gpus, err}
	})
	if !ok || answer.err != nil {
		log.V(2).Info("Cannot list the devices now", "why", answer.err, "answered", ok)
		return
	}
	added, removed := k.Inventory.Rescan(answer.gpus)
	for _, g := range removed {
		log.Info("Device is gone: its GPU is divided otherwise now", "device", g.ID, "index", g.Index)
		k.dismiss(ctx, g)
	}
	for _, g := range added {
		log.Info("Found a device", "device", g.ID, "index", g.Index, "model", g.Model)
		k.guard(g.ID).examine(ctx)
	}
	if len(added)+len(removed) > 0 {
		k.watchAgain()
	}
}

// dismiss ends the guard of a device that is gone for good, and what served it.
func (k *Keeper) dismiss(ctx context.Context, g inventory.GPU) {
	k.mu.Lock()
	guard := k.guards[g.ID]
	delete(k.guards, g.ID)
	k.mu.Unlock()
	if guard != nil && guard.stop != nil {
		guard.stop()
	}
	k.Metrics.ForgetDevice(g.ID)
	if err := k.Sharing.Stop(ctx, g.ID); err != nil {
		klog.FromContext(ctx).Error(err, "Cannot stop MPS of a device that is gone", "device", g.ID)
	}
}

// watch reports XID errors until ctx ends. The driver's watch ends with an error at each loss of a device, so watch
// starts it again, later and later where that does not help.
func (k *Keeper) watch(ctx context.Context) {
	wait, failures := time.Duration(0), 0
	for ctx.Err() == nil {
		watching, cancel := context.WithCancel(ctx)
		k.mu.Lock()
		k.rewatch = cancel
		k.mu.Unlock()
		began := k.now()
		accepted := time.AfterFunc(minWatchRetry, func() { k.setNoEvents(ctx, nil) })
		err := k.Driver.Watch(watching, func(x XID) { k.onXID(ctx, x) })
		cancel()
		if err == nil {
			continue // the devices changed, or ctx ended
		}
		if !accepted.Stop() {
			failures = 0
		}
		if failures++; failures >= noEventsAfter {
			k.setNoEvents(ctx, &inventory.Sickness{Reason: v1alpha1.MonitoredNoEvents, Message: "the driver reports no XID errors: " + err.Error()})
		}
		wait = min(max(2*wait, minWatchRetry), maxWatchRetry)
		if k.now()-began > maxWatchRetry {
			wait = minWatchRetry
		}
		klog.FromContext(ctx).V(2).Info("Watching XID errors ended, trying again", "why", err.Error(), "retryIn", wait)
		k.rescanSoon()
		loop.Pause(ctx, wait)
	}
}

// watchAgain restarts the watch, for the devices that are there now.
func (k *Keeper) watchAgain() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rewatch()
}

// setNoEvents records whether the driver reports XID errors.
func (k *Keeper) setNoEvents(ctx context.Context, why *inventory.Sickness) {
	k.mu.Lock()
	news := !inventory.EqualSickness(k.noEvents, why)
	k.noEvents = why
	guards := make([]*guard, 0, len(k.guards))
	for _, g := range k.guards {
		guards = append(guards, g)
	}
	k.mu.Unlock()
	if !news {
		return
	}
	klog.FromContext(ctx).Info("Hearing of XID errors changed", "why", why)
	for _, g := range guards {
		g.publish(ctx)
	}
}

func (k *Keeper) deafness() *inventory.Sickness {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.noEvents
}

// onXID takes one error in. An error costs microseconds, so that a storm of them delays nothing. It writes nothing
// where the device is unhealthy for that reason already.
func (k *Keeper) onXID(ctx context.Context, x XID) {
	devices, _ := k.Inventory.Snapshot()
	for i := range devices {
		if d := &devices[i]; d.ID == x.Device || d.Parent == x.Device {
			k.Metrics.XID(d.ID, x.Class.String(), 1+x.More)
			klog.FromContext(ctx).V(2).Info("The driver logged an XID error", "device", d.ID, "index", d.Index, "xid", x.Number, "class", x.Label)
			k.guard(d.ID).observe(ctx, observation{XID: &x})
		}
	}
}
