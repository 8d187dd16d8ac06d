package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/tandem-gpu/tandem/internal/cluster/served"
	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/internal/shadow/recorder"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/shadow"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/test/cluster"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestShadow runs shadow mode as it is built, under the rights of its account, beside the stock scheduler in a cluster without Tandem:
// two nodes of two GPUs each, known by the labels of GPU feature discovery. The stock scheduler spreads two pods of one GPU over the
// nodes, so that a pod of two GPUs waits for the end of one of them. Tandem would have started it.
func TestShadow(t *testing.T) {
	t.Parallel()
	c := startShadowCluster(t)
	c.create(t, "one", 1)
	c.create(t, "two", 1)
	first, second := c.awaitNode(t, "one"), c.awaitNode(t, "two")
	if first == second {
		t.Fatalf("the stock scheduler has put both pods on %s", first)
	}
	c.create(t, "large", 2)
	c.awaitReport(t, "large waits in one world only", func(r *shadow.Report) bool {
		return r.Pods == 3 && r.Other.Waiting.Still == 1 && r.OnlyTandem == 1
	})
	r := c.report(t)
	if r.OnlyOther != 0 || r.Tandem.Waiting.Still != 0 || r.Tandem.Waiting.P99Millis != 0 || r.GPUs != 4 || r.Other.Touched != 2 || r.Tandem.Touched != 4 {
		t.Errorf("the report is %+v", r)
	}
	if len(r.Unknown) != 2 || r.Unknown[0].What != "node bare" || !strings.Contains(r.Unknown[0].Why, "nvidia.com/gpu.product") {
		t.Errorf("unknown is %+v", r.Unknown)
	}
	c.finish(t, "one")
	c.awaitNode(t, "large")
	c.awaitReport(t, "large has started in both worlds", func(r *shadow.Report) bool {
		return r.OnlyTandem == 0 && r.OnlyOther == 0 && r.Other.Waiting.Still == 0 && r.Other.Touched == 3
	})
	t.Run("nobody reads the report without the right to it", func(t *testing.T) {
		poll(t, "it answers that this is forbidden", func(ctx context.Context) (bool, string) { // a starved API server may not tell it in time
			code, body, err := c.ask(ctx, "", "")
			if code == http.StatusOK {
				t.Fatalf("answered %d %s, %v", code, body, err)
			}
			return err == nil && code == http.StatusForbidden, fmt.Sprintf("%d %s, %v", code, body, err)
		})
	})
	t.Run("it only reads", c.onlyReads)
	t.Run("it prints the report when it ends", func(t *testing.T) {
		c.process.Stop(time.Minute)
		log, err := os.ReadFile(c.process.Log())
		must.OK(t, err)
		if err := c.process.Err(); err != nil || !strings.Contains(string(log), "Shadow of default-scheduler from") || !strings.Contains(string(log), "Unknown: node bare") {
			t.Errorf("it ended with %v and wrote:\n%s", err, log)
		}
	})
}

// shadowCluster is a cluster with the stock scheduler, and shadow mode as a process.
type shadowCluster struct {
	plane   *sandbox.ControlPlane
	admin   kubernetes.Interface
	process *supervised
	port    int
	token   string
}

func startShadowCluster(t *testing.T) *shadowCluster {
	t.Helper()
	c := &shadowCluster{plane: sandbox.StartForTest(t, sandbox.Options{Authorization: authorization})}
	c.admin = clientFor(t, c.plane.Admin())
	if _, err := cluster.Apply(t.Context(), c.plane, "deploy/shadow"); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"n0", "n1", "bare"} {
		c.createNode(t, name)
	}
	startStockScheduler(t, c)
	readers := &snapshotCluster{gangCluster: &gangCluster{admin: c.admin}}
	c.token = readers.account(t, "auditor", []string{"tandem-shadow-reader", listsPods})
	c.start(t)
	return c
}

// createNode creates a ready node of two GPUs, with the labels of GPU feature discovery unless it is bare.
func (c *shadowCluster) createNode(t *testing.T, name string) {
	t.Helper()
	labels := map[string]string{
		"nvidia.com/gpu.count": "2", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB", "nvidia.com/gpu.memory": "40960", "nvidia.com/gpu.replicas": "1",
	}
	if name == "bare" {
		labels = nil
	}
	err := cluster.AddNode(t.Context(), c.admin, name, labels, v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("16"), v1.ResourceMemory: resource.MustParse("64Gi"), v1.ResourcePods: resource.MustParse("100"),
		"nvidia.com/gpu": resource.MustParse("2"),
	})
	must.OK(t, err)
	if name == "bare" {
		unschedulable := []byte(`{"spec": {"unschedulable": true}}`)
		if _, err := c.admin.CoreV1().Nodes().Patch(t.Context(), name, types.MergePatchType, unschedulable, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// startStockScheduler runs the stock scheduler with its default profile until the test ends.
func startStockScheduler(t *testing.T, c *shadowCluster) {
	t.Helper()
	ctx, cancel := context.WithCancel(life(t))
	factory := scheduler.NewInformerFactory(c.admin, 0, nil)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: c.admin.EventsV1()})
	s, err := scheduler.New(ctx, c.admin, factory, nil, profile.NewRecorderFactory(broadcaster), scheduler.WithKubeConfig(c.plane.Admin()),
		scheduler.WithPodInitialBackoffSeconds(1), scheduler.WithPodMaxBackoffSeconds(1))
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
		broadcaster.Shutdown()
	})
}

