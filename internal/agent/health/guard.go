package health

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/loop"
	"github.com/tandem-gpu/tandem/internal/agent/metrics"
	"github.com/tandem-gpu/tandem/internal/agent/sharing"
)

// guard looks after one device: it collects the answers of driver, control plane and data plane, lets the condition
// decide, and carries the decision out.
type guard struct {
	keeper *Keeper
	id     string
	// stop ends the guard's loop; nil before it started. Only the keeper's loop touches it.
	stop context.CancelFunc

	// Only the loop uses the fields below.
	driver  loop.Question[driverSays]
	clients map[int]bool
	looked  time.Duration
	// told is the number of clients in the GPUNode's last write for it, announced the time of that.
	told      int
	announced time.Duration
	// ran: the daemon has answered before. ensured is what the last failed start said.
	ran     bool
	ensured string

	mu        sync.Mutex
	condition condition
}

type driverSays struct {
	sick  *inventory.Sickness
	wants Recovery
}

const (
	// lookTimeout bounds one look at the control plane, probeMargin what a probe may take beyond its own deadline.
	lookTimeout = 20 * time.Second
	probeMargin = 5 * time.Second
	// ensureTimeout bounds one attempt to start or adopt MPS of a device, replaceTimeout one to replace it, and
	// drainTimeout one to end its clients.
	ensureTimeout  = 30 * time.Second
	replaceTimeout = time.Minute
	drainTimeout   = 20 * time.Second
	// restEvery is the number of driver checks for each check of the control plane of a healthy device: an answer of
	// the control plane costs the start of a process or more. With 8 devices at the default interval that is 8 × 2
	// starts / 15 s.
	restEvery = 3
)

// run looks after the device until ctx ends.
func (g *guard) run(ctx context.Context) {
	for ctx.Err() == nil {
		next := g.keeper.Timing.Look
		if g.turn(ctx) {
			next = min(next, time.Second) // see soon what the action brought
		}
		loop.Pause(ctx, next)
	}
}

// turn makes one look and does what follows from it.
func (g *guard) turn(ctx context.Context) bool {
	devices, _ := g.keeper.Inventory.Snapshot()
	d := inventory.Find(devices, g.id)
	if d == nil {
		return false
	}
	l := g.lookAt(ctx, d)
	if ctx.Err() != nil {
		return false // ctx cut the look short
	}
	switch act := g.observe(ctx, observation{Look: &l}); act {
	case actionStart:
		g.startSharing(ctx, d)
	case actionDrain:
		g.drain(ctx, d)
	case actionReplace:
		g.replace(ctx, d)
	case actionNone:
		return false
	}
	return true
}

// examine queries the driver alone.
func (g *guard) examine(ctx context.Context) {
	says := g.askDriver(ctx)
	g.observe(ctx, observation{Look: &look{Driver: says.sick, Recovery: says.wants, Alone: g.keeper.alone(g.id)}})
}

func (g *guard) lookAt(ctx context.Context, d *inventory.Device) look {
	says := g.askDriver(ctx)
	l := look{Driver: says.sick, Recovery: says.wants, Alone: g.keeper.alone(g.id)}
	g.mu.Lock()
	c := g.condition
	g.mu.Unlock()
	if lost(c.driver) && !lost(says.sick) {
		g.keeper.rescanSoon() // it may have come back under another index
		g.keeper.watchAgain()
	}
	now := g.keeper.now()
	if !d.Shared() || c.resting() && now-g.looked < restEvery*g.keeper.Timing.Look-g.keeper.Timing.Look/2 {
		return l
	}
	g.looked = now
	left := g.lookAtControl(ctx, d, &l)
	l.Full = d.Contexts > 0 && l.Clients >= d.Contexts
	if l.Control == controlWell && !l.Full && !l.Alone && c.probeDue(g.rules(d), left, now) {
		g.probe(ctx, d, &l)
	}
	return l
}

// askDriver queries the driver about the device. Without an answer the device is unhealthy.
func (g *guard) askDriver(ctx context.Context) driverSays {
	says, ok := g.driver.Ask(ctx, g.keeper.Timing.Driver, func() driverSays {
		return driverSays{sickness(g.keeper.Driver.Health(g.id)), g.keeper.Driver.Recovery(g.id)}
	})
	if !ok {
		says.sick = &inventory.Sickness{Reason: reasonDriverHangs, Message: fmt.Sprintf("the driver has not answered for %v", g.keeper.Timing.Driver)}
	}
	return says
}

// lookAtControl lists the clients through the control plane, and reports whether one has left since the last look.
func (g *guard) lookAtControl(ctx context.Context, d *inventory.Device, l *look) (left bool) {
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	t, err := g.keeper.Sharing.Look(ctx, d.ID)
	switch {
	case err == nil && t.Fault:
		l.Control, l.ControlWhy = controlFault, fmt.Sprintf("it has %d clients", len(t.Clients))
	case err == nil:
		l.Control = controlWell
	case errors.Is(err, sharing.ErrNoAnswer):
		l.Control, l.ControlWhy = controlNoAnswer, err.Error()
	default:
		l.Control, l.ControlWhy = controlNotRunning, err.Error()
	}
	if err != nil {
		return false
	}
	l.Clients = len(t.Clients)
	have := map[int]bool{}
	for _, pid := range t.Clients {
		have[pid] = true
	}
	for pid := range g.clients {
		left = left || !have[pid]
	}
	g.clients = have
	g.ran, g.ensured = true, ""
	g.count(len(have))
	return left
}

