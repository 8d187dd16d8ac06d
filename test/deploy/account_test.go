package deploy

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/must"
)

// The tables of docs/guides/security.md that say what accounts may do, by the heading above them.
const (
	agentMay    = "### What the agent's account may do"
	agentMayNot = "### What the agent's account may not do"
)

// guide returns docs/guides/security.md.
func guide(t *testing.T) string {
	t.Helper()
	root, err := sandbox.Root()
	must.OK(t, err)
	raw, err := os.ReadFile(filepath.Join(root, "docs", "guides", "security.md"))
	must.OK(t, err)
	return string(raw)
}

// documented reads a table of the guide: verbs and resources stand in backquotes in its first two columns. It returns
// "verb resource" for each pair.
func documented(t *testing.T, heading string) []string {
	t.Helper()
	_, section, ok := strings.Cut(guide(t), "\n"+heading+"\n")
	if !ok {
		t.Fatalf("the guide has no heading %q", heading)
	}
	section, _, _ = strings.Cut(section, "\n#")
	words := regexp.MustCompile("`([^`]+)`")
	var pairs []string
	for line := range strings.Lines(section) {
		cells := strings.Split(line, "|")
		if len(cells) < 4 {
			continue
		}
		for _, verb := range words.FindAllStringSubmatch(cells[1], -1) {
			for _, resource := range words.FindAllStringSubmatch(cells[2], -1) {
				pairs = append(pairs, verb[1]+" "+resource[1])
			}
		}
	}
	if len(pairs) == 0 {
		t.Fatalf("the guide has no table under %q", heading)
	}
	slices.Sort(pairs)
	return pairs
}

// rules returns all that an account may do in a namespace, and on resources without one, as the API server tells.
func rules(t *testing.T, config *rest.Config, namespace string) []string {
	t.Helper()
	review := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: namespace}}
	got, err := clientFor(t, config).AuthorizationV1().SelfSubjectRulesReviews().
		Create(t.Context(), review, metav1.CreateOptions{})
	must.OK(t, err)
	if got.Status.Incomplete {
		t.Fatalf("the API server does not know all rules: %s", got.Status.EvaluationError)
	}
	var list []string
	for _, r := range got.Status.ResourceRules {
		for _, verb := range r.Verbs {
			for _, group := range r.APIGroups {
				for _, resource := range r.Resources {
					list = append(list, verb+" "+qualified(group, resource)+onlyNamed(r.ResourceNames))
				}
			}
		}
	}
	for _, r := range got.Status.NonResourceRules {
		for _, verb := range r.Verbs {
			for _, url := range r.NonResourceURLs {
				list = append(list, verb+" "+url)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// qualified writes "resource.group/subresource"; the core group is left out.
func qualified(group, resource string) string {
	resource, sub, ok := strings.Cut(resource, "/")
	if group != "" {
		resource += "." + group
	}
	if ok {
		resource += "/" + sub
	}
	return resource
}

func onlyNamed(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return " only " + strings.Join(list, ",")
}

// The account may do what the guide lists and nothing else, beside what every service account may.
func TestAccountsMayDoWhatTheGuideLists(t *testing.T) {
	_, err := client(t.Context(), t, admin).CoreV1().ServiceAccounts(systemNamespace).
		Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "nobody"}}, metav1.CreateOptions{})
	must.OK(t, err)
	listed := map[string][]string{"tandem-agent": documented(t, agentMay), "tandem-mps": nil}
	for _, namespace := range []string{systemNamespace, team, "default", "kube-system"} {
		anybody := rules(t, tokenConfig(t.Context(), t, "nobody", ""), namespace)
		if len(anybody) == 0 {
			t.Fatal("the account without roles has no rules: the API server grants discovery to everybody")
		}
		for name, want := range listed {
			t.Run(name+" in "+namespace, func(t *testing.T) {
				got := slices.DeleteFunc(rules(t, tokenConfig(t.Context(), t, name, "n1"), namespace),
					func(rule string) bool { return slices.Contains(anybody, rule) })
				if diff := cmp.Diff(want, got); diff != "" && len(want)+len(got) > 0 {
					t.Errorf("docs/guides/security.md lists (-), the account may (+):\n%s", diff)
				}
			})
		}
	}
}

// A review of rules tells what a role grants; this asks for what the guide promises to be out of reach.
func TestAgentMayNotDoWhatTheGuideExcludes(t *testing.T) {
	excluded := documented(t, agentMayNot)
	if len(excluded) < 20 {
		t.Fatalf("the guide excludes %d requests only", len(excluded))
	}
	for _, request := range excluded {
		t.Run(request, func(t *testing.T) {
			verb, resource, _ := strings.Cut(request, " ")
			resource, sub, _ := strings.Cut(resource, "/")
			resource, group, _ := strings.Cut(resource, ".")
			for _, namespace := range []string{"", systemNamespace, team} {
				review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
					ResourceAttributes: &authorizationv1.ResourceAttributes{
						Verb: verb, Group: group, Resource: resource, Subresource: sub, Namespace: namespace,
					},
				}}
				got, err := client(t.Context(), t, agent).AuthorizationV1().SelfSubjectAccessReviews().
					Create(t.Context(), review, metav1.CreateOptions{})
				must.OK(t, err)
				if got.Status.Allowed {
					t.Errorf("allowed in namespace %q: %s", namespace, got.Status.Reason)
				}
			}
		})
	}
}
