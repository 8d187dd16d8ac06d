package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	kyaml "sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// TestOperators has the controller resize objects of operators that run: JobSet with its webhooks, and Kubeflow's training
// operator.
func TestOperators(t *testing.T) {
	if os.Getenv("TANDEM_OPERATORS") != "1" {
		t.Skip("needs operators, minutes of building that no other test here needs: make test-operators runs it (TANDEM_OPERATORS=1)")
	}
	t.Parallel()
	c := startGangCluster(t, gangModes()[0], buildScheduler(t))
	c.startKubelets(t)
	c.startController(t)
	kinds := operatedKinds()
	for _, kind := range kinds {
		c.applySource(t, kind.module, kind.file)
	}
	find := func(name string) operated {
		return kinds[slices.IndexFunc(kinds, func(k operated) bool { return k.name == name })]
	}
	c.startJobSet(t)
	c.startTrainingOperator(t)
	c.play(t, "JobSet refuses", func(t *testing.T, c *gangCluster) { jobSetRefuses(t, c, find("jobset")) })
	c.play(t, "the example of JobSet is a gang", func(t *testing.T, c *gangCluster) { exampleStarts(t, c, "jobset", "recommender", 4) })
	c.play(t, "the example of PyTorchJob is a gang", func(t *testing.T, c *gangCluster) { exampleStarts(t, c, "pytorchjob", "translator", 3) })
	c.play(t, "a PyTorchJob grows and shrinks", func(t *testing.T, c *gangCluster) { pyTorchJobResizes(t, c, find("pytorchjob")) })
}

// exampleStarts: an operator makes the pods of its example. They wait together while there is room for some of them, and start together.
func exampleStarts(t *testing.T, c *gangCluster, file, gang string, members int) {
	c.createSingles(t, "other", clusterGPUs-1, 10, nil)
	if !c.applyExample(t, operatorExample(t, file)) {
		t.Fatalf("the API server does not serve a kind of the example %s", file)
	}
	c.poll(t, "all members are refused", func() (bool, string) {
		marked := 0
		for _, p := range c.members(t, gang) {
			if scheduledReason(&p) == v1.PodReasonUnschedulable {
				marked++
			}
		}
		return marked == members, fmt.Sprintf("%d are", marked)
	})
	c.finish(t, "other-0", "other-1")
	c.awaitGang(t, gang, members)
}

// operator starts an operator as an administrator.
func (c *gangCluster) operator(t *testing.T, module, pkg string, args ...string) {
	t.Helper()
	binary, err := sandbox.Operator(t.Context(), module, pkg)
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := c.plane.Kubeconfig("operator", []string{"system:masters"})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	process, err := c.plane.Processes().Start(filepath.Base(module), cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s said:\n%s", module, process.Tail(40))
		}
	})
}

// certificates fills a directory with the certificate of the API server, under the names of webhook servers.
func (c *gangCluster) certificates(t *testing.T, dir string) {
	t.Helper()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"apiserver.crt": "tls.crt", "apiserver.key": "tls.key", "ca.crt": "ca.crt"} {
		raw, err := os.ReadFile(filepath.Join(c.plane.Dir(), "pki", from))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, to), raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

const jobSetModule = "sigs.k8s.io/jobset"

// startJobSet starts JobSet with its webhooks, which the API server reaches by loopback.
func (c *gangCluster) startJobSet(t *testing.T) {
	t.Helper()
	ports, err := sandbox.FreePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	c.certificates(t, dir)
	config := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, `apiVersion: config.jobset.x-k8s.io/v1alpha1
kind: Configuration
leaderElection: {leaderElect: false}
health: {healthProbeBindAddress: "127.0.0.1:%d"}
metrics: {bindAddress: "127.0.0.1:%d"}
webhook: {host: 127.0.0.1, port: %d, certDir: %s}
internalCertManagement: {enable: false}
`, ports[0], ports[1], ports[2], dir), 0o600); err != nil {
		t.Fatal(err)
	}
	c.operator(t, jobSetModule, ".", "--config", config)
	source, err := sandbox.OperatorSource(t.Context(), jobSetModule)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(filepath.Join(source, "config", "components", "webhook", "manifests.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	ca, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	c.plane.ApplyForTest(t.Context(), t, byURL(t, "jobset", string(raw), fmt.Sprintf("https://127.0.0.1:%d", ports[2]), ca))
}

// byURL has the webhooks of a manifest called by a URL, in place of a Service. The names of the configurations begin with that of the
// operator. Of the webhooks it leaves out those for whose kinds none of the names is given, where any is.
func byURL(t *testing.T, operator, manifest, url string, ca []byte, kinds ...string) string {
	t.Helper()
	var out strings.Builder
	for _, text := range regexp.MustCompile(`(?m)^---$`).Split(manifest, -1) {
		var configuration map[string]any
		if err := kyaml.Unmarshal([]byte(text), &configuration); err != nil {
			t.Fatal(err)
		}
		if configuration == nil {
			continue
		}
		configuration["metadata"].(map[string]any)["name"] = operator + "-" + strings.ToLower(configuration["kind"].(string))
		configuration["webhooks"] = slices.DeleteFunc(configuration["webhooks"].([]any), func(webhook any) bool {
			kind, _, _ := strings.Cut(webhook.(map[string]any)["name"].(string)[1:], ".") // "mjob.kb.io" is for Jobs
			return len(kinds) > 0 && !slices.Contains(kinds, kind)
		})
		for _, webhook := range configuration["webhooks"].([]any) {
			w := webhook.(map[string]any)
			service := w["clientConfig"].(map[string]any)["service"].(map[string]any)
			w["clientConfig"] = map[string]any{"url": url + service["path"].(string), "caBundle": ca}
		}
		raw, err := kyaml.Marshal(configuration)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&out, "---\n%s\n", raw)
	}
	return out.String()
}

