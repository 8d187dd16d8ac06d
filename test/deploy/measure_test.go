package deploy

import (
	"context"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-gpu/tandem/internal/sandbox"
)

// measures in the environment makes TestTimesOfPolicies run.
const measures = "TANDEM_MEASURE"

// The table of docs/guides/security.md: what the creation of the dearest pods takes on an API server with all policies and on one
// without any, and what the slowest of them takes by itself. Times are no verdict; TestCostOfPoliciesIsBounded is.
func TestTimesOfPolicies(t *testing.T) {
	if os.Getenv(measures) == "" {
		t.Skip("it measures times for a table of the guide, for which the machine must be quiet: set " + measures + "=1")
	}
	bare := sandbox.StartForTest(t, sandbox.Options{Authorization: "Node,RBAC"})
	without, with := clientFor(t, bare.Admin()), client(t.Context(), t, admin)
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}
	if _, err := without.CoreV1().Namespaces().Create(t.Context(), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	policies := map[*admissionv1.ValidatingAdmissionPolicy]compiled{}
	for _, policy := range allPolicies(t) {
		policies[policy] = compile(t, policy, "1.37")
	}
	// The policies by themselves are measured first. Later the servers disturb them: a server goes on with a request after its
	// client has stopped to wait.
	var rows []measured
	for _, shape := range shapes() {
		for _, n := range dearest(t, policies, shape) {
			s := shape.of(n)
			if p, ok := s.GetObject().(*corev1.Pod); ok && s.GetOldObject() == nil {
				name, alone := slowest(t, policies, s)
				rows = append(rows, measured{shape.name, n, p, name, alone})
			}
		}
	}
	table := []string{"| request | number | without policies | with all | the dearest policy |", "|---|---|---|---|---|"}
	for _, r := range rows {
		row := fmt.Sprintf("| %s | %d | %s | %s | %s, %v |", r.shape, r.n, took(t, without, r.pod), took(t, with, r.pod), r.policy, r.alone)
		t.Log(row)
		table = append(table, row)
	}
	t.Log("\n" + strings.Join(table, "\n"))
}

// measured is what the dearest policy takes for a request by itself.
type measured struct {
	shape  string
	n      int
	pod    *corev1.Pod
	policy string
	alone  time.Duration
}

// dearest returns the size at which the policies cost the most together, and a larger one that they refuse for its length.
func dearest(t *testing.T, policies map[*admissionv1.ValidatingAdmissionPolicy]compiled, shape shape) []int {
	t.Helper()
	at, most := 0, int64(-1)
	for _, n := range []int{128, 256, 512, 1000} {
		sum := int64(0)
		s := shape.of(min(n, shape.most))
		for policy, c := range policies {
			if concerns(policy, s) {
				sum += c.cost(t, s)
			}
		}
		if sum > most {
			at, most = n, sum
		}
	}
	return slices.Compact([]int{at, min(10_000, shape.most)})
}

// slowest returns the policy that takes the longest for a request, with the least of nine times.
func slowest(t *testing.T, policies map[*admissionv1.ValidatingAdmissionPolicy]compiled, s *sent) (name string, most time.Duration) {
	t.Helper()
	for policy, c := range policies {
		if !concerns(policy, s) {
			continue
		}
		if took := least(9, func() { c.cost(t, s) }); took > most {
			name, most = policy.Name, took
		}
	}
	return name, most
}

// patience is how long an answer is awaited.
const patience = 10 * time.Second

// took returns the least time of four creations, or that there was no answer, of one.
func took(t *testing.T, c kubernetes.Interface, p *corev1.Pod) string {
	t.Helper()
	create := func() {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		_, _ = c.CoreV1().Pods(team).Create(ctx, p, dryRun) // refused, most of them: it is the time that is looked at
	}
	first := least(1, create)
	if first >= patience {
		return fmt.Sprintf("more than %v", patience)
	}
	return min(first, least(3, create)).String()
}

// least returns the least time of several runs, which other work on the machine disturbs the least.
func least(times int, run func()) time.Duration {
	shortest := time.Duration(math.MaxInt64)
	for range times {
		began := time.Now()
		run()
		shortest = min(shortest, time.Since(began))
	}
	return shortest.Round(100 * time.Microsecond)
}
