package fakekubelet_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
	pluginapi "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	podresourcesapi "k8s.io/kubelet/pkg/apis/podresources/v1"
	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/fakekubelet"
)

// plane is the control plane of all tests of the package: a start takes seconds. Each test has a node of its own.
var plane *sandbox.ControlPlane

// nodes numbers the nodes.
var nodes atomic.Int64

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // the kubelet's own servers log every end of a plugin
	var err error
	plane, err = sandbox.Start(context.Background(), sandbox.Options{Authorization: "Node,RBAC"})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	plane.Stop()
	os.Exit(code)
}

// bench is one node under test.
type bench struct {
	t      *testing.T
	node   string
	dir    string
	paths  fakekubelet.Paths
	admin  *kubernetes.Clientset
	plugin *scripted

	kubelet *fakekubelet.Kubelet
	stop    func()
}

// newBench starts a kubelet on a node of its own and a plugin with four devices that registered.
func newBench(t *testing.T) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "fk-*") // t.TempDir is too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bench{t: t, dir: dir, paths: fakekubelet.PathsIn(dir), node: fmt.Sprintf("n%d", nodes.Add(1))}
	if b.admin, err = kubernetes.NewForConfig(plane.Admin()); err != nil {
		t.Fatal(err)
	}
	b.start()
	b.plugin = startPlugin(t, b.paths.DevicePlugins, b.paths.CDI)
	b.plugin.register(t, healthy("s0", "s1", "s2", "s3"))
	b.awaitAllocatable("4")
	b.plugin.take()
	return b
}

func (b *bench) start() {
	b.t.Helper()
	config, err := plane.Config("system:node:"+b.node, []string{"system:nodes"})
	if err != nil {
		b.t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		b.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	b.kubelet = fakekubelet.New(fakekubelet.Config{Node: b.node, Dir: b.dir, Client: client})
	kubelet := b.kubelet
	go func() { ended <- kubelet.Run(ctx) }()
	stopped := false
	b.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			b.t.Error(err)
		}
	}
	b.t.Cleanup(b.stop)
	b.eventually(func() error {
		_, err := os.Stat(b.paths.DevicePlugins + "/kubelet.sock")
		return err
	})
}

