package integration

import (
	"fmt"
	"io/fs"
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
	"k8s.io/apimachinery/pkg/runtime/schema"
	kyaml "sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestOperators has operators that run make the pods of their examples, and the controller resize their objects. JobSet and LeaderWorkerSet
// run with their webhooks, the others without.
func TestOperators(t *testing.T) {
	if os.Getenv("TANDEM_OPERATORS") != "1" {
		t.Skip("needs operators, minutes of building that no other test here needs: make test-operators runs it (TANDEM_OPERATORS=1)")
	}
	t.Parallel()
	mode := gangModes()[0]
	mode.crds = []string{xk8sCRD} // Trainer writes PodGroups
	c := startGangCluster(t, mode, schedulerProgram(t))
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
	c.startTrainer(t)
	c.startMPIOperator(t)
	c.startKubeRay(t)
	c.startLeaderWorkerSet(t)
	c.startGarbageCollector(t)
	c.play(t, "JobSet refuses", func(t *testing.T, c *gangCluster) { jobSetRefuses(t, c, find("jobset")) })
	for _, example := range []struct {
		file, gang     string
		members, slots int // of each member with a GPU
	}{
		{"jobset", "recommender", 4, 10},
		{"pytorchjob", "translator", 3, 10},
		{"trainjob", "classifier", 4, 5},
		{"mpijob", "solver", 3, 5},
		{"raycluster", "tuner", 3, 5},
		{"leaderworkerset", "chat-0", 4, 10},
	} {
		c.play(t, "the example "+example.file+" is a gang", func(t *testing.T, c *gangCluster) {
			exampleStarts(t, c, example.file, example.gang, example.members, example.slots)
		})
	}
	c.play(t, "Trainer does not follow", func(t *testing.T, c *gangCluster) { trainerDoesNotFollow(t, c, find("trainjob")) })
	c.play(t, "workers of a LeaderWorkerSet come after their leader", workersAfterLeader)
	for _, name := range []string{"pytorchjob", "mpijob", "raycluster"} {
		c.play(t, "a "+name+" grows and shrinks", func(t *testing.T, c *gangCluster) { workersResize(t, c, find(name)) })
	}
}

// exampleStarts: an operator makes the pods of its example. They wait together while there is room for one with so many slots, and start
// together.
func exampleStarts(t *testing.T, c *gangCluster, file, gang string, members, slots int) {
	c.createSingles(t, "other", clusterGPUs-1, 10, nil)
	if slots < 10 {
		c.createSingles(t, "part", 1, 10-slots, nil)
	}
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
	c.finish(t, "other-0", "other-1", "other-2")
	c.awaitGang(t, gang, members)
}

// operator starts an operator as an administrator.
func (c *gangCluster) operator(t *testing.T, module, pkg string, args ...string) {
	t.Helper()
	binary, err := sandbox.Tool(t.Context(), module+":"+pkg)
	must.OK(t, err)
	kubeconfig, err := c.plane.Kubeconfig("operator", []string{"system:masters"})
	must.OK(t, err)
	cmd := exec.Command(binary, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	process, err := c.plane.Processes().Start(filepath.Base(module), cmd)
	must.OK(t, err)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s said:\n%s", module, process.Tail(40))
		}
	})
}

// certificates fills a directory with the certificate of the API server, under the names of webhook servers.
func (c *gangCluster) certificates(t *testing.T, dir string) {
	t.Helper()
	must.OK(t, os.MkdirAll(dir, 0o700))
	for from, to := range map[string]string{"apiserver.crt": "tls.crt", "apiserver.key": "tls.key", "ca.crt": "ca.crt"} {
		raw, err := os.ReadFile(filepath.Join(c.plane.Dir(), "pki", from))
		must.OK(t, err)
		must.OK(t, os.WriteFile(filepath.Join(dir, to), raw, 0o600))
	}
}

const jobSetModule = "sigs.k8s.io/jobset"

// startJobSet starts JobSet with its webhooks, which the API server reaches by loopback.
func (c *gangCluster) startJobSet(t *testing.T) {
	t.Helper()
	ports, err := sandbox.FreePorts(3)
	must.OK(t, err)
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
	c.applyWebhooks(t, jobSetModule, "config/components/webhook/manifests.yaml", ports[2])
}

// applyWebhooks has the API server call the webhooks that a file of an operator's source lists, at a port of loopback. The kinds are those of
// byURL.
func (c *gangCluster) applyWebhooks(t *testing.T, module, file string, port int, kinds ...string) {
	t.Helper()
	source, err := sandbox.OperatorSource(t.Context(), module)
	must.OK(t, err)
	raw, err := fs.ReadFile(os.DirFS(source), file)
	must.OK(t, err)
	ca, err := os.ReadFile(filepath.Join(c.plane.Dir(), "pki", "ca.crt"))
	must.OK(t, err)
	c.plane.ApplyForTest(t.Context(), t, byURL(t, filepath.Base(module), string(raw), fmt.Sprintf("https://127.0.0.1:%d", port), ca, kinds...))
}

// byURL has the webhooks of a manifest called by a URL, in place of a Service. The names of the configurations begin with that of the
// operator. If any kind is given, it leaves out the webhooks for other kinds.
func byURL(t *testing.T, operator, manifest, url string, ca []byte, kinds ...string) string {
	t.Helper()
	var out strings.Builder
	for _, text := range regexp.MustCompile(`(?m)^---$`).Split(manifest, -1) {
		var configuration map[string]any
		must.OK(t, kyaml.Unmarshal([]byte(text), &configuration))
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
		must.OK(t, err)
		fmt.Fprintf(&out, "---\n%s\n", raw)
	}
	return out.String()
}

