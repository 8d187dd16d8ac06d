package checks_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apps "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/apimachinery/pkg/version"
	fakediscovery "k8s.io/client-go/discovery/fake"
	fakedynamic "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	k8stesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/kubectl/checks"
	"github.com/tandem-gpu/tandem/internal/kubectl/facts"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

const (
	system    = "tandem-system"
	gib       = 1 << 30
	scheduler = "tandem-scheduler"
)

// now is the time of all clusters.
var now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// world is a cluster. A sound one has what deploy/ installs, two GPU nodes with two devices each, a node without GPUs, and pods.
type world struct {
	server   string
	served   map[string][]string
	objects  []runtime.Object
	gpuNodes []*v1alpha1.GPUNode
	refused  []string
	// malformed are names of GPUNodes with words where the status should be.
	malformed []string
}

// sound makes a cluster without faults.
func sound(t *testing.T) *world {
	t.Helper()
	w := &world{server: "v1.37.2", served: map[string][]string{
		"tandem-gpu.io/v1alpha1":    {"gpunodes", "workloadprofiles", "elastictargets", "inferencefleets"},
		"scheduling.k8s.io/v1beta1": {"podgroups"},
		"scheduling.k8s.io/v1":      {"priorityclasses"},
		"unrelated.example.com/v1":  {"things"},
		"resource.k8s.io/v1":        {"deviceclasses"},
	}}
	w.objects = append(w.objects, deployed(t)...)
	renewed := metav1.NewMicroTime(now.Add(-2 * time.Second))
	w.add(&coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: scheduler}, Spec: coordination.LeaseSpec{HolderIdentity: ptr.To("tandem-scheduler-a_1"), RenewTime: &renewed}})
	for _, name := range []string{system, "team-a", "kube-system"} {
		w.add(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	w.add(node("cpu-1", false))
	for _, name := range []string{"gpu-1", "gpu-2"} {
		w.add(node(name, true), daemonPod("tandem-agent", name), daemonPod("tandem-mps", name))
		w.gpuNodes = append(w.gpuNodes, gpuNode(name))
	}
	w.add(tenant("train", "gpu-1", 0, 3), tenant("serve", "gpu-1", 0, 4), tenant("waits", "", 0, 5))
	w.add(&v1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: "web"}, Spec: v1.PodSpec{NodeName: "cpu-1", SchedulerName: "default-scheduler", Containers: []v1.Container{{Name: "web", Image: "nginx"}}}})
	return w
}

func (w *world) add(objects ...runtime.Object) { w.objects = append(w.objects, objects...) }

// deployed returns what deploy/ installs, as a kustomization and a cluster leave it: tags of images, and all replicas available.
func deployed(t *testing.T) []runtime.Object {
	t.Helper()
	var all []runtime.Object
	for _, folder := range []string{"scheduler", "controller", "activator", "agent", "mps", "policies"} {
		files, err := filepath.Glob(filepath.Join("..", "..", "..", "deploy", folder, "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("deploy/%s: %v, %v", folder, files, err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			must.OK(t, err)
			all = append(all, decode(t, file, raw)...)
		}
	}
	for _, o := range all {
		switch o := o.(type) {
		case *apps.Deployment:
			tagged(&o.Spec.Template.Spec)
			o.Status = apps.DeploymentStatus{Replicas: 2, AvailableReplicas: *o.Spec.Replicas}
		case *apps.DaemonSet:
			tagged(&o.Spec.Template.Spec)
			o.Status = apps.DaemonSetStatus{DesiredNumberScheduled: 2, UpdatedNumberScheduled: 2, NumberReady: 2}
		}
	}
	return all
}

func tagged(s *v1.PodSpec) {
	for i := range s.Containers {
		s.Containers[i].Image += ":dev"
	}
}

// decode returns the objects of a file that a client reads here. Others, such as a KubeSchedulerConfiguration, are left out.
func decode(t *testing.T, file string, raw []byte) []runtime.Object {
	t.Helper()
	var all []runtime.Object
	documents := yaml.NewDocumentDecoder(io.NopCloser(bytes.NewReader(raw)))
	defer documents.Close()
	buffer := make([]byte, 1<<20)
	for {
		n, err := documents.Read(buffer)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if o, _, err := scheme.Codecs.UniversalDeserializer().Decode(buffer[:n], nil, nil); err == nil {
			all = append(all, o)
		}
	}
}

func node(name string, gpus bool) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{}}}
	n.Status.NodeInfo = v1.NodeSystemInfo{KubeletVersion: "v1.37.2", ContainerRuntimeVersion: "containerd://2.2.0"}
	n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
	n.Status.Capacity, n.Status.Allocatable = v1.ResourceList{}, v1.ResourceList{}
	if gpus {
		n.Labels["tandem-gpu.io/agent"] = "true"
		n.Status.Capacity[v1alpha1.ResourceVGPU] = resource.MustParse("20")
		n.Status.Allocatable[v1alpha1.ResourceVGPU] = resource.MustParse("20")
	}
	return n
}