func (b *bench) eventually(f func() error) {
	b.t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for err := f(); err != nil; err = f() {
		if time.Now().After(deadline) {
			b.t.Fatal(err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (b *bench) awaitAllocatable(want string) {
	b.t.Helper()
	b.eventually(func() error {
		node, err := b.admin.CoreV1().Nodes().Get(b.t.Context(), b.node, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if got := node.Status.Allocatable[resource]; got.String() != want {
			return fmt.Errorf("allocatable %s, want %s", got.String(), want)
		}
		return nil
	})
}

// ask returns a container that asks for n slots.
func ask(name string, n int64) v1.Container {
	c := v1.Container{Name: name, Image: "none", Env: []v1.EnvVar{{Name: "FROM_POD", Value: "yes"}}}
	if n > 0 {
		c.Resources.Limits = v1.ResourceList{resource: *quantity.NewQuantity(n, quantity.DecimalSI)}
	}
	return c
}

// create makes a pod that is bound to the node.
func (b *bench) create(name string, init, app []v1.Container) *v1.Pod {
	b.t.Helper()
	zero := int64(0)
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: b.node + "-" + name, Namespace: "default"},
		Spec:       v1.PodSpec{NodeName: b.node, InitContainers: init, Containers: app, TerminationGracePeriodSeconds: &zero},
	}
	pod, err := b.admin.CoreV1().Pods("default").Create(b.t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		b.t.Fatal(err)
	}
	return pod
}

func (b *bench) awaitPod(pod *v1.Pod, want string, is func(*v1.Pod) bool) *v1.Pod {
	b.t.Helper()
	var now *v1.Pod
	b.eventually(func() error {
		var err error
		if now, err = b.admin.CoreV1().Pods("default").Get(b.t.Context(), pod.Name, metav1.GetOptions{}); err != nil {
			return err
		}
		if !is(now) {
			return fmt.Errorf("pod %s: want %s, status %+v", pod.Name, want, now.Status)
		}
		return nil
	})
	return now
}

func (b *bench) awaitRunning(pod *v1.Pod) {
	b.t.Helper()
	b.awaitPod(pod, "running", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodRunning })
}

// checkpoint returns the devices of each container of the pods, from the kubelet's checkpoint.
func (b *bench) checkpoint(pods ...*v1.Pod) map[string]string {
	b.t.Helper()
	manager, err := checkpointmanager.NewCheckpointManager(b.paths.DevicePlugins)
	if err != nil {
		b.t.Fatal(err)
	}
	saved := checkpoint.New(nil, nil)
	if err := manager.GetCheckpoint("kubelet_internal_checkpoint", saved); err != nil { // checks the checksum too
		b.t.Fatal(err)
	}
	entries, _ := saved.GetData()
	held := map[string]string{}
	for _, e := range entries {
		for _, pod := range pods {
			if e.PodUID == string(pod.UID) {
				held[strings.TrimPrefix(pod.Name, b.node+"-")+"/"+e.ContainerName] = join(e.DeviceIDs.Devices().UnsortedList())
			}
		}
	}
	return held
}

func (b *bench) dial(socket string) *grpc.ClientConn {
	b.t.Helper()
	connection, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { connection.Close() })
	return connection
}

func diff(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestCallsComeInTheKubeletsOrder(t *testing.T) {
	b := newBench(t)
	b.plugin.set(func() { b.plugin.prefer = []string{"s2", "s3"} })
	pod := b.create("p", nil, []v1.Container{ask("one", 1), ask("two", 2), ask("none", 0)})
	b.awaitRunning(pod)
	diff(t, "calls", []string{
		"prefer 1 of {s0 s1 s2 s3} with {}", "allocate {s2}",
		"prefer 2 of {s0 s1 s3} with {}", "allocate {s0 s3}", // s2 is taken: the hint is met with s3 and the first free
		"prestart {s2}", "prestart {s0 s3}",
	}, b.plugin.take())
	diff(t, "checkpoint", map[string]string{"p/one": "{s2}", "p/two": "{s0 s3}"}, b.checkpoint(pod))
}

func TestContainersGetWhatTheCDISpecSays(t *testing.T) {
	b := newBench(t)
	pod := b.create("p", nil, []v1.Container{ask("main", 1)})
	b.awaitRunning(pod)
	given := b.kubelet.Containers()
	if len(given) != 1 {
		t.Fatalf("containers: %+v, want one", given)
	}
	diff(t, "environment", []string{"FROM_ALLOCATE=yes", "FROM_POD=yes", "NAME=c1"}, given[0].Env)
	diff(t, "devices", []string{"/dev/slot1"}, given[0].Devices)
	diff(t, "slots", []string{"s0"}, given[0].Slots)
}

// The kubelet gives the devices of an init container again to what starts after it, but never those of a sidecar.
func TestInitContainersLeaveTheirDevices(t *testing.T) {
	b := newBench(t)
	always := v1.ContainerRestartPolicyAlways
	proxy := ask("proxy", 1)
	proxy.RestartPolicy = &always
	pod := b.create("p", []v1.Container{ask("fetch", 2), proxy}, []v1.Container{ask("main", 3)})
	b.awaitRunning(pod)
	diff(t, "calls", []string{
		"prefer 2 of {s0 s1 s2 s3} with {}", "allocate {s0 s1}",
		"allocate {s0}",                                           // from fetch, without asking
		"prefer 3 of {s1 s2 s3} with {s1}", "allocate {s1 s2 s3}", // what proxy left of fetch, and new ones
		"prestart {s0 s1}", "prestart {s0}", "prestart {s1 s2 s3}",
	}, b.plugin.take())
}

// The order of admission is the kubelet's: a hint made for one pod may serve another of the same size.
func TestPodsMaySwapTheirDevices(t *testing.T) {
	b := newBench(t)
	b.plugin.set(func() { b.plugin.prefer = []string{"s3"} }) // meant for the first pod of the scheduler
	second := b.create("second", nil, []v1.Container{ask("main", 1)})
	b.awaitRunning(second)
	b.plugin.set(func() { b.plugin.prefer = []string{"s1"} })
	first := b.create("first", nil, []v1.Container{ask("main", 1)})
	b.awaitRunning(first)
	diff(t, "checkpoint", map[string]string{"second/main": "{s3}", "first/main": "{s1}"}, b.checkpoint(first, second))
}

func TestRefusedContainerWaitsAndStartsLater(t *testing.T) {
	b := newBench(t)
	b.plugin.set(func() { b.plugin.refuse = "no assignment of this pod" })
	pod := b.create("p", nil, []v1.Container{ask("main", 1)})
	b.awaitPod(pod, "a waiting container that says why", func(p *v1.Pod) bool {
		return len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].State.Waiting != nil &&
			strings.Contains(p.Status.ContainerStatuses[0].State.Waiting.Message, "no assignment of this pod")
	})
	b.eventually(func() error {
		events, err := b.admin.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + pod.Name})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(events.Items, func(e v1.Event) bool {
			return e.Reason == "Failed" && e.Type == v1.EventTypeWarning && strings.Contains(e.Message, "no assignment of this pod")
		}) {
			return fmt.Errorf("no event Failed with the plugin's words among %d", len(events.Items))
		}
		return nil
	})
	if given := b.kubelet.Containers(); len(given) != 0 {
		t.Errorf("started: %+v, want none", given)
	}
	b.plugin.set(func() { b.plugin.refuse = "" })
	b.awaitRunning(pod)
}

