package kube

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
	// byLabel are the budgets of which each pod has a certain label, others those of each namespace without such a label.
	byLabel map[wantedLabel][]int
	others  map[string][]int
}

// wantedLabel is a label that the pods of a budget have for certain.
type wantedLabel struct{ namespace, key, value string }

// newBudgets sorts budgets. One whose selector is malformed matches no pod, as Kubernetes has it.
func newBudgets(list []*policyv1.PodDisruptionBudget) *budgets {
	b := &budgets{sorted: slices.Clone(list), byLabel: map[wantedLabel][]int{}, others: map[string][]int{}}
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
		if key, value, ok := certainLabel(selector); ok {
			at := wantedLabel{budget.Namespace, key, value}
			b.byLabel[at] = append(b.byLabel[at], i)
		} else {
			b.others[budget.Namespace] = append(b.others[budget.Namespace], i)
		}
	}
	return b
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

// of returns the budgets that an eviction of the pod takes from, ascending; nil for none.
//
// A budget counts for the pods of its namespace that its selector matches, all of them if it is empty, none if it is missing:
// what the Eviction API takes it for. The stock scheduler's preemption takes an empty selector, and pods without labels, for no
// match. A pod that the budget has as disrupted already was counted when that was noted.
func (b *budgets) of(pod *v1.Pod) []int {
	var found []int
	add := func(candidates []int) {
		for _, i := range candidates {
			_, counted := b.sorted[i].Status.DisruptedPods[pod.Name]
			if !counted && b.selectors[i].Matches(labels.Set(pod.Labels)) {
				found = append(found, i)
			}
		}
	}
	if len(b.byLabel) > 0 {
		for key, value := range pod.Labels {
			add(b.byLabel[wantedLabel{pod.Namespace, key, value}])
		}
	}
	add(b.others[pod.Namespace])
	slices.Sort(found)
	return found
}

// allowances returns the budgets for core, in the order of the indices that of returns.
func (b *budgets) allowances() []preemption.Budget {
	all := make([]preemption.Budget, len(b.sorted))
	for i, budget := range b.sorted {
		all[i] = preemption.Budget{Name: budget.Namespace + "/" + budget.Name, Allowed: int(max(0, budget.Status.DisruptionsAllowed))}
	}
	return all
}