// start runs shadow mode under its account until the test ends.
func (c *shadowCluster) start(t *testing.T) {
	t.Helper()
	binary := sandbox.ProgramForTest(t, "shadow")
	kubeconfig, err := c.plane.ServiceAccount(life(t), "tandem-system", "tandem-shadow")
	must.OK(t, err)
	ports, err := sandbox.FreePorts(1)
	must.OK(t, err)
	c.port = ports[0]
	c.process, err = supervise(c.plane.Processes(), "shadow", func() *exec.Cmd {
		return exec.Command(binary, "--kubeconfig="+kubeconfig, "--node-interval=1s",
			"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.port), "--authentication-kubeconfig="+kubeconfig, "--authorization-kubeconfig="+kubeconfig)
	})
	must.OK(t, err)
	c.awaitReport(t, "there is a report", func(*shadow.Report) bool { return true })
}

// create creates a pod with whole GPUs for the stock scheduler.
func (c *shadowCluster) create(t *testing.T, name string, gpus int64) {
	t.Helper()
	limits := v1.ResourceList{"nvidia.com/gpu": *resource.NewQuantity(gpus, resource.DecimalSI), v1.ResourceCPU: resource.MustParse("1")}
	_, err := c.admin.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1.PodSpec{Containers: []v1.Container{{Name: "main", Image: "none", Resources: v1.ResourceRequirements{Limits: limits}}}},
	}, metav1.CreateOptions{})
	must.OK(t, err)
}

func (c *shadowCluster) awaitNode(t *testing.T, name string) (node string) {
	t.Helper()
	poll(t, name+" has a node", func(ctx context.Context) (bool, string) {
		p, err := c.admin.CoreV1().Pods("default").Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		node = p.Spec.NodeName
		return node != "", fmt.Sprintf("%+v", p.Status.Conditions)
	})
	return node
}

// finish makes a pod end, as its kubelet would say it.
func (c *shadowCluster) finish(t *testing.T, name string) {
	t.Helper()
	pods := c.admin.CoreV1().Pods("default")
	p, err := pods.Get(t.Context(), name, metav1.GetOptions{})
	must.OK(t, err)
	p.Status.Phase = v1.PodSucceeded
	p.Status.ContainerStatuses = []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{Terminated: &v1.ContainerStateTerminated{FinishedAt: metav1.Now()}}}}
	if _, err := pods.UpdateStatus(t.Context(), p, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// ask asks for the report with a token, "" for none.
func (c *shadowCluster) ask(ctx context.Context, token, query string) (int, string, error) {
	return askWith(ctx, token, fmt.Sprintf("https://127.0.0.1:%d/report%s", c.port, query))
}

// awaitReport waits for a report.
func (c *shadowCluster) awaitReport(t *testing.T, what string, ok func(*shadow.Report) bool) {
	t.Helper()
	poll(t, what, func(ctx context.Context) (bool, string) {
		code, body, err := c.ask(ctx, c.token, "?format=json")
		if err != nil || code != http.StatusOK {
			return false, fmt.Sprintf("%d %v %s\n%s", code, err, body, c.process.Tail(5))
		}
		var r shadow.Report
		must.OK(t, json.Unmarshal([]byte(body), &r))
		return ok(&r), body
	})
}

func (c *shadowCluster) report(t *testing.T) (report *shadow.Report) {
	t.Helper()
	c.awaitReport(t, "there is a report", func(r *shadow.Report) bool { report = r; return true })
	return report
}

// requests records the methods of requests, and passes them on.
type requests struct {
	http.RoundTripper
	mu      sync.Mutex
	methods []string
}

// RoundTrip records a request.
func (r *requests) RoundTrip(request *http.Request) (*http.Response, error) {
	r.mu.Lock()
	r.methods = append(r.methods, request.Method)
	r.mu.Unlock()
	return r.RoundTripper.RoundTrip(request)
}

// onlyReads runs the recorder over the cluster, with a pod that comes and one that ends, and sees that no request is other than a GET.
func (c *shadowCluster) onlyReads(t *testing.T) {
	seen := &requests{}
	api := c.plane.Admin()
	api.Wrap(func(next http.RoundTripper) http.RoundTripper { seen.RoundTripper = next; return seen })
	client, err := kubernetes.NewForConfig(api)
	must.OK(t, err)
	custom, err := dynamic.NewForConfig(api)
	must.OK(t, err)
	has, err := served.Ask(t.Context(), client.Discovery(), recorder.Resources()...)
	must.OK(t, err)
	policy, err := placement.ByName("tandem")
	must.OK(t, err)
	facts, err := recorder.Watch(t.Context(), recorder.Options{
		Config:        shadow.Config{Policy: policy, Queue: sim.Skip, Keep: time.Hour, MaxPods: 100},
		SchedulerName: "default-scheduler", Now: time.Now,
	}, recorder.Cluster{Client: client, Dynamic: custom, Served: has, Every: time.Second})
	must.OK(t, err)
	c.create(t, "late", 1)
	c.awaitNode(t, "late")
	c.finish(t, "late")
	poll(t, "the recorder has seen the pod end", func(context.Context) (bool, string) {
		r, err := facts.Report()
		return err == nil && r.Pods == 1 && r.Other.Waiting.Still == 0, fmt.Sprintf("%+v %v", r, err)
	})
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if len(seen.methods) == 0 || slices.ContainsFunc(seen.methods, func(m string) bool { return m != http.MethodGet }) {
		t.Errorf("the requests are %v", seen.methods)
	}
}
