package deviceplugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/tandem-gpu/tandem/internal/cdi"
	"github.com/tandem-gpu/tandem/internal/kube"
	"github.com/tandem-gpu/tandem/internal/nvml"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	testNode = "n1"
	gib      = int64(1) << 30
	g0, g1   = "GPU-00000000-0000-0000-0000-000000000000", "GPU-11111111-1111-1111-1111-111111111111"
)

// driver is a Driver whose devices fall ill on demand.
type driver struct {
	mu    sync.Mutex
	gpus  []GPU
	sick  map[string]error
	wants map[string]recovery
	// hangs are the devices that the driver gives no answer about; closing the channel ends that.
	hangs map[string]chan struct{}
	// watching is sent what the driver logs; nil until somebody watches. deaf is why watching fails.
	watching chan XID
	deaf     error
	watches  int

	exclusive map[string]bool
	modeError error
	samples   map[string]nvml.Sample
}

func (d *driver) GPUs() ([]GPU, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.gpus), nil
}

func (d *driver) Version() (string, error) { return "580.95.05", nil }

func (d *driver) Health(id string) error {
	d.mu.Lock()
	wait := d.hangs[id]
	d.mu.Unlock()
	if wait != nil {
		<-wait
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.sick[id]
}

func (d *driver) Recovery(id string) recovery {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.wants[id]
}

func (d *driver) Watch(ctx context.Context, report func(XID)) error {
	d.mu.Lock()
	d.watches++
	deaf := d.deaf
	if d.watching == nil {
		d.watching = make(chan XID)
	}
	d.mu.Unlock()
	if deaf != nil {
		return deaf
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case x := <-d.watching:
			report(x)
		}
	}
}

func (d *driver) Exclusive(id string) (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.exclusive[id], d.modeError
}

func (d *driver) SetExclusive(id string, on bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.modeError == nil {
		d.exclusive[id] = on
	}
	return d.modeError
}

func (d *driver) Sample(id string) (nvml.Sample, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if s, ok := d.samples[id]; ok {
		return s, nil
	}
	return nvml.Sample{}, errors.New("not measured here")
}

// measure sets what the driver tells of the use of a device.
func (d *driver) measure(id string, s nvml.Sample) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.samples == nil {
		d.samples = map[string]nvml.Sample{}
	}
	d.samples[id] = s
}

func (d *driver) set(id string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.sick[id] = err
}

func (d *driver) want(id string, r recovery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wants[id] = r
}

func (d *driver) list(gpus ...GPU) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gpus = gpus
}

// log has the driver log an error once somebody watches.
func (d *driver) log(t *testing.T, x XID) {
	t.Helper()
	eventually(t, "a watch for XID errors", func() error {
		d.mu.Lock()
		to := d.watching
		d.mu.Unlock()
		if to == nil {
			return errors.New("nobody watches")
		}
		select {
		case to <- x:
			return nil
		case <-time.After(time.Second):
			return errors.New("nobody takes it")
		}
	})
}

// mpsFake is a Sharing that can be down, faulty or wedged.
type mpsFake struct {
	dir string

	mu      sync.Mutex
	down    map[string]error
	ensured map[string]int
	// silent, where it is set, is the device that answers no question; it is closed to end that.
	silent map[string]chan struct{}

	clients  map[string][]int
	fault    map[string]bool
	canary   map[string]error
	stubborn map[string]bool // clients that cannot be ended
	recycled map[string]int
	ended    map[string][]int
	stopped  map[string]int
	probes   map[string]int
}

func newMPSFake() *mpsFake {
	return &mpsFake{
		dir: "/run/mps", down: map[string]error{}, ensured: map[string]int{}, silent: map[string]chan struct{}{},
		clients: map[string][]int{}, fault: map[string]bool{}, canary: map[string]error{}, stubborn: map[string]bool{},
		recycled: map[string]int{}, ended: map[string][]int{}, stopped: map[string]int{}, probes: map[string]int{},
	}
}

