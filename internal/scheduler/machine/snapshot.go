package machine

import (
	"cmp"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// lists is what a *podgroup.Set knows beside Gangs.
type lists interface {
	// Refs returns the gangs that have members.
	Refs() []podgroup.Ref
	// Targets returns the ElasticTargets.
	Targets() []podgroup.Target
}

// SnapshotGang returns the gang of a pod, nil for none.
func (m *Machine) SnapshotGang(pod *v1.Pod) *snapshot.GangName {
	ref, ok := m.GangOf(pod)
	if !ok {
		return nil
	}
	name := nameOf(ref)
	return &name
}

func nameOf(ref podgroup.Ref) snapshot.GangName {
	return snapshot.GangName{Source: string(ref.Source), Namespace: ref.Namespace, Name: ref.Name}
}

// SnapshotGangs returns the gangs and the preemptions under way, sorted. It holds the lock for the time of one gang or preemptor
// only.
func (m *Machine) SnapshotGangs() ([]snapshot.Gang, []snapshot.Preemption) {
	refs := m.refs()
	gangs := make([]snapshot.Gang, 0, len(refs))
	var preemptions []snapshot.Preemption
	for _, ref := range refs {
		var d reservation.GangDump
		var way *snapshot.GivesWay
		m.Lock(func(l Locked) {
			d, _ = l.State.Gang(ref)
			if to, at := l.State.YieldsTo(ref); !at.IsZero() {
				way = &snapshot.GivesWay{Gang: nameOf(to), At: utc(at)}
			}
		})
		gangs = append(gangs, m.snapshotGang(&d))
		gangs[len(gangs)-1].GivesWay = way
		if made := d.Made; made != nil {
			gang := nameOf(ref)
			p := snapshot.Preemption{Gang: &gang, Phase: reservation.Leaving.String(), Until: utc(made.Until), Victims: []snapshot.Place{}}
			for _, uid := range slices.Sorted(maps.Keys(made.Victims)) {
				p.Victims = append(p.Victims, snapshot.Place{Name: snapshot.NameOf(made.Victims[uid].Pod, uid), Node: made.Victims[uid].Node})
			}
			preemptions = append(preemptions, p)
		}
	}
	for _, uid := range m.preemptors() {
		var d reservation.PodDump
		m.Lock(func(l Locked) { d, _ = l.State.Preemptor(uid) })
		if d.Room != nil {
			preemptions = append(preemptions, preemptionOf(&d))
		}
	}
	return gangs, preemptions
}

// SnapshotTargets returns the ElasticTargets, sorted.
func (m *Machine) SnapshotTargets() []snapshot.ElasticTarget {
	listing, ok := m.Gangs().(lists)
	if !ok {
		return nil
	}
	targets := listing.Targets()
	all := make([]snapshot.ElasticTarget, 0, len(targets))
	for _, t := range targets {
		all = append(all, snapshot.ElasticTarget{GangName: nameOf(t.Ref), Workers: t.Workers, Min: t.Min, Max: t.Max, Reason: t.Reason})
	}
	return all
}

// refs returns the gangs that have members or of which the state remembers something, in order.
func (m *Machine) refs() []podgroup.Ref {
	var refs []podgroup.Ref
	m.Lock(func(l Locked) { refs = l.State.Refs() })
	if listing, ok := m.Gangs().(lists); ok {
		refs = append(refs, listing.Refs()...)
	}
	slices.SortFunc(refs, podgroup.Ref.Compare)
	return slices.Compact(refs)
}

func (m *Machine) preemptors() (uids []vgpu.UID) {
	m.Lock(func(l Locked) { uids = l.State.Preemptors() })
	return uids
}

func (m *Machine) snapshotGang(d *reservation.GangDump) snapshot.Gang {
	out := snapshot.Gang{GangName: nameOf(d.Ref), Phase: d.Phase, Need: d.Need, Places: placesOf(d)}
	if gangs := m.Gangs(); gangs != nil {
		pg, err := gangs.Gang(d.Ref)
		if pg != nil {
			out.MinCount, out.Members = pg.MinCount, len(pg.Members)
			out.RequiredTopology, out.PreferredTopology = pg.Required, pg.Preferred
			for _, p := range pg.Members {
				if p.Spec.NodeName != "" {
					out.Bound++
				}
			}
		}
		if problem, is := err.(*podgroup.Problem); is && !problem.Waits { //nolint:errorlint // Gang returns it as it is
			out.Need, out.Message = snapshot.Malformed, problem.Message
			return out
		}
	}
	if d.Missing != nil {
		out.Message = d.Missing.Why
	}
	if r := d.Refused; r != nil {
		out.Reason, out.Message, out.WaitsSince = string(r.Reason), r.Message, utc(r.Since)
	}
	return out
}

// placesOf returns the places of the members of a gang that are not bound, by UID.
func placesOf(d *reservation.GangDump) []snapshot.Place {
	at := map[vgpu.UID]snapshot.Place{}
	add := func(a *vgpu.Assignment) {
		at[a.UID] = snapshot.Place{Name: snapshot.NameOf(a.Pod, a.UID), Node: a.Node}
	}
	if d.Kept != nil {
		for i := range d.Kept.Room.Places {
			add(&d.Kept.Room.Places[i])
		}
	}
	if d.Made != nil {
		for _, p := range d.Made.Places {
			add(&p.Assignment)
		}
	}
	if d.Plan != nil {
		for i := range d.Plan.Places {
			add(&d.Plan.Places[i].Assignment)
		}
	}
	for _, uid := range d.Bound {
		delete(at, uid)
	}
	return slices.SortedFunc(maps.Values(at), func(a, b snapshot.Place) int { return cmp.Compare(a.UID, b.UID) })
}

func preemptionOf(d *reservation.PodDump) snapshot.Preemption {
	name := snapshot.NameOf(d.Pod, d.UID)
	p := snapshot.Preemption{Pod: &name, Phase: d.Phase, Until: utc(d.At), Victims: []snapshot.Place{}}
	for _, v := range d.Room.Victims {
		p.Victims = append(p.Victims, snapshot.Place{Name: snapshot.NameOf(v.Pod, v.UID), Node: d.Room.Place.Node})
	}
	slices.SortFunc(p.Victims, func(a, b snapshot.Place) int { return cmp.Compare(a.UID, b.UID) })
	return p
}

// utc returns a time in whole seconds, zero for zero.
func utc(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Second)
}
