package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-gpu/tandem/internal/agent/mps"
	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/fakekubelet"
	"github.com/tandem-gpu/tandem/test/must"
)

const nodeName = "n1"

// built holds the production binary and the fakes that stand for the driver.
var built string

func TestMain(m *testing.M) { os.Exit(build(m.Run)) }

func build(run func() int) int {
	var err error
	if built, err = os.MkdirTemp("", "agent"); err == nil {
		defer func() { _ = os.RemoveAll(built) }()
		err = fakegpu.Build(context.Background(), built)
	}
	if err == nil {
		var out []byte
		out, err = exec.Command("go", "build", "-o", filepath.Join(built, "agent"), ".").CombinedOutput()
		err = errors.Join(err, errorOf(out))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return run()
}

// errorOf makes an error of a compiler's output; warnings about deprecated C functions are none.
func errorOf(out []byte) error {
	if len(out) == 0 || bytes.Contains(out, []byte("deprecated")) {
		return nil
	}
	return errors.New(string(out))
}

// node is a directory with a fake driver, a fake kubelet and room for the agent.
type node struct {
	t     *testing.T
	dir   string
	state fakegpu.State
	paths fakekubelet.Paths
	// kubeconfig of the agent.
	kubeconfig string
	// log of the agent that was started last.
	log *buffer
}

func newNode(t *testing.T) *node {
	t.Helper()
	dir, err := os.MkdirTemp("", "n") // short: the path of a socket has at most 107 bytes
	must.OK(t, err)
	state, err := fakegpu.Node(nodeName, "A100", 2)
	must.OK(t, err)
	n := &node{t: t, dir: dir, state: state, paths: fakekubelet.PathsIn(filepath.Join(dir, "k"))}
	must.OK(t, state.Write(n.path("gpus.json")))
	must.OK(t, os.Mkdir(n.path("dev"), 0o755))
	for _, name := range []string{"nvidiactl", "nvidia-uvm", fmt.Sprint("nvidia", state.Devices[0].MinorNumber), fmt.Sprint("nvidia", state.Devices[1].MinorNumber)} {
		if err := os.Symlink("/dev/null", filepath.Join(n.path("dev"), name)); err != nil { // a device that everybody has
			t.Fatal(err)
		}
	}
	t.Cleanup(n.clean)
	return n
}

func (n *node) path(name string) string { return filepath.Join(n.dir, name) }

// clean ends the MPS daemons, which outlive the agent.
func (n *node) clean() {
	for _, e := range fakegpu.Env(built, n.path("gpus.json")) {
		name, value, _ := strings.Cut(e, "=")
		if name == "PATH" || name == fakegpu.StateVariable {
			n.t.Setenv(name, value)
		}
	}
	backend := mps.NewV2(mps.Options{Dir: n.path("mps"), Timeout: time.Minute})
	for _, d := range n.state.Devices {
		if err := backend.Stop(context.Background(), d.UUID); err != nil {
			n.t.Error(err)
		}
	}
	_ = os.RemoveAll(n.dir)
}

func (n *node) command(env []string, more ...string) *exec.Cmd {
	n.t.Helper()
	args := []string{
		"--node-name=" + nodeName, "--kubeconfig=" + n.kubeconfig, "--device-plugin-dir=" + n.paths.DevicePlugins,
		"--pod-resources-socket=" + n.paths.PodResources, "--pods-api-socket=" + n.paths.PodsAPI, "--cdi-dir=" + n.paths.CDI,
		"--mps-dir=" + n.path("mps"), "--state-dir=" + n.path("state"), "--dev-root=" + n.dir, "--http-address=127.0.0.1:0", "--v=2",
	}
	c := exec.Command(filepath.Join(built, "agent"), append(args, more...)...)
	c.Env = append(os.Environ(), env...)
	return c
}

func (n *node) fakes() []string { return fakegpu.Env(built, n.path("gpus.json")) }

// start starts an agent; the function asks it to end and returns how it ended.
func (n *node) start() (stop func() error) {
	n.t.Helper()
	return n.startWith(n.fakes())
}

func (n *node) startWith(env []string) (stop func() error) {
	n.t.Helper()
	c := n.command(env)
	log := &buffer{}
	n.log, c.Stdout, c.Stderr = log, log, log
	must.OK(n.t, c.Start())
	var once sync.Once
	var err error
	stop = func() error {
		once.Do(func() {
			_ = c.Process.Signal(syscall.SIGTERM)
			err = c.Wait()
		})
		return err
	}
	n.t.Cleanup(func() {
		_ = stop()
		if n.t.Failed() {
			n.t.Log(log)
		}
	})
	return stop
}

// hurried reports whether the last agent ended before the API server answered that its GPUNode is not ready: an agent
// that ends waits for a bounded time.
func (n *node) hurried() bool {
	for line := range strings.Lines(n.log.String()) {
		if strings.Contains(line, "Cannot mark the GPUNode not ready") && strings.Contains(line, "deadline") {
			return true
		}
	}
	return false
}

type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// bind does what the scheduler does for a pod: it gives three slots of the device to it, inside of the Binding.
func (n *node) bind(client kubernetes.Interface, pod *v1.Pod, device fakegpu.Device) {
	n.t.Helper()
	request, err := kube.Request(pod)
	must.OK(n.t, err)
	share, refusal := request.Containers[0].On(&vgpu.Device{Slots: 10, Memory: vgpu.Bytes(device.Memory - device.Reserved)}, 0, 0)
	if refusal != nil {
		n.t.Fatal(refusal)
	}
	raw, err := kube.EncodeAssignment(vgpu.Assignment{UID: vgpu.UID(pod.UID), Pod: pod.Name, Node: nodeName, Containers: []vgpu.ContainerAssignment{{
		Name: "main", Devices: []vgpu.DeviceID{vgpu.DeviceID(device.UUID)}, Share: share,
	}}})
	must.OK(n.t, err)
	err = client.CoreV1().Pods(pod.Namespace).Bind(n.t.Context(), &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name, UID: pod.UID, Annotations: map[string]string{v1alpha1.AnnotationAssignment: raw}},
		Target:     v1.ObjectReference{Kind: "Node", Name: nodeName},
	}, metav1.CreateOptions{})
	must.OK(n.t, err)
}

