package victims

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	upstream "k8s.io/kubernetes/pkg/scheduler/framework/preemption"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/test/must"
	"github.com/tandem-gpu/tandem/test/pods"
)

func budget(namespace, name string, allowed int32, selector *metav1.LabelSelector) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selector},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	}
}

func matchLabels(pairs ...string) *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		s.MatchLabels[pairs[i]] = pairs[i+1]
	}
	return s
}

func matches(key string, op metav1.LabelSelectorOperator, values ...string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: key, Operator: op, Values: values}}}
}

func TestBudgets(t *testing.T) {
	counted := budget("ns", "counted", 1, matchLabels("app", "a"))
	counted.Status.DisruptedPods = map[string]metav1.Time{"p": {Time: noon}}
	b := newBudgets([]*policyv1.PodDisruptionBudget{
		budget("ns", "two", 2, matches("app", metav1.LabelSelectorOpIn, "a", "b")),
		budget("ns", "negative", -1, matchLabels("app", "a", "tier", "web")),
		budget("ns", "tiers", 4, matchLabels("tier", "web")),
		budget("other", "a", 5, matchLabels("app", "a")),
		counted,
		budget("ns", "all", 0, &metav1.LabelSelector{}),
		budget("ns", "none", 0, nil),
		budget("ns", "broken", 0, matches("app", "Is", "a")),
		budget("ns", "missing", 3, matches("app", metav1.LabelSelectorOpDoesNotExist)),
		budget("ns", "one", 1, matches("app", metav1.LabelSelectorOpIn, "a")),
	})
	want := []preemption.Budget{
		{Name: "ns/all", Allowed: 0}, {Name: "ns/broken", Allowed: 0}, {Name: "ns/counted", Allowed: 1}, {Name: "ns/missing", Allowed: 3},
		{Name: "ns/negative", Allowed: 0}, {Name: "ns/none", Allowed: 0}, {Name: "ns/one", Allowed: 1},
		{Name: "ns/tiers", Allowed: 4}, {Name: "ns/two", Allowed: 2}, {Name: "other/a", Allowed: 5},
	}
	if diff := cmp.Diff(want, b.allowances()); diff != "" {
		t.Fatalf("budgets (-want +got):\n%s", diff)
	}
	for _, test := range []struct {
		namespace, name string
		labels          map[string]string
		want            []string
	}{
		{"ns", "p", map[string]string{"app": "a"}, []string{"ns/all", "ns/one", "ns/two"}},
		{"ns", "q", map[string]string{"app": "a"}, []string{"ns/all", "ns/counted", "ns/one", "ns/two"}},
		{"ns", "p", map[string]string{"app": "a", "tier": "web"}, []string{"ns/all", "ns/negative", "ns/one", "ns/tiers", "ns/two"}},
		{"ns", "p", map[string]string{"tier": "web"}, []string{"ns/all", "ns/missing", "ns/tiers"}},
		{"ns", "p", map[string]string{"app": "b", "tier": "a"}, []string{"ns/all", "ns/two"}},
		{"ns", "p", map[string]string{"app": "b"}, []string{"ns/all", "ns/two"}},
		{"ns", "p", nil, []string{"ns/all", "ns/missing"}},
		{"other", "p", map[string]string{"app": "a"}, []string{"other/a"}},
		{"third", "p", map[string]string{"app": "a"}, nil},
	} {
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: test.namespace, Name: test.name, Labels: test.labels}}
		var got []string
		for _, i := range b.of(p.Namespace, p) {
			got = append(got, want[i].Name)
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s/%s %v (-want +got):\n%s", test.namespace, test.name, test.labels, diff)
		}
	}
}

// The list of the budgets that a pod counts against is its own: it may be added to.
func TestBudgetsAreApart(t *testing.T) {
	b := newBudgets([]*policyv1.PodDisruptionBudget{budget("ns", "a", 0, &metav1.LabelSelector{})})
	var all [][]int
	for range 5 {
		all = append(all, b.of("ns", pods.New("1")))
	}
	for i := range all {
		all[i] = append(all[i], 7)
	}
	for i := range all {
		if !slices.Equal(all[i], []int{0, 7}) {
			t.Errorf("pod %d counts against %v", i, all[i])
		}
	}
}

