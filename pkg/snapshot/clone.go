package snapshot

import "slices"

// clone returns a copy that shares nothing which Redact changes.
func (s *Snapshot) clone() *Snapshot {
	c := *s
	c.Nodes = each(s.Nodes, func(n *Node) {
		n.Devices, n.Overbooked = slices.Clone(n.Devices), slices.Clone(n.Overbooked)
		n.Pods = each(n.Pods, (*Pod).detach)
		n.Holds = each(n.Holds, func(h *Hold) { h.detach() })
	})
	c.Gangs = each(s.Gangs, func(g *Gang) { g.Places = slices.Clone(g.Places) })
	c.Preemptions = each(s.Preemptions, func(p *Preemption) {
		p.Pod, p.Gang, p.Victims = copied(p.Pod), copied(p.Gang), slices.Clone(p.Victims)
	})
	c.Pending = each(s.Pending, (*Pending).detach)
	c.ElasticTargets = slices.Clone(s.ElasticTargets)
	c.InferenceFleets = each(s.InferenceFleets, func(f *InferenceFleet) { f.Variants = slices.Clone(f.Variants) })
	return &c
}

func (p *Pod) detach() { p.Gang, p.Containers = copied(p.Gang), slices.Clone(p.Containers) }

func (p *Pending) detach() {
	p.Gang, p.Request, p.Refused, p.Gates = copied(p.Gang), copied(p.Request), copied(p.Refused), slices.Clone(p.Gates)
	if p.Request != nil {
		p.Request.Containers = slices.Clone(p.Request.Containers)
	}
	if p.Refused != nil && p.Refused.Nearest != nil {
		p.Refused.Nearest = copied(p.Refused.Nearest)
		p.Refused.Nearest.Beside = slices.Clone(p.Refused.Nearest.Beside)
	}
}

// each returns a copy of a list after a change of each element.
func each[T any](list []T, change func(*T)) []T {
	list = slices.Clone(list)
	for i := range list {
		change(&list[i])
	}
	return list
}

func copied[T any](p *T) *T {
	if p == nil {
		return nil
	}
	c := *p
	return &c
}

// Fill makes the lists that are nil empty, so that no list of the JSON is null. Nodes have theirs from NodeOf.
func (s *Snapshot) Fill() {
	s.Nodes, s.Gangs, s.Preemptions, s.Pending = filled(s.Nodes), filled(s.Gangs), filled(s.Preemptions), filled(s.Pending)
	s.ElasticTargets, s.InferenceFleets = filled(s.ElasticTargets), filled(s.InferenceFleets)
}

func filled[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}
