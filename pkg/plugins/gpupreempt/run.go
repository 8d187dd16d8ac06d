package gpupreempt

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/admission"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/reservation"
)

// step is the time between two looks at rooms and retries. Shorter is more exact and costs a walk over the rooms.
const step = time.Second

// Run looks at rooms and retries until ctx ends.
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

// Tick is one step of Run: it ends preemptions that failed, and activates preemptors whose victims are gone or whose
// time has come.
func (p *Plugin) Tick(ctx context.Context) {
	var rooms []reservation.PodRef
	p.machine.Lock(func(l machine.Locked) { rooms = l.State.PodRooms() })
	for _, ref := range rooms {
		p.machine.Step(func(l machine.Locked) reservation.Event { return p.ticked(l, ref) })
	}
	p.machine.Step(func(machine.Locked) reservation.Event { return reservation.SecondPassed{} })
	p.machine.Flush(ctx)
	p.notes.expire(p.now())
}

// ticked returns the event of a step of Run for a pod with a pending preemption.
func (p *Plugin) ticked(l machine.Locked, ref reservation.PodRef) reservation.Event {
	pod := p.machine.Seen(ref.UID, ref.Pod)
	switch {
	case pod == nil || pod.DeletionTimestamp != nil:
		return reservation.PodEnded{UID: ref.UID, Gone: true}
	case pod.Spec.NodeName != "":
		return reservation.PodEnded{UID: ref.UID}
	}
	e := reservation.PodTicked{UID: ref.UID}
	if _, room := l.State.PodRoom(ref.UID); room != nil {
		e.NodeStands = p.nodeStands(pod, room.Place.Node)
		for _, v := range room.Victims {
			if p.machine.Seen(v.UID, v.Pod) != nil {
				e.There = append(e.There, v.UID)
			}
		}
	}
	return e
}

// nodeStands reports whether a node is there and may take a pod, without the in-tree plugins.
func (p *Plugin) nodeStands(pod *v1.Pod, name string) bool {
	node, err := p.handle.SharedInformerFactory().Core().V1().Nodes().Lister().Get(name)
	if err != nil {
		return false
	}
	demand := admission.Of(pod)
	return demand.MetBy(node)
}
