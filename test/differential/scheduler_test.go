package differential

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	_ "github.com/tandem-gpu/tandem/pkg/api/config/scheme" // the plugin's arguments, for the scheduler's configuration
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpugang"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpupreempt"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpuqueue"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakecluster"
	"github.com/tandem-gpu/tandem/test/must"
)

// patience bounds the wait for one pod. Only a hang reaches it, however slow the machine.
const patience = 5 * time.Minute

// rig is a running scheduler.
type rig struct {
	t      *testing.T
	client *fake.Clientset
	// answers tells what became of each pod: its Binding, or why there is none.
	answers chan answer
	// refused is the last pod that was refused.
	refused string
}

// answer is what the scheduler said about a pod. Without a binding the pod is refused.
type answer struct {
	pod     string
	binding *v1.Binding
	refusal string
}

// newRig starts a scheduler for the nodes, with the profile of deploy/ and the plugin's arguments changed by set.
func newRig(t *testing.T, nodes []*vgpu.Node, set func(*config.GPUShareArgs)) *rig {
	t.Helper()
	must.OK(t, fakecluster.SetGates())
	r := &rig{t: t, client: fake.NewSimpleClientset(), answers: make(chan answer, 16)}
	for _, n := range nodes {
		must.OK(t, r.client.Tracker().Add(node(n)))
	}
	r.client.PrependReactor("create", "pods", r.bind)
	r.client.PrependReactor("patch", "pods", r.refuse)
	ctx, cancel := context.WithCancel(t.Context())
	factory := scheduler.NewInformerFactory(r.client, 0, nil)
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: r.client.EventsV1()})
	c := configuration(t, set)
	s, err := scheduler.New(ctx, r.client, factory, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithKubeConfig(&rest.Config{Host: serveGPUNodes(t, nodes), QPS: -1}),
		scheduler.WithProfiles(c.Profiles...), scheduler.WithPercentageOfNodesToScore(c.PercentageOfNodesToScore),
		scheduler.WithParallelism(c.Parallelism),
		scheduler.WithFrameworkOutOfTreeRegistry(registry()))
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if err := s.WaitForHandlersSync(ctx); err != nil {
		cancel()
		t.Fatal(err)
	}
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
	r.awaitGPUNodes()
	return r
}

// registry returns the plugins of production. No API has PodGroups.
func registry() frameworkruntime.Registry {
	shares := &gpushare.Factory{}
	room := machine.New(func() machine.Shares { return shares.Plugin() })
	gangs := func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		set, err := podgroup.New(ctx, podgroup.Options{Pods: h.SharedInformerFactory().Core().V1().Pods().Informer()})
		if err != nil {
			return nil, err
		}
		return gpugang.New(ctx, args, h, gpugang.Options{Shares: func() gpugang.Shares { return shares.Plugin() }, Gangs: set, Machine: room})
	}
	preempt := func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
		return gpupreempt.New(ctx, args, h, gpupreempt.Options{Shares: func() gpupreempt.Shares { return shares.Plugin() }, Machine: room})
	}
	return frameworkruntime.Registry{gpushare.Name: shares.New, gpugang.Name: gangs, gpupreempt.Name: preempt, gpuqueue.Name: gpuqueue.New}
}

// awaitGPUNodes asks for more than any node has until the refusal shows that the plugin has read the GPUNodes.
func (r *rig) awaitGPUNodes() {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	for i := 0; time.Now().Before(deadline); i++ {
		name := fmt.Sprintf("probe-%d", i)
		j := sim.Job{Request: vgpu.Request{UID: vgpu.UID(name), Containers: []vgpu.ContainerRequest{{Slots: 128_000}}}}
		if _, refusal := r.submit(pod(&j)); !strings.Contains(refusal, "not read yet") {
			return
		}
	}
	r.t.Fatalf("the plugin has not read the GPUNodes after %v", patience)
}

// configuration reads deploy/scheduler/config.yaml.
func configuration(t *testing.T, set func(*config.GPUShareArgs)) *schedulerconfig.KubeSchedulerConfiguration {
	t.Helper()
	root, err := sandbox.Root()
	must.OK(t, err)
	c, err := options.LoadConfigFromFile(klog.Background(), filepath.Join(root, "deploy", "scheduler", "config.yaml"))
	must.OK(t, err)
	for i := range c.Profiles {
		for _, pc := range c.Profiles[i].PluginConfig {
			if args, ok := pc.Args.(*config.GPUShareArgs); ok {
				set(args)
			}
		}
	}
	return c
}