func daemonPod(app, node string) *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: system, Name: app + "-" + node, Labels: map[string]string{"app.kubernetes.io/name": app}},
		Spec:       v1.PodSpec{NodeName: node, Containers: []v1.Container{{Name: "main", Image: "tandem-device-plugin:dev"}}},
		Status: v1.PodStatus{Phase: v1.PodRunning, Conditions: []v1.PodCondition{{Type: v1.PodReady, Status: v1.ConditionTrue}},
			ContainerStatuses: []v1.ContainerStatus{{Name: "main", State: v1.ContainerState{Running: &v1.ContainerStateRunning{}}}}},
	}
}

// deviceID names a device of a node.
func deviceID(node string, index int) string { return fmt.Sprintf("GPU-%s-%d", node, index) }

// gpuNode is what an agent publishes of a node with two A100.
func gpuNode(name string) *v1alpha1.GPUNode {
	g := &v1alpha1.GPUNode{TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GPUNode"}, ObjectMeta: metav1.ObjectMeta{Name: name}}
	for i := range 2 {
		g.Status.Devices = append(g.Status.Devices, v1alpha1.GPUDevice{
			ID: deviceID(name, i), Index: int32(i), Model: "NVIDIA-A100-SXM4-40GB", Memory: resource.MustParse("40Gi"), Slots: 10, Contexts: 48,
			ComputeCapability: "8.0", Health: v1alpha1.Healthy, Enforcement: v1alpha1.EnforcementCooperative,
		})
	}
	g.Status.DeviceCount, g.Status.HealthyCount, g.Status.SlotCount, g.Status.DriverVersion = 2, 2, 20, "580.159"
	for condition, reason := range map[string]string{
		v1alpha1.ConditionReady: v1alpha1.ReadyServing, v1alpha1.ConditionDevicesHealthy: v1alpha1.DevicesAllHealthy,
		v1alpha1.ConditionMonitored: v1alpha1.MonitoredAll, v1alpha1.ConditionPodsKnown: v1alpha1.PodsFromKubelet,
	} {
		g.Status.Conditions = append(g.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: reason})
	}
	slices.SortFunc(g.Status.Conditions, func(a, b metav1.Condition) int { return strings.Compare(a.Type, b.Type) })
	return g
}

// tenant is a pod with slots of a device, as users make it and the scheduler binds it; without a node it waits.
func tenant(name, node string, device, slots int) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team-a", Name: name, UID: types.UID("uid-" + name), Annotations: map[string]string{}},
		Spec: v1.PodSpec{SchedulerName: scheduler, NodeName: node, Containers: []v1.Container{{
			Name: "main", Image: "pytorch", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1alpha1.ResourceVGPU: *resource.NewQuantity(int64(slots), resource.DecimalSI)}},
		}}},
	}
	if node == "" {
		return p
	}
	memory := vgpu.Bytes(slots) * 4 * gib
	raw, err := kube.EncodeAssignment(vgpu.Assignment{UID: vgpu.UID(p.UID), Pod: "team-a/" + name, Node: node, Containers: []vgpu.ContainerAssignment{{
		Name: "main", Devices: []vgpu.DeviceID{vgpu.DeviceID(deviceID(node, device))},
		Share: vgpu.Share{Devices: 1, Slots: vgpu.Slots(slots), Memory: memory, ComputeLimit: vgpu.WholeGPU / 10 * vgpu.MilliGPU(slots), MemoryLimit: memory},
	}}})
	if err != nil {
		panic(err) // a fault of this test
	}
	p.Annotations[v1alpha1.AnnotationAssignment] = raw
	return p
}

