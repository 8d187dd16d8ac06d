package fakekubelet_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1 "k8s.io/api/core/v1"
	quantity "k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/transport"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/kubelet/checkpointmanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager/checkpoint"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/fakekubelet"
	"github.com/tandem-gpu/tandem/test/must"
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

// addresses of pods, by name without the node. Others have none.
var addresses = map[string]string{"first": "198.51.100.1", "second": "198.51.100.2"}

// bench is one node under test.
type bench struct {
	t      *testing.T
	node   string
	dir    string
	paths  fakekubelet.Paths
	admin  *kubernetes.Clientset
	plugin *scripted
	// wrap changes the kubelet's requests to the API server; nil for no change.
	wrap transport.WrapperFunc

	kubelet *fakekubelet.Kubelet
	stop    func()
}

// newBench starts a kubelet on a node of its own and a plugin with four devices that registered.
func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchWith(t, nil)
}

func newBenchWith(t *testing.T, wrap transport.WrapperFunc) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "fk-*") // t.TempDir is too long for sockets
	must.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	b := &bench{t: t, dir: dir, paths: fakekubelet.PathsIn(dir), node: fmt.Sprintf("n%d", nodes.Add(1)), wrap: wrap}
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
	must.OK(b.t, err)
	config.Wrap(b.wrap)
	client, err := kubernetes.NewForConfig(config)
	must.OK(b.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	b.kubelet = fakekubelet.New(fakekubelet.Config{Node: b.node, Dir: b.dir, Client: client, Address: func(p *v1.Pod) string { return addresses[strings.TrimPrefix(p.Name, b.node+"-")] }})
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
	deadline := time.Now().Add(5 * time.Minute) // only a hang takes so long
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
	must.OK(b.t, err)
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
	b.awaitPod(pod, "running", func(p *v1.Pod) bool {
		if p.Status.Phase == v1.PodFailed {
			b.t.Fatalf("pod %s: %s", p.Name, p.Status.Message)
		}
		return p.Status.Phase == v1.PodRunning
	})
}

// checkpoint returns the devices of each container of the pods, from the kubelet's checkpoint.
func (b *bench) checkpoint(pods ...*v1.Pod) map[string]string {
	b.t.Helper()
	manager, err := checkpointmanager.NewCheckpointManager(b.paths.DevicePlugins)
	must.OK(b.t, err)
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
	must.OK(b.t, err)
	b.t.Cleanup(func() { connection.Close() })
	return connection
}

func diff(t *testing.T, what string, want, got any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}
