package gpushare

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/tandem-gpu/tandem/test/bubble"
	"github.com/tandem-gpu/tandem/test/fakeapi"

	"github.com/tandem-gpu/tandem/internal/kube"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	_ "github.com/tandem-gpu/tandem/pkg/api/config/scheme"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const gib = 1 << 30

// cluster is an API, real or in memory, with a scheduler that runs the plugin in the profile "default-scheduler".
type cluster struct {
	t       *testing.T
	client  kubernetes.Interface
	dynamic dynamic.Interface
	// seen by the scheduler instead of client, where they differ.
	schedulerClient kubernetes.Interface
	bindTimeout     time.Duration
	// configure changes the plugin's arguments, where they are not the usual ones.
	configure func(*config.GPUShareArgs)

	plugin *Plugin
	stop   func()
}

// newCluster returns a cluster in memory with the given GPUNodes and a Node for each, and a running scheduler.
func newCluster(t *testing.T, gpuNodes ...*v1alpha1.GPUNode) *cluster {
	client := fakeapi.NewClientset()
	client.PrependReactor("create", "pods", bindReactor(client))
	kinds := map[string]string{"gpunodes": "GPUNodeList", "workloadprofiles": "WorkloadProfileList"}
	c := &cluster{t: t, client: client, dynamic: dynamicfake.NewSimpleDynamicClientWithCustomListKinds(
		runtime.NewScheme(), listKinds(kinds))}
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
		object, err := client.Tracker().Get(v1.SchemeGroupVersion.WithResource("pods"), action.GetNamespace(), b.Name)
		if err != nil {
			return true, nil, err
		}
		pod := object.(*v1.Pod).DeepCopy()
		if pod.UID != b.UID || pod.Spec.NodeName != "" {
			err := fmt.Errorf("pod has UID %s and is on node %q", pod.UID, pod.Spec.NodeName)
			return true, nil, apierrors.NewConflict(v1.Resource("pods/binding"), b.Name, err)
		}
		pod.Spec.NodeName = b.Target.Name
		if pod.Annotations == nil {
			pod.Annotations = map[string]string{}
		}
		for k, v := range b.Annotations {
			pod.Annotations[k] = v
		}
		return true, b, client.Tracker().Update(v1.SchemeGroupVersion.WithResource("pods"), pod, pod.Namespace)
	}
}

// start runs a scheduler until stop or the end of the test.
func (c *cluster) start() {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	client := c.client
	if c.schedulerClient != nil {
		client = c.schedulerClient
	}
	informers := scheduler.NewInformerFactory(client, 0, nil)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	built := make(chan *Plugin, 1)
	registry := frameworkruntime.Registry{Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		p, err := NewWithClient(ctx, args, h, c.dynamic)
		built <- p
		return p, err
	}}
	s, err := scheduler.New(ctx, client, informers, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithProfiles(c.profile()), scheduler.WithFrameworkOutOfTreeRegistry(registry),
		scheduler.WithPodInitialBackoffSeconds(1), scheduler.WithPodMaxBackoffSeconds(1))
	if err != nil {
		cancel()
		c.t.Fatal(err)
	}
	c.plugin = <-built
	broadcaster.StartRecordingToSink(ctx.Done())
	informers.Start(ctx.Done())
	informers.WaitForCacheSync(ctx.Done())
	if err := s.WaitForHandlersSync(ctx); err != nil {
		cancel()
		c.t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.Run(ctx)
	}()
	c.stop = func() {
		cancel()
		<-done
		broadcaster.Shutdown()
		informers.Shutdown()
	}
	c.t.Cleanup(func() { c.stop() })
}

// profile is the stock profile with the plugin, set as deploy/ sets it.
func (c *cluster) profile() schedulerconfig.KubeSchedulerProfile {
	defaults, err := latest.Default()
	if err != nil {
		c.t.Fatal(err)
	}
	p := defaults.Profiles[0]
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
	for _, pc := range p.PluginConfig {
		if fit, ok := pc.Args.(*schedulerconfig.NodeResourcesFitArgs); ok {
			fit.IgnoredResources = []string{v1alpha1.ResourceVGPU, v1alpha1.ResourceMemory}
		}
	}
	return p
}