// create makes a pod of one container that asks for three slots.
func create(t *testing.T, client kubernetes.Interface) *v1.Pod {
	t.Helper()
	pod, err := client.CoreV1().Pods("default").Create(t.Context(), &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "train"},
		Spec: v1.PodSpec{SchedulerName: v1alpha1.SchedulerName, Containers: []v1.Container{{
			Name: "main", Image: "none", Resources: v1.ResourceRequirements{Limits: v1.ResourceList{v1alpha1.ResourceVGPU: resource.MustParse("3")}},
		}}},
	}, metav1.CreateOptions{})
	must.OK(t, err)
	return pod
}

// readyReason reads the Ready condition of the node's GPUNode.
func readyReason(ctx context.Context, client dynamic.Interface) (string, error) {
	have, err := client.Resource(v1alpha1.GPUNodes).Get(ctx, nodeName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	var g v1alpha1.GPUNode
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(have.Object, &g); err != nil {
		return "", err
	}
	if c := meta.FindStatusCondition(g.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return c.Reason, nil
	}
	return "", nil
}

// eventually polls until the condition holds.
func eventually(t *testing.T, what string, holds func() error) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Minute) // only a hang takes so long
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last error
	for time.Now().Before(deadline) {
		if last = holds(); last == nil {
			return
		}
		<-tick.C
	}
	t.Fatalf("%s: %v", what, last)
}

