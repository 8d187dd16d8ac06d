package gpupreempt

import (
	"maps"
	"strings"

	policyv1 "k8s.io/api/policy/v1"

	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// What a PodDisruptionBudget allows is written by its controller, a moment after a pod leaves. Another preemptor may come before
// that and would be told that as many may go as before. So victims are charged to the budgets that they count against for as
// long as those are the same objects as when they were chosen.
//
// A controller that writes a budget for another reason before it has heard of the victim ends the charge too early.

// stamp is a budget as it was when a victim was chosen.
type stamp struct{ name, version string }

// stamps returns the budgets that the victims of an eviction count against, as the informer has them, by victim.
func (p *Plugin) stamps(e *eviction) map[vgpu.UID][]stamp {
	if e.from == nil {
		return nil
	}
	all := map[vgpu.UID][]stamp{}
	for _, u := range e.plan.Evict {
		for _, at := range u.Pods {
			for _, b := range e.from.Pods[at].Budgets {
				namespace, name, _ := strings.Cut(e.from.Budgets[b].Name, "/")
				if budget, err := p.budgets.PodDisruptionBudgets(namespace).Get(name); err == nil {
					uid := e.from.Pods[at].UID
					all[uid] = append(all[uid], stamp{e.from.Budgets[b].Name, versionOf(budget)})
				}
			}
		}
	}
	return all
}

// versionOf tells one state of one budget from all others.
func versionOf(b *policyv1.PodDisruptionBudget) string {
	return string(b.UID) + "/" + b.ResourceVersion
}

// charge takes from what budgets allow the victims that leave and that the budgets do not tell of yet.
func (s *state) charge(allowed []preemption.Budget, budgets []*policyv1.PodDisruptionBudget) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.charges) == 0 {
		return
	}
	counts := map[stamp]int{}
	for uid, stamps := range s.charges {
		if _, leaves := s.leaving[uid]; !leaves {
			continue
		}
		for _, at := range stamps {
			counts[at]++
		}
	}
	charged := map[string]int{}
	for _, b := range budgets {
		name := b.Namespace + "/" + b.Name
		charged[name] = counts[stamp{name, versionOf(b)}]
	}
	for i := range allowed {
		allowed[i].Allowed = max(0, allowed[i].Allowed-charged[allowed[i].Name])
	}
}

// charged notes the budgets of victims.
func (s *state) charged(stamps map[vgpu.UID][]stamp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.Copy(s.charges, stamps)
}
