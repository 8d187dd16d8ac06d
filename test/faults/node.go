package faults

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/fakekubelet"
)

// Spec is the configuration of a node.
type Spec struct {
	// GPUs is the number of A100s, SlotsPerGPU the number of slots of each.
	GPUs, SlotsPerGPU int
	// Config is the agent's configuration file.
	Config string
	// SmallDisk puts the agent's state on a file system of its own that a test can fill. The mount needs root.
	SmallDisk bool
	// Mute starts nothing that plays the kubelet.
	Mute bool
	// NoPodsAPI: the kubelet serves no pods, so that the agent reads them from the API server.
	NoPodsAPI bool
}

// quick is a configuration for tests that wait for the agent: the shortest intervals that it allows, or nearly. The canary
// has longer, since one that is late on a busy machine costs the device its server and doubles the hold.
const quick = `health: {interval: 1s, canaryInterval: 10s, canaryTimeout: 10s, hold: 1s, drainAfter: 1s}
telemetry: {interval: 2s, publishInterval: 10s}
`

// Node is one node under test.
type Node struct {
	world *World
	spec  Spec
	name  string
	dir   string
	// uuids of the devices, in the order of their first indices.
	uuids     []string
	paths     fakekubelet.Paths
	address   string // of the agent's HTTP server
	libraries string // the fakes
	processes *sandbox.Processes
	bystander *sandbox.Process
	pods      *pods
	tenants   *tenants

	mu      sync.Mutex
	agent   *sandbox.Process
	kubelet *kubelet
	// wanted: an agent should run. exits says why agents ended by themselves.
	wanted bool
	exits  []string
	// sound is the kubelet's checkpoint while the file holds something else.
	sound   []byte
	mounted bool
}

// NewNode makes a node and starts the kubelet and the agent on it.
func (w *World) NewNode(ctx context.Context, spec Spec) (*Node, error) {
	dir, err := os.MkdirTemp("", "f") // short: the path of a socket has at most 107 bytes
	if err != nil {
		return nil, fmt.Errorf("make node: %w", err)
	}
	number := w.nodes.Add(1)
	n := &Node{
		world: w, spec: spec, dir: dir, name: fmt.Sprintf("n%d", number),
		paths: fakekubelet.PathsIn(filepath.Join(dir, "k")), libraries: w.fakes(),
		// Every node has a loopback address of its own, so that no port meets another, also of a run beside this one.
		address: fmt.Sprintf("127.%d.%d.%d:9410", 1+os.Getpid()%250, 1+number/250, 1+number%250),
	}
	n.pods, n.tenants = newPods(n), newTenants(n)
	if err := n.make(ctx); err != nil {
		n.Remove()
		return nil, fmt.Errorf("make node %s: %w", n.name, err)
	}
	return n, nil
}

func (n *Node) path(elements ...string) string {
	return filepath.Join(append([]string{n.dir}, elements...)...)
}

func (n *Node) state() string           { return n.path("gpus.json") }
func (n *Node) pipe(uuid string) string { return n.path("mps", uuid, "pipe") }

func (n *Node) make(ctx context.Context) error {
	for _, dir := range []string{"dev", "log", "state", "k", "cdi"} {
		if err := os.MkdirAll(n.path(dir), 0o755); err != nil {
			return err
		}
	}
	state, err := fakegpu.Node(n.name, "A100", n.spec.GPUs)
	if err != nil {
		return err
	}
	names := []string{"nvidiactl", "nvidia-uvm"}
	for _, d := range state.Devices {
		n.uuids = append(n.uuids, d.UUID)
		names = append(names, fmt.Sprint("nvidia", d.MinorNumber))
	}
	for _, name := range names {
		if err := os.Symlink("/dev/null", n.path("dev", name)); err != nil { // a device that every machine has
			return err
		}
	}
	if err := errors.Join(state.Write(n.state()), os.WriteFile(n.path("agent.yaml"), []byte(n.spec.Config), 0o600)); err != nil {
		return err
	}
	if n.spec.SmallDisk {
		if err := unix.Mount("tmpfs", n.path("state"), "tmpfs", 0, "size=1m"); err != nil {
			return fmt.Errorf("mount a small disk: %w", err)
		}
		n.mounted = true
	}
	n.processes = sandbox.NewProcesses(n.path("log"))
	// No code of the agent may end it.
	if n.bystander, err = n.processes.Start("bystander", exec.Command("sleep", "1000000")); err != nil {
		return err
	}
	if n.spec.Mute {
		return n.StartAgent()
	}
	n.tenants.start()
	return errors.Join(n.StartKubelet(ctx), n.StartAgent())
}

