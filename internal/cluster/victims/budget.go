package victims

import (
	"cmp"
	"slices"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/preemption"
)

// budgets finds the PodDisruptionBudgets that a pod counts against.
type budgets struct {
	// sorted are the budgets by name; an index of one is that of preemption.Candidates.Budgets.
	sorted []*policyv1.PodDisruptionBudget
	// selectors are theirs, in the same order, and lengths how many steps each takes.
	selectors []labels.Selector
	lengths   []int
	// namespaces finds them by what pods have.
	namespaces map[string]*namespaceBudgets
	// found has room for what of returns, for all pods in one piece.
	found []int
}

// namespaceBudgets are the budgets of one namespace. Budgets that require a certain label of a pod have an index, so
// that a namespace may have many; others are the rest.
type namespaceBudgets struct {
	// byLabel are the budgets whose pods have a certain label, by its key and its value.
	byLabel map[string]map[string][]int
	others  []int
	// last is the last budget, and steps how many are left.
	last, steps int
}

// maxSteps bounds the steps in which the budgets of a namespace are read and compared with its pods for one decision: some 10 ms. A selector takes a step for
// itself and for each label, expression and value in it, and perRead times as many to be read. A namespace that has used them up, of thousands of budgets or of
// long selectors, has all further pods count against its last budget, which allows no eviction then: fewer of its own pods are evicted.
const maxSteps, perRead = 200_000, 32

// newBudgets sorts budgets. A budget with a malformed selector matches no pod, as in Kubernetes.
func newBudgets(list []*policyv1.PodDisruptionBudget) *budgets {
	b := &budgets{sorted: slices.Clone(list), namespaces: map[string]*namespaceBudgets{}}
	slices.SortFunc(b.sorted, func(x, y *policyv1.PodDisruptionBudget) int {
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name))
	})
	b.selectors, b.lengths = make([]labels.Selector, len(b.sorted)), make([]int, len(b.sorted))
	for i, budget := range b.sorted {
		in := b.namespaces[budget.Namespace]
		if in == nil {
			in = &namespaceBudgets{byLabel: map[string]map[string][]int{}, steps: maxSteps}
			b.namespaces[budget.Namespace] = in
		}
		in.last, b.lengths[i] = i, 1+kube.SelectorLength(budget.Spec.Selector)
		if in.steps -= perRead * b.lengths[i]; in.steps < 0 {
			continue
		}
		selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
		if err != nil {
			selector = labels.Nothing()
		}
		b.selectors[i] = selector
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
	if in.byLabel[key] == nil {
		in.byLabel[key] = map[string][]int{}
	}
	in.byLabel[key][value] = append(in.byLabel[key][value], i)
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
	b.match(in, in.others, pod)
	for key, value := range pod.Labels {
		b.match(in, in.byLabel[key][value], pod)
	}
	if in.steps < 0 {
		b.found = append(b.found[:before], in.last)
	}
	if len(b.found) == before {
		return nil
	}
	of := slices.Clip(b.found[before:])
	slices.Sort(of)
	return of
}

// match finds those of some budgets that an eviction of the pod takes from.
func (b *budgets) match(in *namespaceBudgets, some []int, pod *v1.Pod) {
	for _, i := range some {
		if in.steps -= b.lengths[i]; in.steps < 0 {
			return
		}
		_, counted := b.sorted[i].Status.DisruptedPods[pod.Name]
		if !counted && b.selectors[i].Matches(labels.Set(pod.Labels)) {
			b.found = append(b.found, i)
		}
	}
}

// allowances returns the budgets for core, in the order of the indices that of returned.
func (b *budgets) allowances() []preemption.Budget {
	all := make([]preemption.Budget, len(b.sorted))
	for i, budget := range b.sorted {
		all[i] = preemption.Budget{Name: budget.Namespace + "/" + budget.Name, Allowed: int(max(0, budget.Status.DisruptionsAllowed))}
	}
	for _, in := range b.namespaces {
		if in.steps < 0 {
			all[in.last].Allowed = 0
		}
	}
	return all
}
