package gpumap

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Waiting is a gang, or a pod without one, that has no place.
type Waiting struct {
	Name      string `json:"name"`
	Namespace string `json:"namespace"`
	// Members without a place; 0 for a single pod.
	Members int `json:"members,omitempty"`
	// Slots that it asks for, all members together.
	Slots vgpu.Slots `json:"slots"`
	// Since is absent where that is not known.
	Since time.Time `json:"since,omitzero"`
	// Why is a sentence, and Details are further ones.
	Why     string   `json:"why"`
	Details []string `json:"details,omitempty"`
}

// waitingOf returns the gangs and pods that wait, those that wait longest first.
func waitingOf(s *snapshot.Snapshot) []Waiting {
	gangs := map[snapshot.GangName]*snapshot.Gang{}
	for i := range s.Gangs {
		gangs[s.Gangs[i].GangName] = &s.Gangs[i]
	}
	members := map[snapshot.GangName][]*snapshot.Pending{}
	all := []Waiting{}
	for i := range s.Pending {
		p := &s.Pending[i]
		if p.Gang != nil {
			members[*p.Gang] = append(members[*p.Gang], p)
			continue
		}
		w := Waiting{Name: p.Path(), Namespace: p.Namespace, Since: p.Since, Slots: slotsOf(p)}
		w.Why, w.Details = whyPod(p)
		all = append(all, w)
	}
	for name, pods := range members {
		w := Waiting{Name: gangPath(name), Namespace: name.Namespace, Members: len(pods), Since: pods[0].Since}
		for _, p := range pods {
			w.Slots += slotsOf(p)
			if p.Since.Before(w.Since) {
				w.Since = p.Since
			}
		}
		w.Why, w.Details = whyGang(gangs[name], pods)
		all = append(all, w)
	}
	slices.SortFunc(all, func(a, b Waiting) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name)) })
	return all
}

// slotsOf returns the slots that a pod asks for at most at one time.
func slotsOf(p *snapshot.Pending) vgpu.Slots {
	if p.Request == nil {
		return 0
	}
	var peak vgpu.Peak
	for _, c := range p.Request.Containers {
		peak.Add(kindOf(c.Kind), vgpu.Use{Slots: c.Slots})
	}
	return peak.Use().Slots
}

func kindOf(word string) vgpu.ContainerKind {
	switch word {
	case "init":
		return vgpu.Init
	case "sidecar":
		return vgpu.Sidecar
	}
	return vgpu.App
}

// whyPod returns why a pod waits.
func whyPod(p *snapshot.Pending) (string, []string) {
	switch {
	case p.Request == nil:
		return "Its request is malformed; the pod's condition says how.", nil
	case p.Refused == nil:
		return "It has not been tried yet, it waits for its turn, or it is being bound.", nil
	}
	r := p.Refused
	if r.Illegal != "" && r.Illegal != snapshot.Other {
		return "No device can meet its request: " + r.Illegal, nil
	}
	details := make([]string, 0, len(r.Nodes)+1)
	for _, n := range r.Nodes {
		details = append(details, fmt.Sprintf("%s: %s", count(n.Nodes, "node"), n.Reason))
	}
	if near := r.Nearest; near != nil {
		details = append(details, "Nearest miss: "+near.String())
	}
	switch {
	case r.Message != "":
		return r.Message, details
	case len(details) > 0:
		return "Refused by " + strings.Join(details, "; "), nil
	}
	return "No node takes it; the snapshot does not say why.", nil
}

// whyGang returns why a gang waits: what the scheduler says of the gang, else of its first member that was refused.
func whyGang(g *snapshot.Gang, pods []*snapshot.Pending) (string, []string) {
	var details []string
	if g != nil {
		details = append(details, fmt.Sprintf("%d of at least %d members have a node; phase %s, need %s", g.Bound, g.MinCount, g.Phase, g.Need))
	}
	for _, p := range pods {
		if p.Refused == nil {
			continue
		}
		why, more := whyPod(p)
		details = append(details, more...)
		if g == nil || g.Message == "" {
			return why, details
		}
		break
	}
	switch {
	case g != nil && g.Message != "":
		return g.Message, details
	case g != nil && g.Reason != "":
		return fmt.Sprintf("The scheduler refused it: %s.", g.Reason), details
	case g != nil && needs[g.Need] != "":
		return needs[g.Need], details
	}
	return "The scheduler has not tried it yet.", details
}

// needs says for whom a gang waits, where the snapshot has no reason.
var needs = map[string]string{
	"Incomplete": "Fewer of its members exist without scheduling gates than must run.",
	"Malformed":  "Its members contradict each other, or have an illegal value.",
	"Refused":    "No places were found for as many members as must run; the snapshot has no reason.",
	"Reserving":  "The scheduler keeps room for it, and waits for pods that end.",
	"Preempting": "The scheduler keeps room for it until the pods are gone that it evicts.",
}

// count writes a number of things: "1 node", "2 nodes".
func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