func (m *mpsFake) Ensure(_ context.Context, g GPU) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ensured[g.ID]++
	return m.down[g.ID]
}

func (m *mpsFake) Ready(ctx context.Context, id string) error {
	t, err := m.Look(ctx, id)
	if err == nil && t.Fault {
		return errFault
	}
	return err
}

func (m *mpsFake) Look(_ context.Context, id string) (Tenancy, error) {
	m.mu.Lock()
	wait := m.silent[id]
	m.mu.Unlock()
	if wait != nil {
		<-wait
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ensured[id] == 0 {
		return Tenancy{}, errNotRunning
	}
	return Tenancy{Clients: slices.Clone(m.clients[id]), Fault: m.fault[id]}, m.down[id]
}

func (m *mpsFake) EndClients(_ context.Context, id string, pids []int) ([]int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stubborn[id] {
		return nil, errors.New("refused")
	}
	m.ended[id] = append(m.ended[id], pids...)
	m.clients[id] = slices.DeleteFunc(m.clients[id], func(pid int) bool { return slices.Contains(pids, pid) })
	return pids, nil
}

func (m *mpsFake) Recycle(_ context.Context, g GPU) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recycled[g.ID]++
	m.clients[g.ID], m.fault[g.ID] = nil, false
	if m.canary[g.ID] != errUnwatched {
		delete(m.canary, g.ID)
	}
	if m.down[g.ID] == errNoAnswer {
		delete(m.down, g.ID)
	}
	return m.down[g.ID]
}

func (m *mpsFake) Probe(_ context.Context, g GPU) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.probes[g.ID]++
	return m.canary[g.ID]
}

func (m *mpsFake) Stop(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.stopped[id]++
	m.ensured[id] = 0
	return nil
}

func (m *mpsFake) set(id string, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.down[id] = err
}

