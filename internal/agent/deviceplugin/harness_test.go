package deviceplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/internal/agent/config"
	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/internal/agent/health"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/test/must"
)

// bench is one node: a scripted kubelet, a driver with two A100s, and agents.
type bench struct {
	t       *testing.T
	dir     string
	kubelet *kubelet
	driver  *driver
	mps     *mpsFake
	gpu     dynamic.ResourceInterface
	config  config.Config
	timing  timing
	// open, where it is set, is how the agent gets its driver.
	open func() (Driver, error)
	// options, where it is set, changes the options of the agents.
	options func(*Options)
	// dial, where it is set, connects to pods that report their rates.
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// hostRoot has the driver in it where a test installs one.
	hostRoot string

	address string
	stop    func() error
}

func newBench(t *testing.T) *bench {
	t.Helper()
	return newBenchWith(t, &kubelet{})
}

func newBenchWith(t *testing.T, k *kubelet) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "tdm") // short: the path of a socket has at most 107 bytes
	must.OK(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &bench{
		t: t, dir: dir,
		driver: &driver{
			sick: map[string]error{}, wants: map[string]health.Recovery{}, hangs: map[string]chan struct{}{}, exclusive: map[string]bool{},
			gpus: []inventory.GPU{fixture.GPU(fixture.G1, 1, 3), fixture.GPU(fixture.G0, 0, 5)},
		},
		mps: newMPSFake(),
		timing: timing{
			health: 10 * time.Millisecond, canary: 50 * time.Millisecond, probe: time.Second, hold: 20 * time.Millisecond, drainAfter: 50 * time.Millisecond,
			rescan: 50 * time.Millisecond, announce: time.Millisecond, reopen: 10 * time.Millisecond, driver: 10 * time.Second,
			sweep: 10 * time.Millisecond, grace: 500 * time.Millisecond, sharingWait: fixture.TooLong, telemetry: 10 * time.Millisecond,
			reports: 100 * time.Millisecond, patience: fixture.TooLong, silence: 10 * time.Millisecond, again: 10 * time.Millisecond, watch: fixture.TooLong, hint: fixture.TooLong,
		},
	}
	must.OK(t, os.MkdirAll(filepath.Join(dir, "dev"), 0o755))
	must.OK(t, os.Symlink(filepath.Join(dir, "dev", "uvm"), filepath.Join(dir, "dev", "nvidia-uvm")))
	for _, name := range []string{"nvidia5", "nvidia3", "nvidiactl", "uvm"} {
		must.OK(t, os.WriteFile(filepath.Join(dir, "dev", name), nil, 0o600))
	}
	b.kubelet = k.in(t, dir)
	return b
}

func (b *bench) agent() *Agent {
	b.t.Helper()
	o := Options{
		NodeName: fixture.Node, Config: b.config,
		DevicePluginDir: b.kubelet.pluginDir(), PodResourcesSocket: b.kubelet.placesSocket(), PodsAPISocket: b.kubelet.podsSocket(),
		CDIDir: b.cdiDir(), StateDir: b.stateDir(), DevRoot: b.dir, HostRoot: b.hostRoot, HTTPAddress: "127.0.0.1:0",
		Driver: b.driver, Sharing: b.mps, GPUNodes: b.gpu,
	}
	if b.open != nil {
		o.Driver, o.OpenDriver = nil, b.open
	}
	if b.options != nil {
		b.options(&o)
	}
	a, err := New(o)
	must.OK(b.t, err)
	a.timing, a.dial, a.proc = b.timing, b.dial, filepath.Join(b.dir, "proc")
	return a
}

func (b *bench) cdiDir() string   { return filepath.Join(b.dir, "cdi") }
func (b *bench) stateDir() string { return filepath.Join(b.dir, "state") }

// run starts an agent and waits until the kubelet sees its slots. The function ends it and returns Run's error.
func (b *bench) run() *Agent {
	b.t.Helper()
	a := b.launch()
	fixture.Eventually(b.t, "registration", a.ready)
	b.kubelet.awaitSlots(20, 0)
	return a
}

func (b *bench) launch() *Agent {
	b.t.Helper()
	a := b.agent()
	logger := ktesting.NewLogger(b.t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	ctx, cancel := context.WithCancel(klog.NewContext(context.Background(), logger))
	ended := make(chan error, 1)
	started := make(chan struct{})
	var once, first sync.Once
	a.serving = func(address string) { first.Do(func() { b.address = address; close(started) }) }
	go func() { ended <- a.Run(ctx) }()
	var err error
	b.stop = func() error {
		once.Do(func() {
			cancel()
			err = <-ended
		})
		return err
	}
	b.t.Cleanup(func() { _ = b.stop() })
	select {
	case <-started:
	case err := <-ended:
		b.t.Fatalf("agent ended: %v", err)
	}
	return a
}

// get fetches a page of the agent.
func (b *bench) get(path string) (int, string) {
	b.t.Helper()
	r, err := http.Get("http://" + b.address + path)
	must.OK(b.t, err)
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	must.OK(b.t, err)
	return r.StatusCode, string(body)
}

// metric returns the value of a metric as the page writes it, "" where it is absent.
func (b *bench) metric(name string) string {
	b.t.Helper()
	_, page := b.get("/metrics")
	for line := range strings.Lines(page) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			return value
		}
	}
	return ""
}

func (b *bench) awaitMetric(name, want string) {
	b.t.Helper()
	fixture.Eventually(b.t, name, func() error {
		if have := b.metric(name); have != want {
			return fmt.Errorf("is %q, want %q", have, want)
		}
		return nil
	})
}

// spec returns what the runtime finds under the name of a container.
func (b *bench) spec(pod *v1.Pod, container string) (cdi.Spec, error) {
	b.t.Helper()
	store, err := cdi.Open(b.cdiDir())
	must.OK(b.t, err)
	return store.Read(b.kubelet.cdiName(pod, container))
}

// absent is nil where err says that a spec is not there.
func absent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("the spec is there: %w", cmp.Or(err, errors.New("readable")))
}

// visible returns the devices that a container was given, by its environment.
func (b *bench) visible(pod *v1.Pod, container string) string {
	b.t.Helper()
	s, err := b.spec(pod, container)
	if err != nil {
		b.t.Fatalf("pod %s, container %s: %v", pod.Name, container, err)
	}
	for _, e := range s.Edits.Env {
		if v, ok := strings.CutPrefix(e, "NVIDIA_VISIBLE_DEVICES="); ok {
			return v
		}
	}
	return ""
}
