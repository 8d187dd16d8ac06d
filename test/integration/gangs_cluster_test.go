package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/job"
	"k8s.io/kubernetes/pkg/controller/scheduling/podgroupprotection"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpugang"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpupreempt"
	"github.com/tandem-gpu/tandem/test/cluster"
	"github.com/tandem-gpu/tandem/test/fakecluster"
	"github.com/tandem-gpu/tandem/test/must"
)

// The cluster of the tests: two racks of two nodes with four GPUs each, 16 in all.
const (
	rackLabel   = "example.com/rack"
	gangNodes   = 4
	gpusPerNode = 4
	clusterGPUs = gangNodes * gpusPerNode
)

// xk8sCRD is the PodGroup of the scheduler plugins, relative to the root of the repository.
const xk8sCRD = "test/testdata/podgroups.scheduling.x-k8s.io.yaml"

// gangCluster is an API server, nodes and a scheduler, in one world or another.
type gangCluster struct {
	gangMode
	world
	// plane is the control plane with deploy/ applied, nil in a bubble.
	plane *sandbox.ControlPlane
	// api is how administrators reach the API server.
	api     *rest.Config
	admin   kubernetes.Interface
	objects dynamic.Interface
	history *gangHistory
	proxy   *stableProxy // by which the scheduler reaches the API server; nil for none
	gpus    []*v1alpha1.GPUNode

	binary    string
	scheduler program
	// controller is Tandem's, nil where the tests need none.
	controller program
	// preempt changes the arguments of GPUPreempt of the schedulers that are started; nil for none.
	preempt func(args map[string]any)
	// flags come at the end of the command lines of the schedulers that are started.
	flags  []string
	starts int
	// namespace of the test that runs.
	namespace string
	tests     int
}

func startGangCluster(t *testing.T, mode gangMode, binary string) *gangCluster {
	t.Helper()
	return startCluster(t, mode, binary, slices.Repeat([]int{gpusPerNode}, gangNodes)...)
}

// startCluster returns a cluster on a control plane, with nodes n0, n1, … of so many GPUs each, two to a rack.
func startCluster(t *testing.T, mode gangMode, binary string, gpus ...int) *gangCluster {
	t.Helper()
	c := newPlane(t, mode)
	c.binary = binary
	if mode.stable {
		c.proxy = newStableProxy(t, c.api)
	}
	c.begin(t, gpus)
	return c
}

// newPlane returns a control plane with deploy/ applied, and nothing beside it.
func newPlane(t *testing.T, mode gangMode) *gangCluster {
	t.Helper()
	c := &gangCluster{gangMode: mode, plane: sandbox.StartForTest(t, mode.api)}
	c.world, c.api = onPlane{c}, c.plane.Admin()
	c.connect(t)
	c.install(t)
	return c
}

// connect makes the clients of the administrator.
func (c *gangCluster) connect(t *testing.T) {
	t.Helper()
	c.admin = clientFor(t, c.api)
	objects, err := dynamic.NewForConfig(patient(c.api))
	must.OK(t, err)
	c.objects = objects
}

// begin makes the nodes and starts what runs beside the API server.
func (c *gangCluster) begin(t *testing.T, gpus []int) {
	t.Helper()
	c.createNodes(t, gpus)
	c.startControllers(t)
	c.history = watchGangs(t, c.admin)
	c.startScheduler(t)
}

func (c *gangCluster) createNodes(t *testing.T, gpus []int) {
	t.Helper()
	c.gpus = nil
	for i, count := range gpus {
		g := fakecluster.GPUNode(fmt.Sprintf("n%d", i), count)
		createNode(t, c.api, g)
		c.label(t, g.Name, fmt.Sprintf("r%d", i/2))
		c.gpus = append(c.gpus, g)
	}
}

// install applies deploy/, without what would run in pods, and the CRDs of the mode.
func (c *gangCluster) install(t *testing.T) {
	t.Helper()
	_, err := cluster.Apply(t.Context(), c.plane, "deploy")
	must.OK(t, err)
	for _, file := range c.crds {
		c.applyFile(t, file)
	}
}

