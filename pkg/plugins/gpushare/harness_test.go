package gpushare

import (
	"context"
	"maps"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tandem-gpu/tandem/test/bubble"
	"github.com/tandem-gpu/tandem/test/fakeapi"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpuqueue"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakecluster"
	"github.com/tandem-gpu/tandem/test/must"
)

const gib = 1 << 30

// cluster is an API, real or in memory, with a scheduler that runs the plugin in the profile "default-scheduler".
type cluster struct {
	t       testing.TB
	client  kubernetes.Interface
	dynamic dynamic.Interface
	// seen by the scheduler instead of client, where they differ.
	schedulerClient kubernetes.Interface
	bindTimeout     time.Duration
	// configure changes the plugin's arguments, where they are not the usual ones.
	configure func(*config.GPUShareArgs)

	plugin *Plugin
	stop   func()
	// versions are the nodes of snapshots so far, of each plugin.
	versions map[*Plugin]map[uint64]snapshot.Node
}

// newCluster returns a cluster in memory with the given GPUNodes and a Node for each, and a running scheduler.
func newCluster(t testing.TB, gpuNodes ...*v1alpha1.GPUNode) *cluster {
	client := fakeapi.NewClientset()
	client.PrependReactor("create", "pods", bindReactor(client))
	c := &cluster{t: t, client: client, dynamic: fakecluster.NewDynamic()}
	for _, g := range gpuNodes {
		c.createNode(g.Name)
		c.applyGPUNode(g)
	}
	c.start()
	return c
}

// bindReactor does what the API server does with a Binding: node and annotations in one step, with the UID as a
// precondition.
func bindReactor(client interface {
	Tracker() clienttesting.ObjectTracker
}) clienttesting.ReactionFunc {
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "binding" {
			return false, nil, nil
		}
		b := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
		return true, b, fakecluster.Bind(client.Tracker(), action.GetNamespace(), b, func(pod *v1.Pod) {
			pod.Spec.NodeName = b.Target.Name
			if pod.Annotations == nil {
				pod.Annotations = map[string]string{}
			}
			maps.Copy(pod.Annotations, b.Annotations)
		})
	}
}

// start runs a scheduler until stop or the end of the test.
func (c *cluster) start() {
	c.t.Helper()
	client := c.client
	if c.schedulerClient != nil {
		client = c.schedulerClient
	}
	registry := frameworkruntime.Registry{Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (_ fwk.Plugin, err error) {
		c.plugin, err = NewWithClient(ctx, args, h, c.dynamic)
		return c.plugin, err
	}, gpuqueue.Name: gpuqueue.New}
	c.stop = fakecluster.Start(c.t, client, c.profile(), registry)
}

// profile is the stock profile with the plugin, set as deploy/ sets it.
func (c *cluster) profile() schedulerconfig.KubeSchedulerProfile {
	p := fakecluster.Profile(c.t)
	p.Plugins.QueueSort.Enabled = []schedulerconfig.Plugin{{Name: gpuqueue.Name}}
	p.Plugins.QueueSort.Disabled = []schedulerconfig.Plugin{{Name: names.PrioritySort}}
	p.Plugins.MultiPoint.Enabled = append(p.Plugins.MultiPoint.Enabled, schedulerconfig.Plugin{Name: Name, Weight: 10000})
	p.Plugins.PostFilter.Enabled = append([]schedulerconfig.Plugin{{Name: Name}}, p.Plugins.PostFilter.Enabled...)
	p.Plugins.Bind.Enabled = append([]schedulerconfig.Plugin{{Name: Name}}, p.Plugins.Bind.Enabled...)
	args := arguments()
	if c.bindTimeout != 0 {
		args.BindTimeout.Duration = c.bindTimeout
	}
	if c.configure != nil {
		c.configure(args)
	}
	p.PluginConfig = append(p.PluginConfig, schedulerconfig.PluginConfig{Name: Name, Args: args})
	return p
}

// arguments are the plugin's usual ones.
func arguments() *config.GPUShareArgs {
	return fakecluster.ShareArgs(30 * time.Second)
}