// arguments are the plugin's usual ones.
func arguments() *config.GPUShareArgs {
	return &config.GPUShareArgs{
		Policy: "packed", BindTimeout: metav1.Duration{Duration: 30 * time.Second},
		PodsWithoutGPUs: config.SkipPods, MixHalfLife: metav1.Duration{Duration: 24 * time.Hour},
		Interference: config.InterferenceArgs{Model: "default", Learning: config.LearningEnabled, MaxProfiles: 10000},
		Weights:      config.CostWeights{Fragmentation: 100, Interference: 100, Heterogeneity: 100},
		Sharing:      config.SharingWhenScarce, ScarceBelowPercent: 10,
	}
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
	if err != nil {
		c.t.Fatal(err)
	}
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
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(g)
	if err != nil {
		c.t.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("GPUNode"))
	client := c.dynamic.Resource(v1alpha1.GPUNodes)
	current, err := client.Get(c.t.Context(), g.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		current, err = client.Create(c.t.Context(), u, metav1.CreateOptions{})
	}
	if err != nil {
		c.t.Fatal(err)
	}
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
	if err := c.client.CoreV1().Pods("default").Delete(c.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &none}); err != nil {
		c.t.Fatal(err)
	}
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
		c.t.Fatalf("pod %s: waiting until %s for %v; it is on node %q, %s", name, what, bubble.Patience, pod.Spec.NodeName, message(pod))
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
	if err != nil {
		c.t.Fatal(err)
	}
	return where(a)
}

func (c *cluster) awaitPending(name, reason string) string {
	c.t.Helper()
	pod := c.await(name, "it is pending because of "+reason, func(p *v1.Pod) bool { return strings.Contains(message(p), reason) })
	if pod.Spec.NodeName != "" {
		c.t.Fatalf("pod %s is on node %s", name, pod.Spec.NodeName)
	}
	return message(pod)
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

func message(p *v1.Pod) string {
	for _, c := range p.Status.Conditions {
		if c.Type == v1.PodScheduled {
			return c.Message
		}
	}
	return ""
}

// checkLedger adds all assignments of bound pods up, and fails where a device holds more than it has.
func (c *cluster) checkLedger(gpuNodes ...*v1alpha1.GPUNode) map[string]vgpu.Slots {
	c.t.Helper()
	used := map[string]vgpu.Slots{}
	pods, err := c.client.CoreV1().Pods("default").List(c.t.Context(), metav1.ListOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	for _, g := range gpuNodes {
		devices, err := kube.Devices(g)
		if err != nil {
			c.t.Fatal(err)
		}
		ledger, err := vgpu.NewNode(g.Name, devices)
		if err != nil {
			c.t.Fatal(err)
		}
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

// gpuNode returns a ready GPUNode with count devices of 10 slots and 40 GiB, named GPU-<node>-<index>.
func gpuNode(name string, count int) *v1alpha1.GPUNode {
	g := &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	g.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Serving", LastTransitionTime: metav1.Unix(0, 0),
	}}
	for i := range count {
		g.Status.Devices = append(g.Status.Devices, v1alpha1.GPUDevice{
			ID: fmt.Sprintf("GPU-%s-%d", name, i), Index: int32(i), Model: "A100", Memory: resource.MustParse("40Gi"), Slots: 10,
			ComputeCapability: "8.0", Health: v1alpha1.Healthy, Enforcement: v1alpha1.EnforcementCooperative,
		})
	}
	return g
}

// pod returns a pod in namespace default with one container that asks for slots; 0 for none.
func pod(name string, slots int) *v1.Pod {
	limits := v1.ResourceList{}
	if slots != 0 {
		limits[v1alpha1.ResourceVGPU] = *resource.NewQuantity(int64(slots), resource.DecimalSI)
	}
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)},
		Spec: v1.PodSpec{
			SchedulerName: v1.DefaultSchedulerName,
			Containers: []v1.Container{{
				Name: "main", Image: "none", Resources: v1.ResourceRequirements{Limits: limits, Requests: limits},
			}},
		},
	}
}

func with(p *v1.Pod, change func(*v1.Pod)) *v1.Pod {
	change(p)
	return p
}

func listKinds(kinds map[string]string) map[schema.GroupVersionResource]string {
	out := map[schema.GroupVersionResource]string{}
	for resource, kind := range kinds {
		out[v1alpha1.GroupVersion.WithResource(resource)] = kind
	}
	return out
}