// label gives a node the labels of a kubelet and of its rack.
func (c *gangCluster) label(t *testing.T, node, rack string) {
	t.Helper()
	n, err := c.admin.CoreV1().Nodes().Get(life(t), node, metav1.GetOptions{})
	must.OK(t, err)
	n.Labels = map[string]string{v1.LabelHostname: node, v1.LabelTopologyZone: "z", rackLabel: rack}
	if _, err := c.admin.CoreV1().Nodes().Update(life(t), n, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// startControllers runs, in this process, those of Kubernetes' controllers that the tests lean on: Jobs make their pods, and
// a PodGroup of Kubernetes goes once its pods have.
func (c *gangCluster) startControllers(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	factory := informers.NewSharedInformerFactory(c.admin, 0)
	scheduling := factory.Scheduling().V1beta1()
	pods := factory.Core().V1().Pods()
	jobs, err := job.NewController(ctx, c.admin, pods, factory.Batch().V1().Jobs(), scheduling.Workloads(), scheduling.PodGroups())
	must.OK(t, err)
	running := []func(context.Context, int){jobs.Run}
	if groups, ok := c.podGroups(); ok && groups == membership.NativePodGroups {
		protection, err := podgroupprotection.NewPodGroupProtectionController(klog.FromContext(ctx), scheduling.PodGroups(), pods, c.admin)
		must.OK(t, err)
		running = append(running, protection.Run)
	}
	factory.Start(ctx.Done())
	done := make(chan struct{}, len(running))
	for _, run := range running {
		go func() { run(ctx, 2); done <- struct{}{} }()
	}
	t.Cleanup(func() {
		cancel()
		for range running {
			<-done
		}
		factory.Shutdown()
	})
}

// startScheduler starts the scheduler with the configuration of deploy/. It elects no leader: a scheduler that was killed would be
// waited for. Changes are to the arguments of GPUGang.
func (c *gangCluster) startScheduler(t *testing.T, changes ...func(gang map[string]any)) {
	t.Helper()
	root, err := sandbox.Root()
	must.OK(t, err)
	raw, err := os.ReadFile(filepath.Join(root, "deploy", "scheduler", "config.yaml"))
	must.OK(t, err)
	config, err := sandbox.SchedulerConfig(raw, "")
	must.OK(t, err)
	for _, change := range changes {
		change(arguments(t, config, gpugang.Name))
	}
	if c.preempt != nil {
		c.preempt(arguments(t, config, gpupreempt.Name))
	}
	config["podInitialBackoffSeconds"], config["podMaxBackoffSeconds"] = 1, 2
	c.scheduler = c.world.startScheduler(t, config)
}

// arguments returns the arguments of a plugin in a configuration.
func arguments(t *testing.T, config map[string]any, name string) map[string]any {
	t.Helper()
	profile := config["profiles"].([]any)[0].(map[string]any)
	for _, entry := range profile["pluginConfig"].([]any) {
		if plugin := entry.(map[string]any); plugin["name"] == name {
			return plugin["args"].(map[string]any)
		}
	}
	t.Fatalf("the configuration of deploy/ has no arguments of %s", name)
	panic("unreachable")
}

// play runs a test in a namespace of its own and removes what it left.
func (c *gangCluster) play(t *testing.T, name string, test func(*testing.T, *gangCluster)) {
	t.Run(name, func(t *testing.T) { c.playIn(t, test) })
}

func (c *gangCluster) playIn(t *testing.T, test func(*testing.T, *gangCluster)) {
	t.Helper()
	c.tests++
	c.namespace = fmt.Sprintf("team-%d", c.tests)
	namespace := &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}
	if _, err := c.admin.CoreV1().Namespaces().Create(life(t), namespace, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the scheduler said:\n%s", c.scheduler.Tail(60))
		}
		c.clear(t)
	})
	test(t, c)
}

// clear removes the pods of the test, and what would make them again.
func (c *gangCluster) clear(t *testing.T) {
	t.Helper()
	everything := metav1.ListOptions{}
	must.OK(t, c.admin.BatchV1().Jobs(c.namespace).DeleteCollection(life(t), metav1.DeleteOptions{}, everything))
	c.deletePods(t, "")
	if resource, ok := c.podGroups(); ok {
		if err := c.objects.Resource(resource).Namespace(c.namespace).
			DeleteCollection(life(t), metav1.DeleteOptions{}, everything); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-c.scheduler.Done():
		t.Errorf("the scheduler ended: %v", c.scheduler.Err())
	default:
	}
}

// documents decodes a file of manifests.
func documents(t *testing.T, file string) []*unstructured.Unstructured {
	t.Helper()
	raw, err := os.ReadFile(file)
	must.OK(t, err)
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096)
	var all []*unstructured.Unstructured
	for {
		object := &unstructured.Unstructured{}
		err := decoder.Decode(&object.Object)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all = append(all, object)
	}
}
