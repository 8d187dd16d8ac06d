package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/agent/cdi"
	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/internal/agent/health"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/nvml"
	"github.com/tandem-gpu/tandem/internal/agent/sharing"
)

// driver is a Driver whose devices fall ill on demand.
type driver struct {
	mu    sync.Mutex
	gpus  []inventory.GPU
	sick  map[string]error
	wants map[string]health.Recovery
	// hangs are the devices that the driver gives no answer about; closing the channel ends that.
	hangs map[string]chan struct{}
	// watching receives what the driver logs. It is nil before the first watch. noEvents is why a watch fails.
	watching chan health.XID
	noEvents error
	watches  int

	exclusive map[string]bool
	modeError error
	samples   map[string]nvml.Sample
}

func (d *driver) GPUs() ([]inventory.GPU, error) {
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

func (d *driver) Recovery(id string) health.Recovery {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.wants[id]
}

func (d *driver) Watch(ctx context.Context, report func(health.XID)) error {
	d.mu.Lock()
	d.watches++
	noEvents := d.noEvents
	if d.watching == nil {
		d.watching = make(chan health.XID)
	}
	d.mu.Unlock()
	if noEvents != nil {
		return noEvents
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

func (d *driver) want(id string, r health.Recovery) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wants[id] = r
}

func (d *driver) list(gpus ...inventory.GPU) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.gpus = gpus
}

// log has the driver log an error once somebody watches.
func (d *driver) log(t *testing.T, x health.XID) {
	t.Helper()
	fixture.Eventually(t, "a watch for XID errors", func() error {
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
	stubborn map[string]bool          // clients that cannot be ended
	lasting  map[string]error         // why a recycle fails
	held     map[string]chan struct{} // recycles that wait until a channel is closed
	recycled map[string]int
	ended    map[string][]int
	stopped  map[string]int
	probes   map[string]int
}

func newMPSFake() *mpsFake {
	return &mpsFake{
		dir: "/run/mps", down: map[string]error{}, ensured: map[string]int{}, silent: map[string]chan struct{}{},
		clients: map[string][]int{}, fault: map[string]bool{}, canary: map[string]error{}, stubborn: map[string]bool{}, lasting: map[string]error{}, held: map[string]chan struct{}{},
		recycled: map[string]int{}, ended: map[string][]int{}, stopped: map[string]int{}, probes: map[string]int{},
	}
}

func (m *mpsFake) Ensure(_ context.Context, g inventory.GPU) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ensured[g.ID]++
	return m.down[g.ID]
}

func (m *mpsFake) Ready(ctx context.Context, id string) error {
	t, err := m.Look(ctx, id)
	if err == nil && t.Fault {
		return sharing.ErrFault
	}
	return err
}

func (m *mpsFake) Look(_ context.Context, id string) (sharing.Tenancy, error) {
	m.mu.Lock()
	wait := m.silent[id]
	m.mu.Unlock()
	if wait != nil {
		<-wait
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ensured[id] == 0 {
		return sharing.Tenancy{}, sharing.ErrNotRunning
	}
	return sharing.Tenancy{Clients: slices.Clone(m.clients[id]), Fault: m.fault[id]}, m.down[id]
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

func (m *mpsFake) Recycle(ctx context.Context, g inventory.GPU) error {
	m.mu.Lock()
	wait := m.held[g.ID]
	m.mu.Unlock()
	if wait != nil {
		select {
		case <-wait:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recycled[g.ID]++
	if err := m.lasting[g.ID]; err != nil {
		return err
	}
	m.clients[g.ID], m.fault[g.ID] = nil, false
	if !errors.Is(m.canary[g.ID], sharing.ErrUnwatched) {
		delete(m.canary, g.ID)
	}
	if errors.Is(m.down[g.ID], sharing.ErrNoAnswer) {
		delete(m.down, g.ID)
	}
	return m.down[g.ID]
}

func (m *mpsFake) Probe(_ context.Context, g inventory.GPU) error {
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

// hold has the recycles of a device wait until the caller calls let: the signs of the sickness that a test wants to see last
// until then.
func (m *mpsFake) hold(id string) (let func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	wait := make(chan struct{})
	m.held[id] = wait
	return func() { close(wait) }
}

// change changes the fake under its lock.
func (m *mpsFake) change(do func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	do()
}

func (m *mpsFake) Client(c sharing.Client) sharing.Surroundings {
	pipe := filepath.Join(m.dir, c.Device, "pipe")
	return sharing.Surroundings{
		Env: []string{
			"CUDA_MPS_PIPE_DIRECTORY=" + pipe,
			fmt.Sprintf("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=%d", c.ComputeLimitPercent),
			fmt.Sprintf("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=%s=%dM", c.Device, c.MemoryLimit>>20),
		},
		Mounts: []cdi.Mount{{Host: pipe, Container: pipe, Options: []string{"rw", "bind"}}},
	}
}