// startTrainingOperator starts Kubeflow's training operator without its webhooks. It reads a certificate from a fixed place.
func (c *gangCluster) startTrainingOperator(t *testing.T) {
	t.Helper()
	ports, err := sandbox.FreePorts(3)
	if err != nil {
		t.Fatal(err)
	}
	const namespace, secret = "kubeflow", "training-operator-webhook-cert"
	if _, err := c.admin.CoreV1().Namespaces().Create(t.Context(), &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.admin.CoreV1().Secrets(namespace).Create(t.Context(), &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(os.TempDir(), "k8s-webhook-server")
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c.certificates(t, filepath.Join(dir, "serving-certs"))
	c.operator(t, "github.com/kubeflow/training-operator", "./cmd/training-operator.v1", "--enable-scheme=pytorchjob",
		fmt.Sprintf("--metrics-bind-address=127.0.0.1:%d", ports[0]), fmt.Sprintf("--health-probe-bind-address=127.0.0.1:%d", ports[1]),
		fmt.Sprintf("--webhook-server-port=%d", ports[2]))
}

// jobSetRefuses: this version of JobSet does not let the number of pods change. Its message is the condition, and the members keep
// running.
func jobSetRefuses(t *testing.T, c *gangCluster, kind operated) {
	c.joinsAtOnce(t, kind.name)
	pod := c.operatedPod(kind.name)
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	c.poll(t, "the webhooks of JobSet answer", func() (bool, string) {
		return c.tryOperated(t, kind, pod)
	})
	c.awaitCondition(t, kind.name, "ChangeRefused", "JobSet.jobset.x-k8s.io jobset change from 2 to 8")
	c.awaitCondition(t, kind.name, "ChangeRefused", "field is immutable")
	c.awaitField(t, kind, kind.name, 2)
	c.awaitWorkersOf(t, kind.name, 2)
}

// tryOperated makes an object, and reports whether the API server took it.
func (c *gangCluster) tryOperated(t *testing.T, kind operated, pod *v1.Pod) (bool, string) {
	t.Helper()
	_, err := c.objects.Resource(kind.resource).Namespace(c.namespace).Create(t.Context(), c.operatedObject(t, kind, pod), metav1.CreateOptions{})
	return err == nil, fmt.Sprint(err)
}

// awaitWorkersOf waits until so many members of a gang have a node, and no others exist.
func (c *gangCluster) awaitWorkersOf(t *testing.T, gang string, count int) {
	t.Helper()
	c.poll(t, fmt.Sprintf("gang %s has %d members", gang, count), func() (bool, string) {
		return len(c.namesOnNodes(t, gang)) == count && len(c.members(t, gang)) == count && c.target(t, gang).Spec.Workers == int32(count),
			fmt.Sprintf("target %+v; %s", c.target(t, gang).Spec, c.phases(t, gang))
	})
}

// pyTorchJobResizes: the operator makes the workers and deletes the last ones, as the field says. No worker counts as failed.
func pyTorchJobResizes(t *testing.T, c *gangCluster, kind operated) {
	c.joinsAtOnce(t, kind.name)
	c.createOperated(t, kind, c.operatedPod(kind.name))
	c.awaitWorkersOf(t, kind.name, 8)
	c.create(t, testGang{name: "rigid", members: 12, min: 12, slots: 10})
	c.awaitGang(t, "rigid", 12)
	c.awaitWorkersOf(t, kind.name, 4)
	for _, p := range c.members(t, kind.name) {
		if i := p.Labels["training.kubeflow.org/replica-index"]; i > "3" {
			t.Errorf("worker %s stays", i)
		}
		if _, told := p.Annotations[v1alpha1.AnnotationLeaving]; told {
			t.Errorf("pod %s stays, and was told that it leaves", p.Name)
		}
	}
	c.deletePods(t, "rigid")
	c.awaitWorkersOf(t, kind.name, 8)
	now := c.awaitField(t, kind, kind.name, 8)
	conditions, _, _ := unstructured.NestedSlice(now.Object, "status", "conditions")
	for _, raw := range conditions {
		if condition := raw.(map[string]any); condition["type"] == "Failed" || condition["type"] == "Succeeded" {
			t.Errorf("the PyTorchJob is %v: %v", condition["type"], condition["message"])
		}
	}
}
