package snapshot

import (
	"cmp"
	"fmt"
	"slices"
)

// Check returns an error that names the first broken field and what is legal there, nil where the snapshot is sound: the lists
// are sorted by their keys, words are legal, and the shares fit on the devices.
func (s *Snapshot) Check() error {
	if sources := []string{FromScheduler, FromSimulator}; !slices.Contains(sources, s.Source) {
		return fmt.Errorf("source: %q, legal are %v", s.Source, sources)
	}
	if s.PendingLeftOut < 0 {
		return fmt.Errorf("pendingLeftOut: %d, legal is 0 or more", s.PendingLeftOut)
	}
	for _, err := range []error{
		sorted("nodes", s.Nodes, func(a, b *Node) int { return cmp.Compare(a.Name, b.Name) }),
		sorted("gangs", s.Gangs, func(a, b *Gang) int { return a.Compare(b.GangName) }),
		sorted("preemptions", s.Preemptions, func(a, b *Preemption) int { return a.compare(b) }),
		sorted("pending", s.Pending, func(a, b *Pending) int { return cmp.Compare(a.UID, b.UID) }),
		sorted("elasticTargets", s.ElasticTargets, func(a, b *ElasticTarget) int { return a.Compare(b.GangName) }),
		sorted("inferenceFleets", s.InferenceFleets, func(a, b *InferenceFleet) int { return a.compare(b) }),
	} {
		if err != nil {
			return err
		}
	}
	for i := range s.Nodes {
		if err := s.Nodes[i].check(); err != nil {
			return fmt.Errorf("nodes[%d].%w", i, err)
		}
	}
	for i := range s.Pending {
		if err := s.Pending[i].check(); err != nil {
			return fmt.Errorf("pending[%d].%w", i, err)
		}
	}
	for i := range s.Preemptions {
		if p := &s.Preemptions[i]; (p.Pod == nil) == (p.Gang == nil) {
			return fmt.Errorf("preemptions[%d]: legal is either pod or gang", i)
		}
	}
	_, err := s.Cluster()
	return err
}

// check checks what the ledger does not.
func (n *Node) check() error {
	if err := sorted("pods", n.Pods, func(a, b *Pod) int { return cmp.Compare(a.UID, b.UID) }); err != nil {
		return err
	}
	if err := sorted("holds", n.Holds, func(a, b *Hold) int { return cmp.Compare(a.UID, b.UID) }); err != nil {
		return err
	}
	if err := sorted("overbooked", n.Overbooked, func(a, b *Overbooked) int { return cmp.Compare(a.UID, b.UID) }); err != nil {
		return err
	}
	for i := range n.Pods {
		if e := n.Pods[i].Ends; e != nil {
			if err := e.check(); err != nil {
				return fmt.Errorf("pods[%d].ends.%w", i, err)
			}
		}
	}
	return sorted("devices", n.Devices, func(a, b *Device) int {
		return cmp.Or(cmp.Compare(a.Index, b.Index), cmp.Compare(a.ID, b.ID))
	})
}

func (p *Pending) check() error {
	if p.Request != nil {
		for i, c := range p.Request.Containers {
			if _, err := kindOf(c.Kind); err != nil {
				return fmt.Errorf("request.containers[%d].kind: %w", i, err)
			}
		}
	}
	if r := p.Refused; r != nil && r.Nearest != nil && !slices.Contains(helps, r.Nearest.Helps) {
		return fmt.Errorf("refused.nearest.helps: %q, legal are %v", r.Nearest.Helps, helps)
	}
	return nil
}

// sorted returns an error unless each element of a list has a greater key than the one before.
func sorted[T any](field string, list []T, compare func(a, b *T) int) error {
	for i := 1; i < len(list); i++ {
		if compare(&list[i-1], &list[i]) >= 0 {
			return fmt.Errorf("%s[%d]: legal is a greater key than that of the element before: the list is sorted, and each key is in it once", field, i)
		}
	}
	return nil
}

// Compare orders gangs by source, namespace and name.
func (g GangName) Compare(o GangName) int {
	return cmp.Or(cmp.Compare(g.Source, o.Source), cmp.Compare(g.Namespace, o.Namespace), cmp.Compare(g.Name, o.Name))
}

func (f *InferenceFleet) compare(o *InferenceFleet) int {
	return cmp.Or(cmp.Compare(f.Namespace, o.Namespace), cmp.Compare(f.Name, o.Name))
}

// compare orders preemptions: those for gangs first.
func (p *Preemption) compare(o *Preemption) int {
	var a, b Name
	var g, h GangName
	if p.Pod != nil {
		a = *p.Pod
	}
	if o.Pod != nil {
		b = *o.Pod
	}
	if p.Gang != nil {
		g = *p.Gang
	}
	if o.Gang != nil {
		h = *o.Gang
	}
	return cmp.Or(cmp.Compare(a.UID, b.UID), g.Compare(h))
}

// Sort sorts all lists by their keys.
func (s *Snapshot) Sort() {
	slices.SortFunc(s.Nodes, func(a, b Node) int { return cmp.Compare(a.Name, b.Name) })
	for i := range s.Nodes {
		n := &s.Nodes[i]
		slices.SortFunc(n.Pods, func(a, b Pod) int { return cmp.Compare(a.UID, b.UID) })
		slices.SortFunc(n.Holds, func(a, b Hold) int { return cmp.Compare(a.UID, b.UID) })
		slices.SortFunc(n.Overbooked, func(a, b Overbooked) int { return cmp.Compare(a.UID, b.UID) })
	}
	slices.SortFunc(s.Gangs, func(a, b Gang) int { return a.Compare(b.GangName) })
	for i := range s.Gangs {
		slices.SortFunc(s.Gangs[i].Places, byUID)
	}
	slices.SortFunc(s.Preemptions, func(a, b Preemption) int { return a.compare(&b) })
	for i := range s.Preemptions {
		slices.SortFunc(s.Preemptions[i].Victims, byUID)
	}
	slices.SortFunc(s.Pending, func(a, b Pending) int { return cmp.Compare(a.UID, b.UID) })
	slices.SortFunc(s.ElasticTargets, func(a, b ElasticTarget) int { return a.Compare(b.GangName) })
	slices.SortFunc(s.InferenceFleets, func(a, b InferenceFleet) int { return a.compare(&b) })
}

func byUID(a, b Place) int { return cmp.Compare(a.UID, b.UID) }
