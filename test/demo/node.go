package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/fakekubelet"
)

// node is a node of the demo.
type node struct {
	name, profile, label string
	kubelet              *fakekubelet.Kubelet
	agent                *sandbox.Process
	metrics              string
	ended                chan error
}

const devicesPerNode = 2

func nodes() []*node {
	return []*node{
		{name: "a100-1", profile: "A100", label: "a100"}, {name: "a100-2", profile: "A100", label: "a100"},
		{name: "t4-1", profile: "T4", label: "t4"}, {name: "t4-2", profile: "T4", label: "t4"},
	}
}

// agentConfig divides the T4, which are small, into fewer slots than the others.
const agentConfig = `slots:
  default: 10
  models:
    Tesla-T4: 4
`

// startNodes starts the kubelets and then the agents, as a DaemonSet does.
func (c *cluster) startNodes(ctx context.Context, out *terminal) error {
	config := filepath.Join(c.dir, "agent.yaml")
	if err := os.WriteFile(config, []byte(agentConfig), 0o600); err != nil {
		return err
	}
	ports, err := sandbox.FreePorts(len(nodes()))
	if err != nil {
		return err
	}
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	c.end = end
	for i, n := range nodes() {
		n.metrics = fmt.Sprintf("127.0.0.1:%d", ports[i])
		if err := c.startKubelet(running, n); err != nil {
			return err
		}
		c.nodes = append(c.nodes, n)
		if err := poll(ctx, func() error { _, err := c.admin.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{}); return err }); err != nil {
			return err
		}
		if err := c.startAgent(ctx, n, config); err != nil {
			return err
		}
	}
	out.say("started the scheduler, the controller, the activator, Kubernetes' own controllers, %d kubelet stand-ins and %d agents", len(c.nodes), len(c.nodes))
	return nil
}

// address returns the address of a pod. That of a notebook is where its server listens; nothing listens at the others, of a block for
// documentation (RFC 5737).
func (c *cluster) address(pod *v1.Pod) string {
	if pod.Labels[nameLabel] == parkedNotebook {
		return loopback
	}
	return fmt.Sprintf("198.51.100.%d", c.pods.Add(1)%254+1)
}

func (c *cluster) startKubelet(ctx context.Context, n *node) error {
	config, err := c.plane.Config("system:node:"+n.name, []string{"system:nodes"})
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	n.kubelet = fakekubelet.New(fakekubelet.Config{
		Node: n.name, Dir: filepath.Join(c.dir, n.name), Client: client, Controller: c.admin, Labels: map[string]string{gpuLabel: n.label},
		Address: c.address,
	})
	n.ended = make(chan error, 1)
	go func() { n.ended <- n.kubelet.Run(ctx) }()
	return nil
}

// stop waits for the kubelet, which ends with the cluster's context.
func (n *node) stop() {
	if n.ended != nil {
		<-n.ended
	}
}

// startAgent starts the production agent over the fake driver, with its account's token bound to the node.
func (c *cluster) startAgent(ctx context.Context, n *node, config string) error {
	kubeconfig, err := c.plane.ServiceAccountOnNode(ctx, "tandem-system", "tandem-agent", n.name)
	if err != nil {
		return err
	}
	dir := filepath.Join(c.dir, n.name)
	state, err := fakegpu.Node(n.name, n.profile, devicesPerNode)
	if err != nil {
		return err
	}
	statePath := filepath.Join(dir, "gpus.json")
	if err := state.Write(statePath); err != nil {
		return err
	}
	if err := makeDeviceFiles(filepath.Join(dir, "root", "dev")); err != nil {
		return err
	}
	paths := fakekubelet.PathsIn(dir)
	cmd := exec.Command(c.agent, "--config="+config, "--node-name="+n.name, "--kubeconfig="+kubeconfig,
		"--device-plugin-dir="+paths.DevicePlugins, "--pod-resources-socket="+paths.PodResources,
		"--pods-api-socket="+paths.PodsAPI, "--cdi-dir="+paths.CDI, "--mps-dir="+filepath.Join(dir, "mps"),
		"--state-dir="+filepath.Join(dir, "state"), "--dev-root="+filepath.Join(dir, "root"), "--http-address="+n.metrics)
	cmd.Env = append(os.Environ(), fakegpu.Env(c.fakes, statePath)...)
	n.agent, err = c.plane.Processes().Start("agent-"+n.name, cmd)
	return err
}