// facts reads the facts of the cluster as kubectl tandem does, from fakes of the clients.
func (w *world) facts(t *testing.T) *checks.Facts {
	t.Helper()
	client := fake.NewClientset(w.objects...)
	discovery, ok := client.Discovery().(*fakediscovery.FakeDiscovery)
	if !ok {
		t.Fatal("the fake of the client has another discovery")
	}
	discovery.FakedServerVersion = &version.Info{GitVersion: w.server}
	for _, group := range slices.Sorted(maps.Keys(w.served)) {
		list := &metav1.APIResourceList{GroupVersion: group}
		for _, name := range w.served[group] {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name})
		}
		client.Resources = append(client.Resources, list)
	}
	custom := fakedynamic.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{v1alpha1.GPUNodes: "GPUNodeList"}, w.published(t)...)
	forbid := func(a k8stesting.Action) (bool, runtime.Object, error) {
		r := a.GetResource().Resource
		return slices.Contains(w.refused, r), nil, apierrors.NewForbidden(schema.GroupResource{Resource: r}, "", errors.New("no right"))
	}
	client.PrependReactor("*", "*", forbid)
	custom.PrependReactor("*", "*", forbid)
	f, err := facts.Read(t.Context(), client, custom, &facts.Options{Namespace: system, Scheduler: scheduler, Now: now, Step: func(string, int, int) {}})
	must.OK(t, err)
	return f
}

// published returns the GPUNodes as the dynamic client has them.
func (w *world) published(t *testing.T) []runtime.Object {
	t.Helper()
	var all []runtime.Object
	for _, g := range w.gpuNodes {
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(g)
		must.OK(t, err)
		all = append(all, &unstructured.Unstructured{Object: u})
	}
	for _, name := range w.malformed {
		all = append(all, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GPUNodes.GroupVersion().String(), "kind": "GPUNode", "metadata": map[string]any{"name": name}, "status": "words",
		}})
	}
	return all
}

// remove takes the object of a type and a name out of the cluster.
func remove[T metav1.Object](w *world, name string) {
	w.objects = slices.DeleteFunc(w.objects, func(o runtime.Object) bool {
		t, ok := o.(T)
		return ok && t.GetName() == name
	})
}

// of returns the object of a type and a name.
func of[T metav1.Object](w *world, name string) T {
	for _, o := range w.objects {
		if t, ok := o.(T); ok && t.GetName() == name {
			return t
		}
	}
	panic("the cluster has no " + name)
}

// condition sets a condition of a GPUNode.
func (w *world) condition(at int, name, reason, message string) {
	for i := range w.gpuNodes[at].Status.Conditions {
		if c := &w.gpuNodes[at].Status.Conditions[i]; c.Type == name {
			c.Status, c.Reason, c.Message = metav1.ConditionFalse, reason, message
		}
	}
}

// agentSays makes a GPUNode not ready, and the agent's pod with it, as its probe does.
func (w *world) agentSays(at int, reason, message string) {
	w.condition(at, v1alpha1.ConditionReady, reason, message)
	of[*v1.Pod](w, "tandem-agent-"+w.gpuNodes[at].Name).Status.Conditions[0].Status = v1.ConditionFalse
}

// sicken makes the first device of a GPUNode unhealthy, as the agent and then the kubelet do.
func (w *world) sicken(at int, reason, message string) {
	g := w.gpuNodes[at]
	d := &g.Status.Devices[0]
	d.Health, d.Reason, d.Message = v1alpha1.Unhealthy, reason, message
	g.Status.HealthyCount, g.Status.SlotCount = 1, 10
	w.condition(at, v1alpha1.ConditionDevicesHealthy, v1alpha1.DevicesSick, "g0")
	of[*v1.Node](w, g.Name).Status.Allocatable[v1alpha1.ResourceVGPU] = resource.MustParse("10")
}