// drawSelector draws a selector of one or two requirements.
func drawSelector(t *rapid.T) *metav1.LabelSelector {
	value := rapid.SampledFrom([]string{"x", "y", ""})
	s := &metav1.LabelSelector{}
	if rapid.Bool().Draw(t, "by label") {
		s = matchLabels(rapid.SampledFrom([]string{"a", "b"}).Draw(t, "label"), value.Draw(t, "value"))
	}
	if len(s.MatchLabels) > 0 && rapid.Bool().Draw(t, "no expression") {
		return s
	}
	r := metav1.LabelSelectorRequirement{Key: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "key")}
	r.Operator = rapid.SampledFrom([]metav1.LabelSelectorOperator{
		metav1.LabelSelectorOpIn, metav1.LabelSelectorOpNotIn, metav1.LabelSelectorOpExists, metav1.LabelSelectorOpDoesNotExist, "Is",
	}).Draw(t, "operator")
	if r.Operator == metav1.LabelSelectorOpIn || r.Operator == metav1.LabelSelectorOpNotIn {
		r.Values = rapid.SliceOfNDistinct(value, 1, 2, rapid.ID).Draw(t, "values")
	}
	s.MatchExpressions = []metav1.LabelSelectorRequirement{r}
	return s
}

// drawBudgets draws budgets that allow nothing, of two namespaces.
func drawBudgets(t *rapid.T) []*policyv1.PodDisruptionBudget {
	var all []*policyv1.PodDisruptionBudget
	for i := range rapid.IntRange(0, 6).Draw(t, "budgets") {
		b := budget(rapid.SampledFrom([]string{"n", "m"}).Draw(t, "namespace"), fmt.Sprint(i), 0, drawSelector(t))
		if rapid.IntRange(0, 3).Draw(t, "counted") == 0 {
			b.Status.DisruptedPods = map[string]metav1.Time{"p": {}}
		}
		all = append(all, b)
	}
	return all
}

// A pod counts against the budgets that the stock scheduler's preemption finds: with a budget alone, its eviction violates
// it. Empty selectors and pods without labels, of which the two differ, are not drawn.
func TestBudgetsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := drawBudgets(t)
		p := &v1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: rapid.SampledFrom([]string{"n", "m", "o"}).Draw(t, "of"), Name: rapid.SampledFrom([]string{"p", "q"}).Draw(t, "pod"),
			Labels: rapid.MapOfN(rapid.SampledFrom([]string{"a", "b", "d"}), rapid.SampledFrom([]string{"x", "y", ""}), 1, 3).Draw(t, "labels"),
		}}
		info, err := framework.NewPodInfo(p)
		must.OK(t, err)
		victim, err := upstream.NewVictim([]fwk.PodInfo{info}, 0, fwk.PodKeyType)
		must.OK(t, err)
		before := slices.Clone(list)
		b := newBudgets(list)
		if !slices.Equal(before, list) {
			t.Fatal("the budgets that were handed in are in another order")
		}
		var want []int
		for i := range b.sorted {
			if violating, _ := upstream.FilterVictimsWithPDBViolation([]upstream.Victim{victim}, b.sorted[i:i+1]); len(violating) > 0 {
				want = append(want, i)
			}
		}
		if diff := cmp.Diff(want, b.of(p.Namespace, p)); diff != "" {
			t.Fatalf("budgets of %v (-want +got):\n%s", p.Labels, diff)
		}
		shuffled := newBudgets(rapid.Permutation(list).Draw(t, "shuffled"))
		if diff := cmp.Diff(b.of(p.Namespace, p), shuffled.of(p.Namespace, p)); diff != "" {
			t.Fatalf("another order of the budgets (-before +after):\n%s", diff)
		}
		if diff := cmp.Diff(b.allowances(), shuffled.allowances()); diff != "" {
			t.Fatalf("another order of the budgets (-before +after):\n%s", diff)
		}
	})
}