// bind does what the API server does with a Binding: node and annotations in one step.
func (r *rig) bind(action clienttesting.Action) (bool, runtime.Object, error) {
	if action.GetSubresource() != "binding" {
		return false, nil, nil
	}
	b := action.(clienttesting.CreateAction).GetObject().(*v1.Binding)
	pods := v1.SchemeGroupVersion.WithResource("pods")
	object, err := r.client.Tracker().Get(pods, b.Namespace, b.Name)
	if err != nil {
		return true, nil, err
	}
	p := object.(*v1.Pod).DeepCopy()
	obey(p, b)
	if err := r.client.Tracker().Update(pods, p, p.Namespace); err != nil {
		return true, nil, err
	}
	r.answers <- answer{pod: b.Name, binding: b}
	return true, b, nil
}

// obey makes a pod what its Binding says.
func obey(p *v1.Pod, b *v1.Binding) {
	p.Spec.NodeName = b.Target.Name
	if p.Annotations == nil {
		p.Annotations = map[string]string{}
	}
	maps.Copy(p.Annotations, b.Annotations)
}

// refuse takes note of the condition that the scheduler sets on a pod that it cannot place. It is not applied: the pod is
// about to be deleted. A refused shortlist is no answer: the pod is tried again with all nodes.
func (r *rig) refuse(action clienttesting.Action) (bool, runtime.Object, error) {
	patch := action.(clienttesting.PatchAction)
	if strings.Contains(string(patch.GetPatch()), "all nodes are tried next") {
		return true, &v1.Pod{}, nil
	}
	r.answers <- answer{pod: patch.GetName(), refusal: string(patch.GetPatch())}
	return true, &v1.Pod{}, nil
}

// submit creates a pod and returns its assignment once it is bound, or why it is refused. A refused pod is deleted.
func (r *rig) submit(p *v1.Pod) (a vgpu.Assignment, refusal string) {
	r.t.Helper()
	pods := r.client.CoreV1().Pods(p.Namespace)
	if _, err := pods.Create(r.t.Context(), p, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	got := r.answer(p.Name)
	if got.binding == nil {
		r.refused = p.Name
		r.remove(p.Name)
		return a, got.refusal
	}
	bound := p.DeepCopy()
	obey(bound, got.binding)
	if !kube.WantsVGPU(bound) {
		return vgpu.Assignment{Node: bound.Spec.NodeName}, ""
	}
	a, err := kube.AssignmentOf(bound)
	must.OK(r.t, err)
	return a, ""
}

// answer waits for what the scheduler says about a pod. The pod that was refused before may have been tried once more
// before it was deleted.
func (r *rig) answer(name string) answer {
	r.t.Helper()
	for {
		select {
		case <-time.After(patience):
			r.t.Fatalf("pod %s is neither bound nor refused after %v", name, patience)
		case got := <-r.answers:
			if got.pod == name {
				return got
			}
			if got.pod != r.refused || got.binding != nil {
				r.t.Fatalf("the scheduler answers for pod %s while pod %s waits: %+v", got.pod, name, got)
			}
		}
	}
}

// remove deletes a pod. The scheduler sees it go before it sees any pod that is created later.
func (r *rig) remove(name string) {
	r.t.Helper()
	none := int64(0)
	err := r.client.CoreV1().Pods(metav1.NamespaceDefault).Delete(r.t.Context(), name, metav1.DeleteOptions{GracePeriodSeconds: &none})
	must.OK(r.t, err)
}

// node returns the Node of a node: its room, and place for as many pods as may come.
func node(n *vgpu.Node) *v1.Node {
	has := v1.ResourceList{
		v1.ResourceCPU:    *resource.NewMilliQuantity(n.Room().MilliCPU, resource.DecimalSI),
		v1.ResourceMemory: *resource.NewQuantity(int64(n.Room().Memory), resource.BinarySI),
		v1.ResourcePods:   *resource.NewQuantity(100_000, resource.DecimalSI),

		v1alpha1.ResourceVGPU: *resource.NewQuantity(100_000, resource.DecimalSI),
	}
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name(), Labels: map[string]string{v1.LabelHostname: n.Name()}},
		Status: v1.NodeStatus{
			Capacity: has, Allocatable: has,
			Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}},
		},
	}
}

