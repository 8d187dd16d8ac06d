package victims

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/tandem-gpu/tandem/pkg/preemption"
)

// budgets finds the PodDisruptionBudgets that a pod counts against.
type budgets struct {
	// sorted are the budgets by name; an index of one is that of preemption.Candidates.Budgets.
	sorted []*policyv1.PodDisruptionBudget
	// selectors are theirs, in the same order.
	selectors []labels.Selector
	// namespaces finds them by what pods have.
	namespaces map[string]*namespaceBudgets
	// found has room for what of returns, for all pods in one piece.
	found []int
}

// namespaceBudgets are the budgets of one namespace. Budgets that require a certain label of a pod have an index, so
// that a namespace may have many; others are the rest.
type namespaceBudgets struct {
	byKey  []keyBudgets
	others []int
}

// keyBudgets are the budgets whose pods have a label with a certain key, by its value.
type keyBudgets struct {
	key     string
	byValue map[string][]int
}

// newBudgets sorts budgets. A budget with a malformed selector matches no pod, as in Kubernetes.
func newBudgets(list []*policyv1.PodDisruptionBudget) *budgets {
	b := &budgets{sorted: slices.Clone(list), namespaces: map[string]*namespaceBudgets{}}
	slices.SortFunc(b.sorted, func(x, y *policyv1.PodDisruptionBudget) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	b.selectors = make([]labels.Selector, len(b.sorted))
	for i, budget := range b.sorted {
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil {
			selector = labels.Nothing()
		}
		b.selectors[i] = selector
		in := b.namespaces[budget.Namespace]
		if in == nil {
			in = &namespaceBudgets{}
			b.namespaces[budget.Namespace] = in
		}
		in.add(i, selector)
	}
	return b
}

func (in *namespaceBudgets) add(i int, selector labels.Selector) {
	key, value, ok := certainLabel(selector)
	if !ok {
		in.others = append(in.others, i)
		return
	}
	at := slices.IndexFunc(in.byKey, func(k keyBudgets) bool { return k.key == key })
	if at < 0 {
		at = len(in.byKey)
		in.byKey = append(in.byKey, keyBudgets{key, map[string][]int{}})
	}
	in.byKey[at].byValue[value] = append(in.byKey[at].byValue[value], i)
}

// certainLabel returns a label that all pods have that a selector matches, and whether there is one.
func certainLabel(s labels.Selector) (key, value string, ok bool) {
	requirements, _ := s.Requirements()
	for _, r := range requirements {
		switch r.Operator() {
		case selection.Equals, selection.DoubleEquals, selection.In:
			if r.Values().Len() == 1 {
				return r.Key(), r.Values().UnsortedList()[0], true
			}
		}
	}
	return "", "", false
}

// of returns the budgets that an eviction of a pod of the namespace takes from, ascending; nil for none.
//
// A budget counts for the pods of its namespace that its selector matches. An empty selector matches all of them and a
// missing one none, as in the Eviction API. The stock scheduler's preemption takes an empty selector, and pods without
// labels, for no match. A pod that the budget has as disrupted already does not count again.
func (b *budgets) of(namespace string, pod *v1.Pod) []int {
	in := b.namespaces[namespace]
	if in == nil {
		return nil
	}
	before := len(b.found)
	b.match(in.others, pod)
	for i := range in.byKey {
		if value, ok := pod.Labels[in.byKey[i].key]; ok {
			b.match(in.byKey[i].byValue[value], pod)
		}
	}
	if len(b.found) == before {
		return nil
	}
	of := slices.Clip(b.found[before:])
	slices.Sort(of)
	return of
}

// match finds those of some budgets that an eviction of the pod takes from.
func (b *budgets) match(some []int, pod *v1.Pod) {
	for _, i := range some {
		_, counted := b.sorted[i].Status.DisruptedPods[pod.Name]
		if !counted && b.selectors[i].Matches(labels.Set(pod.Labels)) {
			b.found = append(b.found, i)
		}
	}
}

// allowances returns the budgets for core, in the order of the indices that of returns.
func (b *budgets) allowances() []preemption.Budget {
	all := make([]preemption.Budget, len(b.sorted))
	for i, budget := range b.sorted {
		all[i] = preemption.Budget{Name: budget.Namespace + "/" + budget.Name, Allowed: int(max(0, budget.Status.DisruptionsAllowed))}
	}
	return all
}
