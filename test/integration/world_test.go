package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kyaml "sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/must"
)

// world is where a cluster is: on a control plane, with Tandem's programs as processes, or in a bubble of testing/synctest, with an API
// server in memory and the same plugins in this process. A play does not know which.
type world interface {
	// startScheduler starts a scheduler with a configuration.
	startScheduler(t *testing.T, config map[string]any) program
	// startController starts Tandem's controller. Flags come at the end of its command line.
	startController(t *testing.T, flags ...string) program
	// poll asks until the answer is yes, and returns an error with the last answer where it never is.
	poll(t *testing.T, ask func() (bool, string)) error
	// refuse has the API server refuse requests until the function that it returns is called.
	refuse(t *testing.T, what refusedRequests) (accept func())
	// mayLag reports whether the machine may take half a minute for what the scheduler does at once.
	mayLag() bool
	// servePodGroups has the API server serve the PodGroups of the scheduler plugins from now on, and noticePodGroups waits until a scheduler has
	// ended since they are served.
	servePodGroups(t *testing.T)
	noticePodGroups(t *testing.T, scheduler program)
	// rejected returns the events that programs sent and the API server did not take.
	rejected(t *testing.T, namespace string) []rejectedEvent
}

// program is a scheduler or controller that runs.
type program interface {
	// Done returns a channel that closes when the program has ended, Err how it did, and Tail the last lines of its log.
	Done() <-chan struct{}
	Err() error
	Tail(lines int) string
	// Stop ends the program, after a grace in which it may end by itself.
	Stop(grace time.Duration)
}

// refusedRequests are requests that a test has refused: those whose object has a name that matches.
type refusedRequests struct {
	operation admissionv1.OperationType
	resource  string
	name      string // a regular expression
	// try is a dry run of such a request.
	try func() error
}

// onPlane is the world of a cluster on a control plane.
type onPlane struct{ *gangCluster }

func (w onPlane) mayLag() bool { return true }

func (w onPlane) servePodGroups(t *testing.T) {
	root, err := sandbox.Root()
	must.OK(t, err)
	crd, err := os.ReadFile(filepath.Join(root, xk8sCRD))
	must.OK(t, err)
	w.plane.ApplyForTest(t.Context(), t, string(crd))
}

func (w onPlane) noticePodGroups(t *testing.T, scheduler program) {
	select {
	case <-scheduler.Done():
		if err := scheduler.Err(); err != nil {
			t.Fatalf("the scheduler ended: %v", err)
		}
	case <-time.After(patience):
		t.Fatal("the scheduler goes on as if no PodGroup were served")
	}
}

func (w onPlane) poll(t *testing.T, ask func() (bool, string)) error {
	return pollByClock(life(t), ask)
}

// startScheduler starts the scheduler as it is built, under its account.
func (w onPlane) startScheduler(t *testing.T, config map[string]any) program {
	t.Helper()
	kubeconfig, err := w.plane.ServiceAccount(life(t), "tandem-system", "tandem-scheduler")
	must.OK(t, err)
	if w.proxy != nil {
		kubeconfig = w.proxy.through(t, kubeconfig)
	}
	config["clientConnection"].(map[string]any)["kubeconfig"] = kubeconfig
	raw, err := kyaml.Marshal(config)
	must.OK(t, err)
	w.starts++
	path := filepath.Join(w.plane.Dir(), fmt.Sprintf("scheduler-%d.yaml", w.starts))
	must.OK(t, os.WriteFile(path, raw, 0o600))
	flags := append([]string{"--config=" + path, "--secure-port=0", "--leader-elect=false", "--v=2"}, w.flags...)
	command := func() *exec.Cmd { return exec.Command(w.binary, flags...) }
	process, err := supervise(w.plane.Processes(), fmt.Sprintf("scheduler-%d", w.starts), command)
	must.OK(t, err)
	return process
}

// refuse makes an admission policy, and waits until it is in force.
func (w onPlane) refuse(t *testing.T, what refusedRequests) (accept func()) {
	t.Helper()
	policy := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: "test-refuses"}}
	policy.Spec.MatchConstraints = &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{
		RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{what.operation},
			Rule:       admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{what.resource}},
		},
	}}}
	policy.Spec.Validations = []admissionv1.Validation{{Expression: fmt.Sprintf("!request.name.matches('%s')", what.name), Message: refusedByTest}}
	binding := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: policy.ObjectMeta}
	binding.Spec.PolicyName = policy.Name
	binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Deny}
	policies, bindings := w.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies(), w.admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	if _, err := policies.Create(life(t), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := bindings.Create(life(t), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	inForce := func(refused bool) {
		w.await(t, fmt.Sprintf("%s of %s are refused: %v", what.operation, what.name, refused), func() (bool, string) {
			err := what.try()
			return (err != nil && contains(err.Error(), refusedByTest)) == refused, fmt.Sprint(err)
		})
	}
	inForce(true)
	accepted := false
	accept = func() {
		if accepted {
			return
		}
		accepted = true
		must.OK(t, bindings.Delete(life(t), binding.Name, metav1.DeleteOptions{}))
		must.OK(t, policies.Delete(life(t), policy.Name, metav1.DeleteOptions{}))
		inForce(false)
	}
	t.Cleanup(accept)
	return accept
}

// refusedByTest is what the API server says of a request that a test has refused.
const refusedByTest = "refused by a test"

// rejected reads the logs of schedulers and controllers.
func (w onPlane) rejected(t *testing.T, namespace string) (all []rejectedEvent) {
	t.Helper()
	for _, name := range []string{"scheduler", "controller"} {
		logs, err := filepath.Glob(filepath.Join(w.plane.Dir(), "logs", name+"*.log"))
		must.OK(t, err)
		for _, file := range logs {
			raw, err := os.ReadFile(file)
			must.OK(t, err)
			all = append(all, rejectedEvents(string(raw))...)
		}
	}
	return slices.DeleteFunc(all, func(e rejectedEvent) bool { return e.namespace != namespace })
}