// change changes the fake under its lock.
func (m *mpsFake) change(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

func (m *mpsFake) Client(c Client) Surroundings {
	pipe := filepath.Join(m.dir, c.Device, "pipe")
	return Surroundings{
		Env: []string{
			"CUDA_MPS_PIPE_DIRECTORY=" + pipe,
			fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d", c.ComputeLimitPercent),
			fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=%s=%dM", c.Device, c.MemoryLimit>>20),
		},
		Mounts: []cdi.Mount{{Host: pipe, Container: pipe, Options: []string{"rw", "bind"}}},
	}
}

// bench is one node: a scripted kubelet, a driver with two A100s, and agents.
type bench struct {
	t       *testing.T
	dir     string
	kubelet *kubelet
	driver  *driver
	mps     *mpsFake
	gpu     dynamic.ResourceInterface
	config  Config
	timing  timing
	// open, where it is set, is how the agent gets its driver.
	open func() (Driver, error)
	// options, where it is set, changes the options of the agents.
	options func(*Options)
	// hostRoot has the driver in it where a test installs one.
	hostRoot string

	address string
	stop    func() error
}

func newBench(t *testing.T) *bench {
	t.Helper()
	dir, err := os.MkdirTemp("", "tdm") // short: the path of a socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	b := &bench{
		t: t, dir: dir,
		driver: &driver{
			sick: map[string]error{}, wants: map[string]recovery{}, hangs: map[string]chan struct{}{}, exclusive: map[string]bool{},
			gpus: []GPU{gpu(g1, 1, 3), gpu(g0, 0, 5)},
		},
		mps: newMPSFake(),
		timing: timing{
			health: 10 * time.Millisecond, canary: 50 * time.Millisecond, probe: time.Second, hold: 20 * time.Millisecond, drainAfter: 50 * time.Millisecond,
			rescan: 50 * time.Millisecond, announce: time.Millisecond, reopen: 10 * time.Millisecond, driver: 10 * time.Second,
			sweep: 10 * time.Millisecond, grace: 50 * time.Millisecond, sharingWait: 5 * time.Second, telemetry: 10 * time.Millisecond,
		},
	}
	if err := os.MkdirAll(filepath.Join(dir, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(dir, "dev", "uvm"), filepath.Join(dir, "dev", "nvidia-uvm")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"nvidia5", "nvidia3", "nvidiactl", "uvm"} {
		if err := os.WriteFile(filepath.Join(dir, "dev", name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b.kubelet = newKubelet(t, dir)
	return b
}

func gpu(id string, index, minor int) GPU {
	return GPU{
		ID: id, Index: index, Minor: minor, Model: "NVIDIA A100-SXM4-40GB", Memory: 40 * gib, ComputeMajor: 8,
		PCIBusID: fmt.Sprintf("00000000:0%d:00.0", index+7), NUMANode: index, Contexts: 48,
	}
}

func (b *bench) agent() *Agent {
	b.t.Helper()
	o := Options{
		NodeName: testNode, Config: b.config,
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
	if err != nil {
		b.t.Fatal(err)
	}
	a.timing, a.proc = b.timing, filepath.Join(b.dir, "proc")
	return a
}

func (b *bench) cdiDir() string   { return filepath.Join(b.dir, "cdi") }
func (b *bench) stateDir() string { return filepath.Join(b.dir, "state") }

// run starts an agent and waits until the kubelet sees its slots. The function ends it and returns Run's error.
func (b *bench) run() *Agent {
	b.t.Helper()
	a := b.launch()
	eventually(b.t, "registration", a.ready)
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
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = r.Body.Close() }()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		b.t.Fatal(err)
	}
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
	eventually(b.t, name, func() error {
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
	if err != nil {
		b.t.Fatal(err)
	}
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

// want is one container of a test pod.
type want struct {
	name    string
	kind    vgpu.ContainerKind
	devices []string
	// slots on each device; memory follows from them.
	slots int
}

// placed returns a pod as the scheduler leaves it: bound, with an assignment.
func placed(t *testing.T, name string, containers ...want) *v1.Pod {
	t.Helper()
	pod := unplaced(name, containers...)
	a := vgpu.Assignment{UID: vgpu.UID(pod.UID), Pod: pod.Namespace + "/" + pod.Name, Node: testNode}
	for _, c := range containers {
		ids := make([]vgpu.DeviceID, len(c.devices))
		for i, id := range c.devices {
			ids[i] = vgpu.DeviceID(id)
		}
		memory := vgpu.Bytes(4 * gib * int64(c.slots))
		a.Containers = append(a.Containers, vgpu.ContainerAssignment{Name: c.name, Kind: c.kind, Devices: ids, Share: vgpu.Share{
			Devices: len(ids), Slots: vgpu.Slots(c.slots), Memory: memory, MemoryLimit: memory, ComputeLimit: vgpu.MilliGPU(100 * c.slots),
		}})
	}
	raw, err := kube.EncodeAssignment(a)
	if err != nil {
		t.Fatal(err)
	}
	pod.Annotations = map[string]string{v1alpha1.AnnotationAssignment: raw}
	return pod
}

// unplaced returns a bound pod without an assignment.
func unplaced(name string, containers ...want) *v1.Pod {
	pod := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: name, UID: types.UID("uid-" + name)},
		Spec:       v1.PodSpec{NodeName: testNode, SchedulerName: v1alpha1.SchedulerName},
	}
	always := v1.ContainerRestartPolicyAlways
	for _, c := range containers {
		container := v1.Container{Name: c.name, Resources: v1.ResourceRequirements{Limits: v1.ResourceList{
			v1alpha1.ResourceVGPU: *resource.NewQuantity(int64(c.slots*max(1, len(c.devices))), resource.DecimalSI),
		}}}
		switch c.kind {
		case vgpu.App:
			pod.Spec.Containers = append(pod.Spec.Containers, container)
			continue
		case vgpu.Sidecar:
			container.RestartPolicy = &always
		}
		pod.Spec.InitContainers = append(pod.Spec.InitContainers, container)
	}
	return pod
}

func app(device string, slots int) want {
	return want{name: "main", kind: vgpu.App, devices: []string{device}, slots: slots}
}
