package gpugang

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/podgroup"
	"github.com/tandem-gpu/tandem/pkg/api/config"
)

// step is the time between two looks at deadlines, drains and retries. Shorter is more exact and costs a walk over the gangs.
const step = time.Second

// Retries of plans that came to nothing, from the first to the longest pause.
const (
	firstPause   = time.Second
	longestPause = time.Minute
)

// backoff returns the pause after so many failures in a row: 1s, 2s, 4s, … at most a minute.
func backoff(failures int) time.Duration {
	pause := firstPause
	for range failures - 1 {
		if pause *= 2; pause >= longestPause {
			return longestPause
		}
	}
	return pause
}

// wakes are the members that are to be tried again. Activating them takes the lock of the scheduler's queue, under which
// PreEnqueue asks for that of the plugin's state: so it waits until that is free.
type wakes struct {
	mu   sync.Mutex
	pods map[string]*v1.Pod
	// stale are nominations that may mean nothing any more, which takes the same lock to find out.
	stale []nomination
}

// wake notes members to be tried again, at the next flush.
func (p *Plugin) wake(pods ...*v1.Pod) {
	p.woken.mu.Lock()
	defer p.woken.mu.Unlock()
	for _, pod := range pods {
		if p.woken.pods == nil {
			p.woken.pods = map[string]*v1.Pod{}
		}
		p.woken.pods[klog.KObj(pod).String()] = pod
	}
}

// flush has the members that were noted tried again. The caller holds no mutex of the plugin, and is not PreEnqueue.
func (p *Plugin) flush(ctx context.Context) {
	p.woken.mu.Lock()
	pods, stale := p.woken.pods, p.woken.stale
	p.woken.pods, p.woken.stale = nil, nil
	p.woken.mu.Unlock()
	for _, n := range stale {
		p.denominateMember(n)
	}
	if len(pods) > 0 {
		p.handle.Activate(klog.FromContext(ctx), pods)
	}
}

// stir notes that a gang is to be tried at the next step. stirAll has all tried that wait for room: some was given up. The
// caller holds the mutex.
func (p *Plugin) stir(ref podgroup.Ref) {
	if g := p.state.gangs[ref]; g != nil && g.retry.IsZero() {
		g.retry = p.now()
	}
}

func (p *Plugin) stirAll() {
	for _, g := range p.state.gangs {
		if g.refusal.ofRoom() && g.retry.IsZero() {
			g.retry = p.now()
		}
	}
}

// Run looks at deadlines, drains and retries until ctx ends.
func (p *Plugin) Run(ctx context.Context) {
	tick := time.NewTicker(step)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			p.Tick(ctx)
		}
	}
}

// Tick is one step of Run: plans whose members did not come in time are ended, gangs that stayed half-bound are released,
// those whose turn it is are tried again.
func (p *Plugin) Tick(ctx context.Context) {
	p.lookAtDoubts()
	var halves []*podgroup.Gang
	for _, ref := range p.state.refs() {
		pg, half := p.look(ref)
		if pg == nil {
			continue
		}
		if half {
			halves = append(halves, pg)
		}
		p.denominateMembers(pg)
	}
	p.flush(ctx)
	for _, pg := range halves {
		p.release(ctx, pg)
	}
}

// lookAtDoubts has the gangs tried that wait for room when room of binds was given up that did not happen.
func (p *Plugin) lookAtDoubts() {
	if p.shares == nil || p.shares() == nil {
		return // a profile without GPUShare
	}
	now := p.shares().Doubts()
	if now < p.doubts {
		p.state.mu.Lock()
		p.stirAll()
		p.state.mu.Unlock()
	}
	p.doubts = now
}

// refs returns the gangs that are remembered, in a fixed order.
func (s *state) refs() []podgroup.Ref {
	s.mu.Lock()
	defer s.mu.Unlock()
	refs := make([]podgroup.Ref, 0, len(s.gangs))
	for ref := range s.gangs {
		refs = append(refs, ref)
	}
	slices.SortFunc(refs, func(a, b podgroup.Ref) int {
		return strings.Compare(string(a.Source)+"/"+a.String(), string(b.Source)+"/"+b.String())
	})
	return refs
}

// look does what is due for one gang, and reports whether it stayed half-bound for too long. It returns the gang, nil where no
// member exists.
func (p *Plugin) look(ref podgroup.Ref) (pg *podgroup.Gang, half bool) {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	pg, problem := p.gangs.Gang(ref)
	if pg == nil || len(pg.Members) == 0 {
		p.end(p.state.gangs[ref])
		return nil, false
	}
	g, now, patience := p.state.group(ref), p.now(), p.args.PlacementDeadline.Duration
	p.prune(g, pg)
	p.settle(g, pg)
	p.sendBack(g, pg)
	p.lookAtRoom(g, pg, now)
	switch {
	case g.letGo.IsZero() && g.planned() && now.Sub(g.made) > patience:
		p.cancel(g, "its members did not come within "+patience.String())
	case !g.letGo.IsZero() && !g.started && now.Sub(g.letGo) > patience:
		return pg, true
	}
	if problem != nil {
		p.tellMissing(g, pg)
		return pg, false
	}
	if p.state.drain == g.Ref && now.Sub(g.drained) > p.args.DrainTimeout.Duration {
		p.outOfTime(g, now)
	}
	p.repair(g, pg, now)
	if p.due(g, now) {
		g.retry = zero
		p.wakeWaiting(pg, g)
	}
	return pg, false
}

// sendBack ends the waiting of members in Permit whose plan was given up before the framework knew that they wait: cancel could
// not reach them. The caller holds the mutex.
func (p *Plugin) sendBack(g *group, pg *podgroup.Gang) {
	for _, m := range pg.Members {
		if !waits(m) || g.reserved[uidOf(m)] {
			continue
		}
		if waiting := p.handle.GetWaitingPod(m.UID); waiting != nil {
			waiting.Reject(Name, g.rejection("its plan was given up meanwhile"))
		}
	}
}

// repair has the members tried again whose pause after a failure is over. The caller holds the mutex.
func (p *Plugin) repair(g *group, pg *podgroup.Gang, now time.Time) {
	for _, m := range pg.Members {
		if r := g.repairs[uidOf(m)]; !r.at.IsZero() && !now.Before(r.at) {
			r.at = zero
			g.repairs[uidOf(m)] = r
			p.wake(m)
		}
	}
}

// due reports whether a gang is to be tried again without anything having changed: after a failure, and when the time has
// come to keep room for it.
func (p *Plugin) due(g *group, now time.Time) bool {
	if !g.retry.IsZero() {
		return !now.Before(g.retry)
	}
	if !g.uncap.IsZero() && !now.Before(g.uncap) {
		g.uncap = zero
		return true
	}
	if g.askAgain && !now.Before(g.ask) {
		g.askAgain = false
		return !g.planned()
	}
	if p.args.Drain == config.DrainDisabled || !g.seeksRoom(now) || p.state.head(now) != g {
		return false
	}
	if g.woken.IsZero() {
		g.woken = now
	} else if now.Sub(g.woken) >= lookAgain { // it cannot be tried: others have their turn
		g.look, g.woken = now.Add(max(lookAgain, now.Sub(g.short)/passes)), zero
		return false
	}
	return true
}

// lookAgain is the shortest pause between two looks whether room should be kept for a gang. Shorter lets drains begin sooner, and
// costs a plan each. passes is how many more gangs have a turn, for each time that one that cannot be tried has waited.
const (
	lookAgain = 15 * time.Second
	passes    = 16
)