// makeDeviceFiles makes pipes in place of /dev/nvidia*: only root may make devices, and CDI takes either.
func makeDeviceFiles(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	names := []string{"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}
	for i := range devicesPerNode {
		names = append(names, fmt.Sprintf("nvidia%d", i))
	}
	for _, name := range names {
		if err := syscall.Mkfifo(filepath.Join(dir, name), 0o666); err != nil {
			return fmt.Errorf("make device file %s: %w", name, err)
		}
	}
	return nil
}

// awaitNodes waits until every agent has registered and published its GPUs.
func (c *cluster) awaitNodes(ctx context.Context, out *terminal) error {
	for _, n := range c.nodes {
		err := poll(ctx, func() error {
			select {
			case <-n.agent.Done():
				return fatal{fmt.Errorf("agent of %s ended: %w", n.name, n.agent.Err())}
			case err := <-n.ended:
				n.ended <- err
				return fatal{fmt.Errorf("kubelet stand-in of %s ended: %w", n.name, err)}
			default:
			}
			return c.nodeReady(ctx, n.name)
		})
		if err != nil {
			return fmt.Errorf("wait for node %s: %w", n.name, err)
		}
		g, err := c.gpuNode(ctx, n.name)
		if err != nil {
			return err
		}
		out.say("node %s has %d × %s, %d slots", n.name, g.Status.DeviceCount, g.Status.Models, g.Status.SlotCount)
	}
	return nil
}

func (c *cluster) nodeReady(ctx context.Context, name string) error {
	g, err := c.gpuNode(ctx, name)
	if err != nil {
		return err
	}
	if !meta.IsStatusConditionTrue(g.Status.Conditions, v1alpha1.ConditionReady) {
		return fmt.Errorf("GPUNode %s is not ready: %+v", name, g.Status.Conditions)
	}
	kubeNode, err := c.admin.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if slots := kubeNode.Status.Allocatable[v1alpha1.ResourceVGPU]; slots.Value() != int64(g.Status.SlotCount) {
		return fmt.Errorf("node %s offers %s slots, its GPUs have %d", name, slots.String(), g.Status.SlotCount)
	}
	return nil
}

func (c *cluster) gpuNode(ctx context.Context, name string) (*v1alpha1.GPUNode, error) {
	client, err := dynamic.NewForConfig(c.plane.Admin())
	if err != nil {
		return nil, err
	}
	object, err := client.Resource(v1alpha1.GPUNodes).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	g := &v1alpha1.GPUNode{}
	return g, runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, g)
}

// fatal ends polling.
type fatal struct{ error }

func (f fatal) Unwrap() error { return f.error }

// poll calls f until it returns nil, a fatal error, or ctx ends.
func poll(ctx context.Context, f func() error) error {
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		err := f()
		if _, end := err.(fatal); err == nil || end { //nolint:errorlint // only as returned by f itself
			return err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w; last: %w", ctx.Err(), err)
		case <-ticker.C:
		}
	}
}

// endDaemons ends the MPS daemons that the agents left running, as they should: an upgraded agent adopts them. The
// state file in their environment identifies them.
func endDaemons(dir string) {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		deadline := time.Now().Add(3 * time.Second)
		for _, pid := range daemons(dir) {
			_ = syscall.Kill(pid, sig) // gone is fine
		}
		for len(daemons(dir)) > 0 && time.Now().Before(deadline) {
			time.Sleep(20 * time.Millisecond)
		}
	}
}

func daemons(dir string) []int {
	processes, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil
	}
	var found []int
	want := []byte(fakegpu.StateVariable + "=" + dir + "/")
	for _, path := range processes {
		environ, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(append([]byte{0}, environ...), append([]byte{0}, want...)) {
			continue
		}
		if pid, err := strconv.Atoi(strings.Split(path, "/")[2]); err == nil && pid != os.Getpid() {
			found = append(found, pid)
		}
	}
	return found
}