func (c *cluster) createNode(name string) {
	c.t.Helper()
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	n.Status.Allocatable = v1.ResourceList{
		v1.ResourceCPU: resource.MustParse("10000"), v1.ResourceMemory: resource.MustParse("1Ti"), v1.ResourcePods: resource.MustParse("5000"),
		v1alpha1.ResourceVGPU: resource.MustParse("1000"),
	}
	n.Status.Capacity = n.Status.Allocatable
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	created, err := c.client.CoreV1().Nodes().Create(c.t.Context(), n, metav1.CreateOptions{})
	must.OK(c.t, err)
	created.Status, created.Spec.Taints = n.Status, nil
	if _, err := c.client.CoreV1().Nodes().UpdateStatus(c.t.Context(), created, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// taint keeps pods off the node.
func (c *cluster) taint(name string) {
	c.t.Helper()
	patch := []byte(`{"spec":{"taints":[{"key":"kept","value":"free","effect":"NoSchedule"}]}}`)
	if _, err := c.client.CoreV1().Nodes().Patch(c.t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

// applyGPUNode creates the GPUNode, or replaces its status.
func (c *cluster) applyGPUNode(g *v1alpha1.GPUNode) {
	c.t.Helper()
	u, err := fakecluster.Unstructured(g)
	must.OK(c.t, err)
	client := c.dynamic.Resource(v1alpha1.GPUNodes)
	current, err := client.Get(c.t.Context(), g.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		current, err = client.Create(c.t.Context(), u, metav1.CreateOptions{})
	}
	must.OK(c.t, err)
	u.SetResourceVersion(current.GetResourceVersion())
	if _, err := client.UpdateStatus(c.t.Context(), u, metav1.UpdateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) createPod(p *v1.Pod) {
	c.t.Helper()
	if _, err := c.client.CoreV1().Pods(p.Namespace).Create(c.t.Context(), p, metav1.CreateOptions{}); err != nil {
		c.t.Fatal(err)
	}
}

func (c *cluster) deletePod(name string) {
	c.t.Helper()
	none := int64(0)
	must.OK(c.t, c.client.CoreV1().Pods("default").Delete(c.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &none}))
}

func isBound(p *v1.Pod) bool { return p.Spec.NodeName != "" }

// await waits until the pod is as wanted and all that runs has come to rest, and returns it.
func (c *cluster) await(name, what string, wanted func(*v1.Pod) bool) *v1.Pod {
	c.t.Helper()
	var pod *v1.Pod
	if !bubble.Await(func() bool {
		var err error
		pod, err = c.client.CoreV1().Pods("default").Get(c.t.Context(), name, metav1.GetOptions{})
		return err == nil && wanted(pod)
	}) {
		c.t.Fatalf("pod %s: waiting until %s for %v; it is on node %q, %s", name, what, bubble.Patience, pod.Spec.NodeName, fakecluster.Message(pod))
	}
	return pod
}

// eventually waits until the answer is yes, and fails with the state.
func (c *cluster) eventually(ask func() bool, state func() string) {
	c.t.Helper()
	if !bubble.Await(ask) {
		c.t.Fatalf("still after %v: %s", bubble.Patience, state())
	}
}

// awaitBound returns the node and devices of the pod, "n1/GPU-n1-0".
func (c *cluster) awaitBound(name string) string {
	c.t.Helper()
	pod := c.await(name, "it is bound", isBound)
	a, err := kube.AssignmentOf(pod)
	must.OK(c.t, err)
	return where(a)
}

func (c *cluster) awaitPending(name, reason string) string {
	c.t.Helper()
	pod := c.await(name, "it is pending because of "+reason, func(p *v1.Pod) bool { return strings.Contains(fakecluster.Message(p), reason) })
	if pod.Spec.NodeName != "" {
		c.t.Fatalf("pod %s is on node %s", name, pod.Spec.NodeName)
	}
	return fakecluster.Message(pod)
}

func where(a vgpu.Assignment) string {
	var ids []string
	for _, c := range a.Containers {
		for _, id := range c.Devices {
			ids = append(ids, string(id))
		}
	}
	return a.Node + "/" + strings.Join(ids, "+")
}

// checkLedger adds all assignments of bound pods up, and fails where a device holds more than it has.
func (c *cluster) checkLedger(gpuNodes ...*v1alpha1.GPUNode) map[string]vgpu.Slots {
	c.t.Helper()
	used := map[string]vgpu.Slots{}
	pods, err := c.client.CoreV1().Pods("default").List(c.t.Context(), metav1.ListOptions{})
	must.OK(c.t, err)
	for _, g := range gpuNodes {
		devices, err := kube.Devices(g)
		must.OK(c.t, err)
		ledger, err := vgpu.NewNode(g.Name, devices)
		must.OK(c.t, err)
		for i := range pods.Items {
			if pods.Items[i].Spec.NodeName != g.Name {
				continue
			}
			a, err := kube.AssignmentOf(&pods.Items[i])
			if err == nil {
				err = ledger.Add(a)
			}
			if err != nil {
				c.t.Errorf("the assignments of node %s do not add up: %v", g.Name, err)
			}
		}
		for i, d := range ledger.Devices() {
			used[string(d.ID)] = ledger.Used(i).Slots
		}
	}
	return used
}

func with(p *v1.Pod, change func(*v1.Pod)) *v1.Pod {
	change(p)
	return p
}

func gpuNode(name string, devices int) *v1alpha1.GPUNode { return fakecluster.GPUNode(name, devices) }

func pod(name string, slots int) *v1.Pod { return fakecluster.Pod(name, slots) }
