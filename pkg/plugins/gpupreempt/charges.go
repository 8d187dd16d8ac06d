package gpupreempt

import (
	"strings"

	policyv1 "k8s.io/api/policy/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/reservation"
)

// chosen returns the victims of an eviction, with the budgets that they count against as the informer has them.
func (p *Plugin) chosen(e *eviction) []reservation.Chosen {
	var all []reservation.Chosen
	for _, u := range e.plan.Evict {
		for _, at := range u.Pods {
			c := reservation.Chosen{UID: kube.UIDOf(e.pods[at]), Until: p.endOf(e.pods[at])}
			for _, b := range e.from.Pods[at].Budgets {
				namespace, name, _ := strings.Cut(e.from.Budgets[b].Name, "/")
				if budget, err := p.budgets.PodDisruptionBudgets(namespace).Get(name); err == nil {
					c.Budgets = append(c.Budgets, stampOf(budget))
				}
			}
			all = append(all, c)
		}
	}
	return all
}

// stampOf identifies one state of one budget.
func stampOf(b *policyv1.PodDisruptionBudget) reservation.Stamp {
	return reservation.Stamp{Name: b.Namespace + "/" + b.Name, Version: string(b.UID) + "/" + b.ResourceVersion}
}

// charge takes from the allowed evictions of budgets the victims that leave and that the budgets do not count yet.
func (p *Plugin) charge(allowed []preemption.Budget, budgets []*policyv1.PodDisruptionBudget) {
	var charges map[reservation.Stamp]int
	p.machine.Lock(func(l machine.Locked) { charges = l.State.Charges() })
	if len(charges) == 0 {
		return
	}
	charged := map[string]int{}
	for _, b := range budgets {
		stamp := stampOf(b)
		charged[stamp.Name] = charges[stamp]
	}
	for i := range allowed {
		allowed[i].Allowed = max(0, allowed[i].Allowed-charged[allowed[i].Name])
	}
}

// charges returns how many victims are charged to one state of a budget.
func (p *Plugin) charges(s reservation.Stamp) (count int) {
	p.machine.Lock(func(l machine.Locked) { count = l.State.Charges()[s] })
	return count
}

// allCharges returns how many victims are charged to budgets, once for each budget.
func (p *Plugin) allCharges() (count int) {
	p.machine.Lock(func(l machine.Locked) {
		for _, n := range l.State.Charges() {
			count += n
		}
	})
	return count
}