// gpuNode returns the GPUNode of a node.
func gpuNode(n *vgpu.Node) v1alpha1.GPUNode {
	g := v1alpha1.GPUNode{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GPUNode"},
		ObjectMeta: metav1.ObjectMeta{Name: n.Name(), ResourceVersion: "1"},
	}
	g.Status.Conditions = []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Serving", LastTransitionTime: metav1.Unix(0, 0),
	}}
	for _, d := range n.Devices() {
		g.Status.Devices = append(g.Status.Devices, v1alpha1.GPUDevice{
			ID: string(d.ID), Index: int32(d.Index), Model: d.Model, Slots: int32(d.Slots),
			Memory:            *resource.NewQuantity(int64(d.Memory), resource.BinarySI),
			ComputeCapability: "8.0", Health: v1alpha1.Healthy, Enforcement: v1alpha1.EnforcementCooperative,
		})
	}
	return g
}

// serveGPUNodes is as much of an API server as the plugin needs to read the GPUNodes: a list, and watches in which nothing
// happens. It returns its address.
func serveGPUNodes(t *testing.T, nodes []*vgpu.Node) string {
	t.Helper()
	list := v1alpha1.GPUNodeList{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GPUNodeList"},
		ListMeta: metav1.ListMeta{ResourceVersion: "1"}, Items: []v1alpha1.GPUNode{},
	}
	for _, n := range nodes {
		if len(n.Devices()) > 0 {
			list.Items = append(list.Items, gpuNode(n))
		}
	}
	body, err := json.Marshal(list)
	must.OK(t, err)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case !strings.HasSuffix(q.URL.Path, "/gpunodes"):
			w.WriteHeader(http.StatusNotFound)
		case q.URL.Query().Get("sendInitialEvents") == "true": // an API server without streaming lists refuses so
			w.WriteHeader(http.StatusUnprocessableEntity)
			_ = json.NewEncoder(w).Encode(metav1.Status{Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity})
		case q.URL.Query().Get("watch") != "":
			w.WriteHeader(http.StatusOK)
			w.(http.Flusher).Flush()
			<-q.Context().Done()
		default:
			_, _ = w.Write(body)
		}
	}))
	t.Cleanup(server.CloseClientConnections)
	t.Cleanup(server.Close)
	return server.URL
}

// pod returns the pod of a job.
func pod(j *sim.Job) *v1.Pod {
	r := &j.Request
	never := v1.PreemptNever
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: string(r.UID), UID: types.UID(r.UID)},
		Spec:       v1.PodSpec{SchedulerName: v1alpha1.SchedulerName, PreemptionPolicy: &never},
	}
	requests, limits := v1.ResourceList{}, v1.ResourceList{}
	if r.Host.MilliCPU > 0 {
		requests[v1.ResourceCPU] = *resource.NewMilliQuantity(r.Host.MilliCPU, resource.DecimalSI)
	}
	if r.Host.Memory > 0 {
		requests[v1.ResourceMemory] = *resource.NewQuantity(int64(r.Host.Memory), resource.BinarySI)
	}
	for _, c := range r.Containers { // jobs have one container at most
		limits[v1alpha1.ResourceVGPU] = *resource.NewQuantity(int64(c.Slots), resource.DecimalSI)
		requests[v1alpha1.ResourceVGPU] = limits[v1alpha1.ResourceVGPU]
		if c.Memory > 0 {
			limits[v1alpha1.ResourceMemory] = *resource.NewQuantity(int64(c.Memory), resource.BinarySI)
			requests[v1alpha1.ResourceMemory] = limits[v1alpha1.ResourceMemory]
		}
	}
	var models []string
	for _, v := range r.Variants {
		models = append(models, v.Model)
	}
	if len(models) > 0 {
		p.Annotations = map[string]string{v1alpha1.AnnotationModels: strings.Join(models, ",")}
	}
	p.Spec.Containers = []v1.Container{{
		Name: "main", Image: "none", Resources: v1.ResourceRequirements{Requests: requests, Limits: limits},
	}}
	return p
}