// jobSetRefuses: this version of JobSet does not let the number of pods change. Its message is the condition, and the members keep
// running.
func jobSetRefuses(t *testing.T, c *gangCluster, kind operated) {
	c.joinsAtOnce(t, kind.name)
	pod := c.operatedPod(kind.name)
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	c.poll(t, "the webhooks of JobSet answer", func() (bool, string) {
		_, err := c.tryOperated(t, kind, pod)
		return err == nil, fmt.Sprint(err)
	})
	c.awaitCondition(t, kind.name, "ChangeRefused", "JobSet.jobset.x-k8s.io jobset change from 2 to 8")
	c.awaitCondition(t, kind.name, "ChangeRefused", "field is immutable")
	c.awaitField(t, kind, kind.name, 2)
	c.awaitWorkersOf(t, kind.name, 2)
}

// awaitWorkersOf waits until so many members of a gang have a node, and no others exist.
func (c *gangCluster) awaitWorkersOf(t *testing.T, gang string, count int) {
	t.Helper()
	c.poll(t, fmt.Sprintf("gang %s has %d members", gang, count), func() (bool, string) {
		return len(c.namesOnNodes(t, gang)) == count && len(c.members(t, gang)) == count && c.target(t, gang).Spec.Workers == int32(count),
			fmt.Sprintf("target %+v; %s", c.target(t, gang).Spec, c.phases(t, gang))
	})
}

// workersResize: the operator makes workers and deletes some, as the field says: those that the controller told that they leave, or the
// last ones. The job does not fail by that.
func workersResize(t *testing.T, c *gangCluster, kind operated) {
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
			t.Errorf("the %s is %v: %v", kind.kind, condition["type"], condition["message"])
		}
	}
}

// workersAfterLeader: with exclusive placement LeaderWorkerSet makes workers once their leader has a node. They are a gang without it.
func workersAfterLeader(t *testing.T, c *gangCluster) {
	set := fmt.Sprintf(`apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata:
  name: chat
  namespace: %s
  annotations: {leaderworkerset.sigs.k8s.io/exclusive-topology: %s}
spec:
  replicas: 1
  leaderWorkerTemplate:
    size: 4
    leaderTemplate:
      spec:
        schedulerName: tandem-scheduler
        containers: [{name: leader, image: none}]
    workerTemplate:
      metadata:
        labels: {tandem-gpu.io/gang: chat}
        annotations: {tandem-gpu.io/min-members: "3"}
      spec:
        schedulerName: tandem-scheduler
        containers: [{name: server, image: none, resources: {limits: {tandem-gpu.io/vgpu: "10"}}}]
`, c.namespace, rackLabel)
	c.plane.ApplyForTest(t.Context(), t, set)
	t.Cleanup(func() {
		sets := schema.GroupVersionResource{Group: "leaderworkerset.x-k8s.io", Version: "v1", Resource: "leaderworkersets"}
		if err := c.objects.Resource(sets).Namespace(c.namespace).Delete(life(t), "chat", metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
	c.awaitGang(t, "chat", 3)
	if leader := c.pod(t, "chat-0"); leader.Spec.NodeName == "" {
		t.Error("the leader has no node")
	}
}

// trainerDoesNotFollow: this version of Trainer takes another number of nodes, and leaves the JobSet as it is. The condition says so, and
// the number goes back.
func trainerDoesNotFollow(t *testing.T, c *gangCluster, kind operated) {
	c.joinsAtOnce(t, kind.name)
	pod := c.operatedPod(kind.name)
	pod.Spec.RestartPolicy = v1.RestartPolicyNever
	pod.Spec.Containers[0].Name = "node" // the name by which Trainer knows it
	labels := map[string]any{"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
	worker := map[string]any{"metadata": map[string]any{"labels": labels}, "spec": map[string]any{"template": templateOf(t, pod)}}
	runtime := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"mlPolicy": map[string]any{"numNodes": int64(2), "torch": map[string]any{"numProcPerNode": "auto"}},
		"template": map[string]any{"spec": map[string]any{"replicatedJobs": []any{map[string]any{"name": "node", "template": worker}}}},
	}}}
	runtime.SetGroupVersionKind(kind.resource.GroupVersion().WithKind("TrainingRuntime"))
	runtime.SetName("elastic")
	runtimes := c.objects.Resource(kind.resource.GroupVersion().WithResource("trainingruntimes")).Namespace(c.namespace)
	if _, err := runtimes.Create(t.Context(), runtime, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict}); err != nil {
		t.Fatal(err)
	}
	kind.spec = func(map[string]any) map[string]any {
		ref := map[string]any{"apiGroup": kind.resource.Group, "kind": "TrainingRuntime", "name": "elastic"}
		return map[string]any{"runtimeRef": ref, "trainer": map[string]any{"numNodes": int64(2)}}
	}
	c.createOperated(t, kind, pod)
	c.awaitField(t, kind, kind.name, 8)
	c.awaitCondition(t, kind.name, "OwnerDoesNotFollow", "its controller did not follow")
	c.awaitField(t, kind, kind.name, 2)
	c.awaitWorkersOf(t, kind.name, 2)
}