// The production binary over a driver that does not exist: a pod gets its share, and nothing of it ends with the agent.
func TestAgentServesAndLeavesNothingBroken(t *testing.T) {
	n := newNode(t)
	plane := sandbox.StartForTest(t, sandbox.Options{})
	var err error
	if n.kubeconfig, err = plane.Kubeconfig("agent", []string{"system:masters"}); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(plane.Admin())
	must.OK(t, err)
	objects, err := dynamic.NewForConfig(plane.Admin())
	must.OK(t, err)
	stop := n.start() // without the GPUNode resource: the kubelet is served all the same
	kubelet := fakekubelet.New(fakekubelet.Config{Node: nodeName, Dir: n.path("k"), Client: client})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- kubelet.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })

	device := n.state.Devices[1]
	eventually(t, "slots", func() error {
		node, err := client.CoreV1().Nodes().Get(ctx, nodeName, metav1.GetOptions{})
		if have := node.Status.Allocatable[v1alpha1.ResourceVGPU]; err == nil && have.String() != "20" {
			err = fmt.Errorf("%s slots are allocatable, want 20", have.String())
		}
		return err
	})
	n.bind(client, create(t, client), device)
	var given []fakekubelet.Container
	eventually(t, "container", func() error {
		if given = kubelet.Containers(); len(given) != 1 {
			return fmt.Errorf("%d containers run, want 1", len(given))
		}
		return nil
	})
	for _, want := range []string{
		"NVIDIA_VISIBLE_DEVICES=" + device.UUID, "CUDA_VISIBLE_DEVICES=" + device.UUID, "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30",
	} {
		if !slices.Contains(given[0].Env, want) {
			t.Errorf("env %v, want %s", given[0].Env, want)
		}
	}
	if want := fmt.Sprint("/dev/nvidia", device.MinorNumber); !slices.Contains(given[0].Devices, want) {
		t.Errorf("devices %v, want %s", given[0].Devices, want)
	}
	if want := filepath.Join(n.path("mps"), device.UUID, "pipe"); len(given[0].Mounts) != 1 || !strings.HasPrefix(given[0].Mounts[0], want) {
		t.Errorf("mounts %v, want %s", given[0].Mounts, want)
	}

	must.OK(t, plane.InstallCRDs(ctx))
	awaitReason := func(want string) {
		eventually(t, "GPUNode", func() error {
			have, err := readyReason(ctx, objects)
			if err == nil && have != want {
				err = fmt.Errorf("it is ready for the reason %q, want %q", have, want)
			}
			return err
		})
	}
	awaitReason("Serving")
	if err := stop(); err != nil {
		t.Errorf("the agent ended with %v", err)
	}
	if n.hurried() {
		t.Log("the API server did not answer the agent that ended within its bound")
	} else {
		awaitReason("AgentStopping")
	}
	if specs, _ := filepath.Glob(filepath.Join(n.paths.CDI, "*.json")); len(specs) != 1 {
		t.Errorf("specs after the agent's end: %v, want one", specs)
	}
	pid, err := os.ReadFile(filepath.Join(n.path("mps"), device.UUID, "pipe", "nvidia-cuda-mps-control.pid"))
	must.OK(t, err)
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); err != nil {
		t.Errorf("MPS ended with the agent: %v", err)
	}
	if sockets, _ := filepath.Glob(filepath.Join(n.paths.DevicePlugins, "tandem-*.sock")); len(sockets) != 0 {
		t.Errorf("sockets after the agent's end: %v", sockets)
	}
}

func TestAgentEndsWithAClearMessage(t *testing.T) {
	n := newNode(t)
	config := n.path("agent.yaml")
	n.kubeconfig = n.path("kubeconfig")
	must.OK(t, os.WriteFile(n.kubeconfig, []byte(`{"apiVersion":"v1","kind":"Config","current-context":"x","contexts":[{"name":"x","context":{"cluster":"c"}}],"clusters":[{"name":"c","cluster":{"server":"http://127.0.0.1:1"}}]}`), 0o600))
	must.OK(t, os.WriteFile(config, []byte("slots: {standard: 4}"), 0o600))
	cases := map[string]struct {
		command *exec.Cmd
		says    string
	}{
		"unknown field":   {n.command(n.fakes(), "--config="+config), `slots.standard`},
		"no node name":    {n.command(append(n.fakes(), "NODE_NAME="), "--node-name="), "--node-name"},
		"unknown flag":    {n.command(n.fakes(), "--nod-name=x"), "--nod-name"},
		"no such address": {n.command(n.fakes(), "--http-address=256.0.0.1:1"), "serve HTTP"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			out, err := c.command.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), c.says) {
				t.Errorf("%v, want status 1 and a message that says %q:\n%s", err, c.says, out)
			}
		})
	}
}

// A node without NVIDIA is no failure: the agent says so and waits, and its GPUNode and readiness tell.
func TestAgentIdlesWithoutADriver(t *testing.T) {
	n := newNode(t)
	plane := sandbox.StartForTest(t, sandbox.Options{})
	var err error
	if n.kubeconfig, err = plane.Kubeconfig("agent", []string{"system:masters"}); err != nil {
		t.Fatal(err)
	}
	objects, err := dynamic.NewForConfig(plane.Admin())
	must.OK(t, err)
	must.OK(t, plane.InstallCRDs(t.Context()))
	stop := n.startWith([]string{"LD_LIBRARY_PATH="})
	eventually(t, "GPUNode", func() error {
		have, err := readyReason(t.Context(), objects)
		if err == nil && have != v1alpha1.ReadyNoDriver {
			err = fmt.Errorf("it is ready for the reason %q, want %q", have, v1alpha1.ReadyNoDriver)
		}
		return err
	})
	if err := stop(); err != nil {
		t.Errorf("the agent ended with %v", err)
	}
}
