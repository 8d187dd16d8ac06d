package snapshot

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Map returns the picture of the nodes and of the pods that wait, those that have waited longest first. Its seconds count from
// 1970-01-01T00:00:00Z. Members of a gang that wait are one entry.
func (s *Snapshot) Map() (vgpu.Map, error) {
	c, err := s.Cluster()
	if err != nil {
		return vgpu.Map{}, err
	}
	m := vgpu.MapOf(c.Nodes())
	m.AtSeconds = float64(s.At.Unix())
	for i := range m.Nodes {
		n := &s.Nodes[i]
		m.Nodes[i].Problem = n.Problem
		for k := range n.Devices {
			m.Nodes[i].Devices[k].Reason = n.Ails(k)
		}
	}
	m.Pending = s.waiting()
	return m, nil
}

// Ails says in words why the k-th device takes no new shares, "" for one that does and where nothing is known.
func (n *Node) Ails(k int) string {
	d := &n.Devices[k]
	pods := n.OverbookedBy(d.ID)
	switch {
	case len(pods) == 0 && d.Note != "":
		return d.Reason + ": " + d.Note
	case len(pods) == 0:
		return d.Reason
	}
	names := make([]string, 0, len(pods))
	for i := range pods {
		names = append(names, pods[i].Path())
	}
	return "overbooked by " + strings.Join(names, ", ")
}

// Placed returns the pods that have shares of a node. A reserved pod is among them, and among Pending too until it is bound.
func (s *Snapshot) Placed() map[vgpu.UID]bool {
	placed := map[vgpu.UID]bool{}
	for i := range s.Nodes {
		for k := range s.Nodes[i].Pods {
			placed[s.Nodes[i].Pods[k].UID] = true
		}
	}
	return placed
}

// waiting returns the pods and the gangs that wait.
func (s *Snapshot) waiting() []vgpu.MapPending {
	all, gangs := []vgpu.MapPending{}, map[GangName]int{}
	said := map[GangName]string{}
	for i := range s.Gangs {
		said[s.Gangs[i].GangName] = s.Gangs[i].reason()
	}
	for i := range s.Pending {
		p := &s.Pending[i]
		one := vgpu.MapPending{Pod: p.Path(), UID: p.UID, Reason: p.reason()}
		if p.Gang != nil {
			one.Reason = cmp.Or(said[*p.Gang], one.Reason)
		}
		if !p.Since.IsZero() {
			one.SinceSeconds = float64(p.Since.Unix())
		}
		if r := p.toPlace(0); r != nil {
			one.Slots = r.PeakSlots()
		}
		if p.Gang == nil {
			all = append(all, one)
			continue
		}
		at, known := gangs[*p.Gang]
		if !known {
			at = len(all)
			gangs[*p.Gang] = at
			one.Pod, one.Members = (&Name{Namespace: p.Gang.Namespace, Name: p.Gang.Name}).Path(), 1
			all = append(all, one)
			continue
		}
		all[at].Members++
		all[at].Slots = vgpu.Sum(all[at].Slots, one.Slots)
		all[at].SinceSeconds = min(all[at].SinceSeconds, one.SinceSeconds)
		all[at].Reason = cmp.Or(all[at].Reason, one.Reason)
	}
	slices.SortFunc(all, func(a, b vgpu.MapPending) int {
		return cmp.Or(cmp.Compare(a.SinceSeconds, b.SinceSeconds), cmp.Compare(a.Pod, b.Pod), cmp.Compare(a.UID, b.UID))
	})
	return all
}

// reason returns the sentence about a gang that waits or, where that is left out, why no member is tried; "" for others.
func (g *Gang) reason() string {
	switch {
	case g.Message != "":
		return g.Message
	case g.Need == "Incomplete":
		return fmt.Sprintf("%d of %d members exist", g.Members, g.MinCount)
	case g.Need == Malformed:
		return "what its members say of it is not legal"
	}
	return ""
}

// reason returns the sentence or, where that is left out, the word for why a pod waits.
func (p *Pending) reason() string {
	switch {
	case p.Refused == nil:
		return "not tried yet"
	case p.Refused.Message == "" && p.Refused.Nearest != nil:
		return string(p.Refused.Nearest.Reason)
	}
	return p.Refused.Message
}
