package termination

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/loop"
	"github.com/tandem-gpu/tandem/internal/agent/metrics"
	"github.com/tandem-gpu/tandem/internal/agent/podsource"
	"github.com/tandem-gpu/tandem/internal/agent/resident"
	"github.com/tandem-gpu/tandem/internal/agent/sharing"
)

// Sharing ends clients of MPS.
type Sharing interface {
	// Look lists the clients.
	Look(ctx context.Context, id string) (sharing.Tenancy, error)
	// EndClients ends the GPU work of those of the processes that are clients of the device now, and returns them.
	EndClients(ctx context.Context, id string, pids []int) (ended []int, err error)
}

// Pods knows the pods of the node that request vGPUs.
type Pods interface {
	// Snapshot returns the pods by UID and a channel that is closed at the next change. With an error it returns the
	// last known pods.
	Snapshot() (map[types.UID]*podsource.Tenant, <-chan struct{}, error)
}

// Options say whose work a terminator ends, and when.
type Options struct {
	Inventory   *inventory.Inventory
	Records     *allocation.Records
	Pods        Pods
	Sharing     Sharing
	Attribution *resident.Attribution
	Metrics     *metrics.Agent
	Beat        func()
	// Margin is the time between the end of the clients and the SIGKILL.
	Margin time.Duration
}

// New returns a terminator.
func New(o Options) *Terminator {
	return &Terminator{Options: o, rounds: map[string]*round{}, ended: make(chan string)}
}

// Terminator ends the GPU work of terminating pods before the kubelet's SIGKILL. A SIGKILL to an MPS client with a
// queue of work is a fatal fault of its server, which breaks every program of the device (seen on an H100 with driver
// 580.159). Users report that it can also block every later program (not seen).
//
// The terminator waits until shortly before the SIGKILL, since programs use their grace to save their state. A pod
// terminates when a client deletes it or when the kubelet ends it by itself (eviction, shutdown of the node, deadline
// of the pod). The kubelet shows either in its Pods API before it begins (SyncTerminatingPod of Kubernetes 1.37; read,
// not measured). A SIGKILL to a container of a running pod has no warning: its liveness probe fails or it runs out of
// memory. The canary then finds a broken server. Static pods hold no shares, since no scheduler places them.
type Terminator struct {
	Options

	// rounds by device; only the loop touches them.
	rounds map[string]*round
	// ended receives the device at the end of each round.
	ended chan string
}

// round is one attempt to end the clients of terminating pods on a device.
type round struct {
	busy bool
	next time.Time
}

const (
	// endAgain is the pause between two rounds: a pod may start clients until the SIGKILL. Each round costs the start
	// of a process or two.
	endAgain = time.Second
	// endLate is how long after the SIGKILL a pod that still is there counts as stuck, and endStuck the pause between
	// two rounds for it.
	endLate  = 10 * time.Second
	endStuck = 10 * time.Second
	// endTimeout bounds one round.
	endTimeout = 20 * time.Second
)

// Run ends clients until ctx ends.
func (t *Terminator) Run(ctx context.Context) {
	for {
		t.Beat()
		pods, changed, _ := t.Pods.Snapshot()
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
func (t *Terminator) turn(ctx context.Context, pods map[types.UID]*podsource.Tenant, now time.Time) time.Duration {
	due, next := t.due(pods, now)
	devices, _ := t.Inventory.Snapshot()
	grants := t.Records.Snapshot().Grants
	byDevice := map[string]map[types.UID]*podsource.Tenant{}
	for _, r := range resident.List(due, grants, devices) {
		if !r.Shared {
			continue
		}
		if byDevice[r.DeviceID] == nil {
			byDevice[r.DeviceID] = map[types.UID]*podsource.Tenant{}
		}
		byDevice[r.DeviceID][r.UID] = due[r.UID]
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

// due returns the pods whose clients have to end now, and the time until the next one is due.
func (t *Terminator) due(pods map[types.UID]*podsource.Tenant, now time.Time) (map[types.UID]*podsource.Tenant, time.Duration) {
	due, next := map[types.UID]*podsource.Tenant{}, loop.BeatEvery
	for uid, p := range pods {
		if p.Kill.IsZero() {
			continue
		}
		if wait := p.Kill.Add(-t.Margin).Sub(now); wait > 0 {
			next = min(next, wait)
			continue
		}
		due[uid] = p
	}
	return due, next
}

// pauseFor is the pause after a round for these pods.
func pauseFor(leaving map[types.UID]*podsource.Tenant, now time.Time) time.Duration {
	for _, p := range leaving {
		if now.Before(p.Kill.Add(endLate)) {
			return endAgain
		}
	}
	return endStuck
}

// end makes one round for the pods that leave a device.
func (t *Terminator) end(ctx context.Context, id string, leaving map[types.UID]*podsource.Tenant) {
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
		t.Metrics.ClientsEnded(metrics.CauseTermination, len(ended))
		log.V(2).Info("Ended the clients of terminating pods", "device", id, "pods", len(leaving), "pids", ended)
	}
	if err != nil && ctx.Err() == nil {
		t.Metrics.EndFailed()
		log.Error(err, "Cannot end the clients of terminating pods; trying on", "device", id, "pods", len(leaving), "pids", pids)
	}
}

// endClients ends the clients of the pods on one device. A device without a daemon has none.
func (t *Terminator) endClients(ctx context.Context, id string, leaving map[types.UID]*podsource.Tenant) (pids, ended []int, err error) {
	tenancy, err := t.Sharing.Look(ctx, id)
	if errors.Is(err, sharing.ErrNotRunning) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	for _, pid := range tenancy.Clients {
		if _, theirs := t.Attribution.Owner(pid, leaving); theirs {
			pids = append(pids, pid)
		}
	}
	t.Attribution.Forget()
	if len(pids) == 0 {
		return nil, nil, nil
	}
	ended, err = t.Sharing.EndClients(ctx, id, pids)
	return pids, ended, err
}