// env puts the fakes before everything else.
func (n *Node) env() []string {
	return append(os.Environ(), fakegpu.Env(n.libraries, n.state())...)
}

func (n *Node) command() *exec.Cmd {
	cmd := exec.Command(n.world.programs["agent"],
		"--node-name="+n.name, "--kubeconfig="+n.world.kubeconfig, "--config="+n.path("agent.yaml"),
		"--device-plugin-dir="+n.paths.DevicePlugins, "--pod-resources-socket="+n.paths.PodResources,
		"--pods-api-socket="+n.paths.PodsAPI, "--cdi-dir="+n.paths.CDI, "--mps-dir="+n.path("mps"),
		"--state-dir="+n.path("state"), "--dev-root="+n.dir, "--http-address="+n.address, "--v=2",
	)
	cmd.Env = n.env()
	return cmd
}

// StartAgent starts the agent unless it runs. When it ends by itself it is started again, as the kubelet does.
func (n *Node) StartAgent() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wanted = true
	return n.launch()
}

// launch starts the agent unless it runs. The caller holds the lock.
func (n *Node) launch() error {
	if n.agent != nil {
		return nil
	}
	agent, err := n.processes.Start("agent", n.command())
	if err != nil {
		return err
	}
	n.agent = agent
	go n.supervise(agent)
	return nil
}

// supervise waits for the end of an agent and starts the next one, unless the test stopped it.
func (n *Node) supervise(agent *sandbox.Process) {
	<-agent.Done()
	n.mu.Lock()
	if n.agent != agent {
		n.mu.Unlock()
		return // the test stopped it
	}
	n.agent = nil
	n.exits = append(n.exits, fmt.Sprintf("%v: %s", agent.Err(), agent.Tail(1)))
	n.mu.Unlock()
	time.Sleep(backoff)
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.wanted {
		return
	}
	if err := n.launch(); err != nil {
		n.exits = append(n.exits, err.Error())
	}
}

// unexpected returns why agents ended that the test did not stop, but for the one reason that is theirs: without a byte
// of disk they cannot start.
func (n *Node) unexpected() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, why := range n.exits {
		if !strings.Contains(why, "no space left on device") {
			return fmt.Errorf("an agent ended: %s", why)
		}
	}
	return nil
}

// agentProcess returns the agent that runs, nil if none does.
func (n *Node) agentProcess() *sandbox.Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.agent
}

// stopTimeout is how long a pod's grace period gives the agent.
const stopTimeout = 30 * time.Second

// StopAgent ends the agent: by SIGTERM, or by SIGKILL. The result says whether one ran.
func (n *Node) StopAgent(kill bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.wanted = false
	agent := n.agent
	if agent == nil {
		return false
	}
	n.agent = nil
	grace := stopTimeout
	if kill {
		grace = 0
	}
	agent.Stop(grace)
	return true
}

// Log is the end of what the agents of the node said.
func (n *Node) Log() string {
	raw, err := os.ReadFile(n.path("log", "agent.log"))
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	return "the end of the agent's log:\n" + strings.Join(lines[max(0, len(lines)-logLines):], "\n")
}

// logLines is how much of the agent's log a failure shows.
const logLines = 60

// change changes what the driver pretends about a device.
func (n *Node) change(uuid string, change func(*fakegpu.Device)) error {
	return fakegpu.Update(n.state(), func(s *fakegpu.State) {
		if d, _ := s.Find(uuid); d != nil {
			change(d)
		}
	})
}

// Remove ends everything on the node and removes it.
func (n *Node) Remove() {
	n.tenants.stop()
	n.StopAgent(false)
	n.StopKubelet()
	n.endMPS()
	if n.processes != nil {
		n.processes.Stop(0)
	}
	if n.mounted {
		if err := unix.Unmount(n.path("state"), unix.MNT_DETACH); err != nil {
			fmt.Fprintln(os.Stderr, "remove node: unmount:", err)
		}
	}
	_ = os.RemoveAll(n.dir) // daemons that still run end when their folder is gone
}

// poll calls check until it returns nil. When ctx ends before, it returns the last error that says something else.
func poll(ctx context.Context, step time.Duration, what string, check func(context.Context) error) error {
	ticker := time.NewTicker(step)
	defer ticker.Stop()
	var last error
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", what, last)
		case <-ticker.C:
		}
	}
}