func TestPodWithoutRoomIsRejectedForGood(t *testing.T) {
	b := newBench(t)
	pod := b.create("p", nil, []v1.Container{ask("main", 5)})
	now := b.awaitPod(pod, "failed", func(p *v1.Pod) bool { return p.Status.Phase == v1.PodFailed })
	if now.Status.Reason != "UnexpectedAdmissionError" || !strings.Contains(now.Status.Message, "Requested: 5, Available: 4") {
		t.Errorf("status: %+v, want the kubelet's reason and numbers", now.Status)
	}
	next := b.create("next", nil, []v1.Container{ask("main", 4)})
	b.awaitRunning(next)
}

func TestDeletedPodFreesItsDevices(t *testing.T) {
	b := newBench(t)
	first := b.create("first", nil, []v1.Container{ask("main", 4)})
	b.awaitRunning(first)
	grace := metav1.NewDeleteOptions(30) // the kubelet must confirm
	if err := b.admin.CoreV1().Pods("default").Delete(t.Context(), first.Name, *grace); err != nil {
		t.Fatal(err)
	}
	b.eventually(func() error {
		_, err := b.admin.CoreV1().Pods("default").Get(t.Context(), first.Name, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("get deleted pod: want not found, got %w", err)
		}
		return nil
	})
	second := b.create("second", nil, []v1.Container{ask("main", 4)})
	b.awaitRunning(second)
	diff(t, "checkpoint", map[string]string{"second/main": "{s0 s1 s2 s3}"}, b.checkpoint(first, second))
}

func TestSickDevicesLeaveTheNodesAllocatable(t *testing.T) {
	b := newBench(t)
	b.plugin.lists <- append(healthy("s0", "s1", "s2"), &pluginapi.Device{ID: "s3", Health: pluginapi.Unhealthy})
	b.awaitAllocatable("3")
	b.plugin.server.Stop()
	b.awaitAllocatable("0")
}

// A restarted kubelet knows from its checkpoint who holds what, and lets containers run.
func TestRestartKeepsDevicesAndContainers(t *testing.T) {
	b := newBench(t)
	before := b.create("before", nil, []v1.Container{ask("main", 3)})
	b.awaitRunning(before)
	b.plugin.take()
	started := b.kubelet.Containers()[0].Started
	b.stop()
	b.start()
	b.plugin.serve(t) // the kubelet removed the socket
	b.plugin.register(t, healthy("s0", "s1", "s2", "s3"))
	b.awaitAllocatable("4")
	after := b.create("after", nil, []v1.Container{ask("main", 1)})
	b.awaitRunning(after)
	diff(t, "calls", []string{"options", "prefer 1 of {s3} with {}", "allocate {s3}", "prestart {s3}"}, b.plugin.take())
	for _, c := range b.kubelet.Containers() {
		if c.UID == string(before.UID) && !c.Started.Equal(started) {
			t.Errorf("the container started again at %v, after %v", c.Started, started)
		}
	}
	diff(t, "checkpoint", map[string]string{"before/main": "{s0 s1 s2}", "after/main": "{s3}"}, b.checkpoint(before, after))
}

func TestPodResourcesAndPodsAPI(t *testing.T) {
	b := newBench(t)
	pod := b.create("p", []v1.Container{ask("fetch", 1)}, []v1.Container{ask("main", 2)})
	b.awaitRunning(pod)

	list, err := podresourcesapi.NewPodResourcesListerClient(b.dial(b.paths.PodResources)).
		List(t.Context(), &podresourcesapi.ListPodResourcesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{} // ordinary init containers are not listed
	for _, p := range list.PodResources {
		for _, c := range p.Containers {
			var ids []string
			for _, d := range c.Devices {
				ids = append(ids, d.DeviceIds...)
			}
			got[p.Name+"/"+c.Name] = join(ids)
		}
	}
	diff(t, "pod-resources", map[string]string{pod.Name + "/main": "{s0 s1}"}, got)

	pods := podsapi.NewPodsClient(b.dial(b.paths.PodsAPI))
	answer, err := pods.GetPod(t.Context(), &podsapi.GetPodRequest{PodUID: string(pod.UID)})
	if err != nil {
		t.Fatal(err)
	}
	var served v1.Pod
	if err := served.Unmarshal(answer.Pod); err != nil || served.Name != pod.Name || served.Spec.NodeName != b.node {
		t.Errorf("pod %q on %q, %v; want %q on %q", served.Name, served.Spec.NodeName, err, pod.Name, b.node)
	}
	all, err := pods.ListPods(t.Context(), &podsapi.ListPodsRequest{})
	if err != nil || len(all.Pods) != 1 {
		t.Errorf("pods: %d, %v; want 1", len(all.GetPods()), err)
	}
}