// count records the number of clients, and has it written into the GPUNode if it was not and the last time is long
// enough ago.
func (g *guard) count(n int) {
	now := g.keeper.now()
	announce := n != g.told && now-g.announced >= g.keeper.Timing.Announce
	if announce {
		g.told, g.announced = n, now
	}
	g.keeper.Inventory.SetContexts(g.id, n, announce)
}

// probe tries the data plane.
func (g *guard) probe(ctx context.Context, d *inventory.Device, l *look) {
	ctx, cancel := context.WithTimeout(ctx, g.keeper.Timing.Probe+probeMargin)
	defer cancel()
	began := time.Now()
	err := g.keeper.Sharing.Probe(ctx, d.GPU)
	switch {
	case err == nil:
		l.Canary = canaryWell
	case errors.Is(err, sharing.ErrWedged):
		l.Canary = canaryWedged
	case errors.Is(err, sharing.ErrFault):
		l.Canary = canaryFault
	case errors.Is(err, sharing.ErrUnwatched):
		l.Canary = canaryNoCUDA
	default:
		l.Canary = canaryFailed
	}
	if err != nil {
		l.CanaryWhy = err.Error()
	}
	g.keeper.Metrics.Probed(g.id, time.Since(began), l.Canary.String())
}

func (g *guard) rules(d *inventory.Device) rules {
	t := g.keeper.Timing
	return rules{
		shared: d.Shared(), hold: t.Hold, drain: g.keeper.Drains, drainAfter: t.DrainAfter,
		every: t.Canary, settle: t.Look,
	}
}

// observe lets the condition take an observation in, publishes what came out and returns what to do.
func (g *guard) observe(ctx context.Context, o observation) action {
	devices, _ := g.keeper.Inventory.Snapshot()
	d := inventory.Find(devices, g.id)
	if d == nil {
		return actionNone
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	var do action
	g.condition, do = g.condition.step(o, g.rules(d), g.keeper.now())
	g.show(ctx, d)
	return do
}

// publish shows the present condition again.
func (g *guard) publish(ctx context.Context) {
	devices, _ := g.keeper.Inventory.Snapshot()
	if d := inventory.Find(devices, g.id); d != nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.show(ctx, d)
	}
}

// show publishes the condition. The caller holds the lock, so that the last published condition is the true one.
func (g *guard) show(ctx context.Context, d *inventory.Device) {
	k, log := g.keeper, klog.FromContext(ctx)
	sick, recovering := g.condition.state()
	news := k.Inventory.SetHealth(g.id, sick, recovering)
	switch {
	case !news:
	case sick == nil:
		log.Info("Device takes work", "device", g.id, "index", d.Index)
	case recovering:
		log.Info("Device recovers", "device", g.id, "index", d.Index, "why", sick.Message)
	default:
		log.Error(sick, "Device takes no more work", "device", g.id, "index", d.Index)
	}
	k.Metrics.SetHealth(g.id, g.condition.phase.String())
	why := g.condition.unmonitored(g.rules(d), k.deafness())
	if k.Inventory.SetMonitored(g.id, why) && why != nil {
		log.Info("Device is not monitored", "device", g.id, "index", d.Index, "why", why.Error())
	}
	k.Metrics.SetMonitored(g.id, why == nil)
}

// startSharing starts or adopts MPS.
func (g *guard) startSharing(ctx context.Context, d *inventory.Device) {
	bounded, cancel := context.WithTimeout(ctx, ensureTimeout)
	defer cancel()
	err := g.keeper.Sharing.Ensure(bounded, d.GPU)
	log := klog.FromContext(ctx)
	switch {
	case ctx.Err() != nil:
	case err != nil && g.ensured != err.Error():
		g.ensured = err.Error()
		log.Error(err, "MPS is not up; trying on", "device", d.ID, "index", d.Index)
	case err == nil && g.ran:
		g.keeper.Metrics.Recycled(d.ID, reasonMPSNotRunning)
		log.Info("Started MPS again: the daemon had ended, and the GPU work of its clients with it", "device", d.ID, "index", d.Index)
	}
	g.ran = g.ran && err != nil
}

// drain ends the work of the clients that the last look saw.
func (g *guard) drain(ctx context.Context, d *inventory.Device) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	pids := make([]int, 0, len(g.clients))
	for pid := range g.clients {
		pids = append(pids, pid)
	}
	ended, err := g.keeper.Sharing.EndClients(ctx, d.ID, pids)
	g.keeper.Metrics.ClientsEnded(metrics.CauseDrain, len(ended))
	klog.FromContext(ctx).Info("Ended the clients of a sick device", "device", d.ID, "index", d.Index, "clients", len(pids), "ended", len(ended), "err", err)
}

// replace replaces the daemon and its servers.
func (g *guard) replace(ctx context.Context, d *inventory.Device) {
	bounded, cancel := context.WithTimeout(ctx, replaceTimeout)
	defer cancel()
	g.mu.Lock()
	why := g.condition.why
	g.mu.Unlock()
	err := g.keeper.Sharing.Recycle(bounded, d.GPU)
	if ctx.Err() != nil {
		return
	}
	log := klog.FromContext(ctx)
	if err != nil {
		log.Error(err, "Cannot replace MPS; trying on", "device", d.ID, "index", d.Index)
	} else {
		g.keeper.Metrics.Recycled(d.ID, why.Reason)
		log.Info("Replaced MPS", "device", d.ID, "index", d.Index, "reason", why.Reason)
	}
	g.observe(ctx, observation{Replaced: &err})
}
