package deviceplugin

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/metrics"
)

// terminator ends the GPU work of terminating pods before the kubelet kills their processes: a client of MPS that is
// killed with a queue of work is a fatal fault of its server, which breaks every program of the device (seen on an H100
// with driver 580.159), or blocks every later one (reported by users, not seen).
//
// It waits until shortly before the kill, since programs use their grace to save what they have. A pod terminates when it
// is deleted or when the kubelet ends it by itself (eviction, shutdown of the node, deadline of the pod): the kubelet
// tells its Pods API either before it begins (SyncTerminatingPod of Kubernetes 1.37; read, not measured). It cannot
// foresee a kill without a pod that terminates: of a container whose liveness probe fails or that runs out of memory;
// the canary finds out about those. Static pods hold no shares, since no scheduler places them.
type terminator struct {
	inventory   *inventory
	records     *records
	pods        *podWatch
	sharing     Sharing
	attribution *attribution
	metrics     *metrics.Agent
	beat        func()
	// margin is how long before the kill clients are ended.
	margin time.Duration

	// rounds by device; only the loop touches them.
	rounds map[string]*round
	// ended is sent to when a round has ended, with its device.
	ended chan string
}

// round is one attempt to end the clients of terminating pods on a device.
type round struct {
	busy bool
	next time.Time
}

const (
	// endAgain is the pause between two rounds: a pod may start clients until it is killed. Each round costs the start of
	// a process or two.
	endAgain = time.Second
	// endLate is how long after the kill a pod that still is there counts as stuck, and endStuck the pause between two
	// rounds for it.
	endLate  = 10 * time.Second
	endStuck = 10 * time.Second
	// endTimeout bounds one round.
	endTimeout = 20 * time.Second
)

// terminator returns the loops that end the GPU work of terminating pods.
func (a *Agent) terminator() []func(context.Context) {
	return []func(context.Context){a.newTerminator().run}
}

func (a *Agent) newTerminator() *terminator {
	return &terminator{
		inventory: a.inventory, records: a.binder.records, pods: a.podWatch, sharing: a.options.Sharing,
		attribution: a.attribution, metrics: a.metrics, beat: a.pulse.of("termination"),
		margin: a.options.Config.Termination.margin(), rounds: map[string]*round{}, ended: make(chan string),
	}
}

// run ends clients until ctx ends.
func (t *terminator) run(ctx context.Context) {
	for {
		t.beat()
		pods, changed, _ := t.pods.snapshot()
		timer := time.NewTimer(t.turn(ctx, pods, time.Now()))
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-changed:
		case <-timer.C:
		case id := <-t.ended:
			t.rounds[id].busy = false
		}
		timer.Stop()
	}
}

// turn starts the rounds that are due and returns when to look again.
func (t *terminator) turn(ctx context.Context, pods map[types.UID]*tenant, now time.Time) time.Duration {
	due, next := t.due(pods, now)
	devices, _ := t.inventory.snapshot()
	grants := t.records.snapshot().Grants
	byDevice := map[string]map[types.UID]*tenant{}
	for _, r := range residents(due, grants, devices) {
		if !r.shared {
			continue
		}
		if byDevice[r.deviceID] == nil {
			byDevice[r.deviceID] = map[types.UID]*tenant{}
		}
		byDevice[r.deviceID][r.uid] = due[r.uid]
	}
	for id, leaving := range byDevice {
		r := t.rounds[id]
		if r == nil {
			r = &round{}
			t.rounds[id] = r
		}
		if r.busy {
			continue // its end wakes the loop
		}
		if wait := r.next.Sub(now); wait > 0 {
			next = min(next, wait)
			continue
		}
		r.busy, r.next = true, now.Add(pauseFor(leaving, now))
		go t.end(ctx, id, leaving)
	}
	return next
}

// due returns the pods whose clients have to be ended now, and how long there is nothing to do for the others.
func (t *terminator) due(pods map[types.UID]*tenant, now time.Time) (map[types.UID]*tenant, time.Duration) {
	due, next := map[types.UID]*tenant{}, beatEvery
	for uid, p := range pods {
		if p.kill.IsZero() {
			continue
		}
		if wait := p.kill.Add(-t.margin).Sub(now); wait > 0 {
			next = min(next, wait)
			continue
		}
		due[uid] = p
	}
	return due, next
}

