package victims

import (
	"fmt"
	"testing"
	"time"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// extremeBudgets are budgets of the namespace team-0 whose selectors have so many expressions, which all pods meet.
func extremeBudgets(count, expressions int) (all []*policyv1.PodDisruptionBudget) {
	s := &metav1.LabelSelector{}
	for k := range expressions {
		s.MatchExpressions = append(s.MatchExpressions, metav1.LabelSelectorRequirement{Key: fmt.Sprintf("key-%d", k), Operator: metav1.LabelSelectorOpNotIn, Values: []string{"x"}})
	}
	for i := range count {
		all = append(all, budget("team-0", fmt.Sprintf("b-%05d", i), 1, s))
	}
	return append(all, budget("team-1", "b", 1, matchLabels("app", "a")))
}

// placedIn returns so many pods of each of two namespaces.
func placedIn(tb testing.TB, each int) (list []Placed) {
	g := guards(tb, config.GPUPreemptArgs{})
	for i := range 2 * each {
		p := ran(time.Hour)
		p.Namespace, p.Name, p.UID = fmt.Sprintf("team-%d", i%2), fmt.Sprint("pod-", i), types.UID(fmt.Sprint(i))
		p.Labels = map[string]string{"app": "a"}
		traits := g.TraitsOf(p, vgpu.Room{})
		list = append(list, Placed{Traits: &traits, Share: 300, Gang: -1})
	}
	return list
}

// A namespace of many or long budgets uses up its steps: its pods count against a budget that allows nothing, and those of another namespace against their own.
func TestBudgetsTakeBoundedSteps(t *testing.T) {
	for name, all := range map[string][]*policyv1.PodDisruptionBudget{
		"long selectors": extremeBudgets(50, 1000), "many budgets": extremeBudgets(7000, 0), "many comparisons": extremeBudgets(500, 1),
	} {
		c := Candidates(placedIn(t, 300), all, noon)
		steps := 0
		for i := range c.Pods {
			steps += len(c.Pods[i].Budgets)
		}
		last, closed, other := len(all)-2, c.Pods[len(c.Pods)-2].Budgets, c.Pods[len(c.Pods)-1].Budgets
		if steps > maxSteps+len(c.Pods) || len(closed) != 1 || closed[0] != last || c.Budgets[last].Allowed != 0 {
			t.Errorf("%s: the last pod of team-0 counts against %v, of which one allows %d", name, closed, c.Budgets[last].Allowed)
		}
		if len(other) != 1 || c.Budgets[other[0]].Name != "team-1/b" || c.Budgets[other[0]].Allowed != 1 {
			t.Errorf("%s: the last pod of team-1 counts against %v", name, other)
		}
	}
}

// BenchmarkExtremes is what the budgets of a namespace cost each preemption: read, and compared with pods.
func BenchmarkExtremes(b *testing.B) {
	list := placedIn(b, 8000)
	for _, bc := range []struct {
		name string
		all  []*policyv1.PodDisruptionBudget
	}{
		{"budgets/1000-of-1000-expressions", extremeBudgets(1000, 1000)},
		{"budgets/10000-for-all-pods", extremeBudgets(10_000, 0)},
		{"budgets/1000-of-1-expression", extremeBudgets(1000, 1)},
	} {
		b.Run(bc.name, func(b *testing.B) {
			for b.Loop() {
				Candidates(list, bc.all, noon)
			}
		})
	}
}