// pauseFor is the pause after a round for these pods.
func pauseFor(leaving map[types.UID]*tenant, now time.Time) time.Duration {
	for _, p := range leaving {
		if now.Before(p.kill.Add(endLate)) {
			return endAgain
		}
	}
	return endStuck
}

// end makes one round for the pods that leave a device.
func (t *terminator) end(ctx context.Context, id string, leaving map[types.UID]*tenant) {
	defer func() {
		select {
		case t.ended <- id:
		case <-ctx.Done():
		}
	}()
	bounded, cancel := context.WithTimeout(ctx, endTimeout)
	defer cancel()
	log := klog.FromContext(ctx)
	pids, ended, err := t.endClients(bounded, id, leaving)
	if len(ended) > 0 {
		t.metrics.ClientsEnded(metrics.CauseTermination, len(ended))
		log.V(2).Info("Ended the clients of terminating pods", "device", id, "pods", len(leaving), "pids", ended)
	}
	if err != nil && ctx.Err() == nil {
		t.metrics.EndFailed()
		log.Error(err, "Cannot end the clients of terminating pods; trying on", "device", id, "pods", len(leaving), "pids", pids)
	}
}

// endClients ends the clients of the pods on one device. A device without a daemon has none.
func (t *terminator) endClients(ctx context.Context, id string, leaving map[types.UID]*tenant) (pids, ended []int, err error) {
	tenancy, err := t.sharing.Look(ctx, id)
	if errors.Is(err, errNotRunning) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, pid := range tenancy.Clients {
		if _, theirs := t.attribution.owner(pid, leaving); theirs {
			pids = append(pids, pid)
		}
	}
	t.attribution.forget()
	if len(pids) == 0 {
		return nil, nil, nil
	}
	ended, err = t.sharing.EndClients(ctx, id, pids)
	return pids, ended, err
}

// Reasons of pods that the kubelet ends by itself, without a deletion. Source: pkg/kubelet/eviction of Kubernetes 1.37,
// read, not measured.
const reasonEvicted = "Evicted"

// leave notes when the kubelet kills what is left of the pod. Before is what was known of it, nil for nothing; live says
// that the change was told as it happened.
//
// The kubelet counts the grace from the moment when it learns of the deletion, which is when it tells the agent. The
// deletion timestamp is by the clock of the API server, so it counts only where the agent was not told at once: a clock
// that is ahead must not take the grace from a program that saves its work.
func (t *tenant) leave(before *tenant, live bool, now time.Time) {
	grace, leaves := t.grace()
	if !leaves {
		return
	}
	if before != nil && !before.kill.IsZero() {
		t.kill = before.kill
		if had, _ := before.grace(); grace < had && now.Add(grace).Before(t.kill) {
			t.kill = now.Add(grace) // deleted once more, with less grace
		}
		return
	}
	if deleted := t.pod.DeletionTimestamp; deleted != nil && !live {
		grace = min(grace, max(0, deleted.Sub(now)))
	}
	t.kill = now.Add(grace)
}

// grace is how long the containers of a pod may still run, false for a pod that may go on. The timestamp of a deletion
// is in its grace already. A pod that the kubelet evicts has a second in most cases, which is no time to wait; other pods
// that it ends by itself have the grace of their spec, or less where a node shuts down.
func (t *tenant) grace() (time.Duration, bool) {
	const unit = time.Second
	p := t.pod
	switch {
	case p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil:
		return time.Duration(*p.DeletionGracePeriodSeconds) * unit, true
	case p.DeletionTimestamp != nil:
		return 0, true
	case !over(p) || !running(p):
		return 0, false
	case p.Status.Reason == reasonEvicted || p.Spec.TerminationGracePeriodSeconds == nil:
		return 0, true
	}
	return time.Duration(*p.Spec.TerminationGracePeriodSeconds) * unit, true
}
