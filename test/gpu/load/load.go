// Package load is the work that the GPU suite gives to a device: five kinds that differ in what they need most.
package load

import (
	_ "embed"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/tandem-gpu/tandem/test/gpu/driver"
)

//go:embed kernels.ptx
var kernels string

// Kinds of work.
const (
	// Compute multiplies and adds in registers, with blocks for all SMs: it is bound by the SMs.
	Compute = "compute"
	// Bandwidth copies within the device's memory, more than its caches hold: it is bound by memory bandwidth.
	Bandwidth = "bandwidth"
	// HostCopy copies pinned memory to the device and back: it is bound by PCIe and uses the copy engines alone.
	HostCopy = "hostcopy"
	// Inference is a request of many small kernels on a quarter of the SMs, one after the other.
	Inference = "inference"
	// Training is a step: a batch from the host, compute-bound kernels, memory-bound kernels, and a pause of the host.
	Training = "training"
)

// Kinds returns the names of all kinds, in the order of the tables.
func Kinds() []string { return []string{Compute, Bandwidth, HostCopy, Inference, Training} }

// Units names what one unit of a kind is.
func Units(kind string) string {
	return map[string]string{
		Compute: "kernels/s", Bandwidth: "copies of 256 MiB/s", HostCopy: "copies of 32 MiB each way/s",
		Inference: "requests/s", Training: "steps/s",
	}[kind]
}

const (
	threads = 256
	// streamed is what a copy within the device reads, and writes: several times the second-level cache of the largest GPUs.
	streamed = 256 << 20
	// carried is what a copy between host and device moves, batch what a training step fetches, answer what a request does.
	carried = 32 << 20
	batch   = 4 << 20
	answer  = 16 << 10
	// rounds of the compute-bound kernel: some 0.15 ms on an H100.
	rounds = 1000
	// pause is what the host of a training step does meanwhile: nothing.
	pause = 300 * time.Microsecond
)

// Load is a kind of work, ready on a device.
type Load struct {
	GPU     *driver.GPU
	kernels map[string]driver.Kernel
	kind    string
	// unit does some units of work and returns how many; the device may still be at work on them.
	unit func() (int, error)
	// small, a and b are memory of the device, pinned of the host.
	small, a, b driver.Address
	pinned      []byte
}

// New makes a context on the device and what a kind of work needs. The kind "" needs nothing.
func New(kind string) (*Load, error) {
	g, err := driver.Open()
	if err != nil {
		return nil, err
	}
	l := &Load{GPU: g, kind: kind}
	if l.kernels, err = g.Load(kernels, "compute", "stream", "where", "stay", "fault"); err != nil {
		return nil, err
	}
	units := map[string]func() (int, error){
		"": func() (int, error) { return 1, nil }, Compute: l.compute, Bandwidth: l.bandwidth, HostCopy: l.hostCopy,
		Inference: l.inference, Training: l.training,
	}
	unit, ok := units[kind]
	if !ok {
		return nil, fmt.Errorf("unknown kind of work %q: it is one of %s", kind, strings.Join(slices.Sorted(maps.Keys(units))[1:], ", "))
	}
	l.unit = unit
	return l, l.prepare()
}

// prepare takes the memory that the kind needs, and writes to it.
func (l *Load) prepare() (err error) {
	if l.kind == "" {
		return nil
	}
	if l.small, err = l.take(16 * 512 * threads * 4); err != nil {
		return err
	}
	device, host := map[string]int{Bandwidth: streamed, HostCopy: carried, Training: streamed, Inference: answer}[l.kind], 0
	switch l.kind {
	case HostCopy:
		host = carried
	case Training:
		host = batch
	case Inference:
		host = answer
	}
	if device > 0 {
		if l.a, err = l.take(device); err != nil {
			return err
		}
		if l.b, err = l.take(device); err != nil {
			return err
		}
	}
	if host > 0 {
		if l.pinned, err = l.GPU.Pin(host); err != nil {
			return err
		}
		for i := range l.pinned {
			l.pinned[i] = byte(i)
		}
	}
	return l.GPU.Wait()
}

func (l *Load) take(bytes int) (driver.Address, error) {
	p, err := l.GPU.Allocate(bytes)
	if err != nil {
		return 0, err
	}
	return p, l.GPU.Fill(p, 0x5a, bytes)
}

// blocks for the whole device: the same number whatever part of it the process may use, since the attribute is that of
// the device.
func (l *Load) blocks() int { return 16 * 132 }

func (l *Load) compute() (int, error) {
	for range 8 {
		if err := l.GPU.Launch(l.kernels["compute"], l.blocks(), threads, l.small, 0, rounds); err != nil {
			return 0, err
		}
	}
	return 8, l.GPU.Wait()
}

func (l *Load) bandwidth() (int, error) {
	for range 4 {
		if err := l.GPU.Launch(l.kernels["stream"], l.blocks(), threads, l.a, l.b, streamed/16); err != nil {
			return 0, err
		}
	}
	return 4, l.GPU.Wait()
}

func (l *Load) hostCopy() (int, error) {
	if err := l.GPU.ToDevice(l.a, l.pinned); err != nil {
		return 0, err
	}
	if err := l.GPU.ToHost(l.pinned, l.b); err != nil {
		return 0, err
	}
	return 1, l.GPU.Wait()
}

// layers is the number of kernels of a request.
const layers = 40

func (l *Load) inference() (int, error) {
	if err := l.GPU.ToDevice(l.a, l.pinned); err != nil {
		return 0, err
	}
	for range layers {
		if err := l.GPU.Launch(l.kernels["compute"], 32, threads, l.small, 0, rounds/10); err != nil {
			return 0, err
		}
	}
	if err := l.GPU.ToHost(l.pinned, l.b); err != nil {
		return 0, err
	}
	return 1, l.GPU.Wait()
}

func (l *Load) training() (int, error) {
	if err := l.GPU.ToDevice(l.a, l.pinned); err != nil {
		return 0, err
	}
	for range 4 {
		if err := l.GPU.Launch(l.kernels["compute"], l.blocks(), threads, l.small, 0, rounds); err != nil {
			return 0, err
		}
	}
	for range 2 {
		if err := l.GPU.Launch(l.kernels["stream"], l.blocks(), threads, l.a, l.b, streamed/16); err != nil {
			return 0, err
		}
	}
	if err := l.GPU.Wait(); err != nil {
		return 0, err
	}
	for begin := time.Now(); time.Since(begin) < pause; {
	}
	return 1, nil
}

// Result is what a load did in a while.
type Result struct {
	// Units of work in Seconds.
	Units   int     `json:"units"`
	Seconds float64 `json:"seconds"`
	// P50 and P99 are percentiles of the time of a unit, in milliseconds. Kinds that do several units at once have their mean.
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
}

// Rate in units a second.
func (r Result) Rate() float64 { return float64(r.Units) / r.Seconds }

// Run works for a while, and until the end of the last unit.
func (l *Load) Run(d time.Duration) (Result, error) {
	var times []float64
	var r Result
	begin := time.Now()
	for time.Since(begin) < d {
		before := time.Now()
		n, err := l.unit()
		if err != nil {
			return r, err
		}
		r.Units += n
		times = append(times, float64(time.Since(before))/float64(time.Millisecond)/float64(n))
	}
	r.Seconds = time.Since(begin).Seconds()
	slices.Sort(times)
	if n := len(times); n > 0 {
		r.P50, r.P99 = times[n/2], times[min(n-1, n*99/100)]
	}
	return r, nil
}

// SMs returns how many different SMs the blocks of a kernel run on that has enough of them for all.
func (l *Load) SMs() (int, error) {
	const blocks = 4096
	p, err := l.GPU.Allocate(blocks * 4)
	if err != nil {
		return 0, err
	}
	host, err := l.GPU.Pin(blocks * 4)
	if err != nil {
		return 0, err
	}
	// Each block fills half an SM, and stays for 20 µs.
	if err := l.GPU.Launch(l.kernels["where"], blocks, 1024, p, 0, 20_000); err != nil {
		return 0, err
	}
	if err := l.GPU.ToHost(host, p); err != nil {
		return 0, err
	}
	if err := l.GPU.Wait(); err != nil {
		return 0, err
	}
	seen := map[uint32]bool{}
	for _, sm := range unsafe.Slice((*uint32)(unsafe.Pointer(&host[0])), blocks) {
		seen[sm] = true
	}
	return len(seen), l.GPU.Free(p)
}

// Allocate takes memory in pieces until the driver refuses or the sum reaches a limit, and returns how much it took and
// the refusal. The memory stays taken.
func (l *Load) Allocate(piece, limit int) (taken int, refusal error) {
	for taken < limit {
		p, err := l.GPU.Allocate(piece)
		if err != nil {
			return taken, err
		}
		if err := l.GPU.Fill(p, 1, piece); err != nil {
			return taken, err
		}
		taken += piece
	}
	return taken, nil
}

// Occupy gives the device work for a while, on all SMs, and does not wait for it. The work writes to memory of its own, or
// touches none.
func (l *Load) Occupy(d time.Duration, writes bool) error {
	p, err := l.GPU.Allocate(l.blocks() * 4)
	if err != nil {
		return err
	}
	kernel := l.kernels["stay"]
	if writes {
		kernel = l.kernels["where"]
	}
	// Many short kernels, so that no watchdog takes an interest.
	for ; d > 0; d -= 100 * time.Millisecond {
		if err := l.GPU.Launch(kernel, 264, 1024, p, 0, int(100*time.Millisecond)); err != nil {
			return err
		}
	}
	return nil
}

// Fault writes to an illegal address, and returns the driver's answer.
func (l *Load) Fault() error {
	if err := l.GPU.Launch(l.kernels["fault"], 1, 1, 0x10, 0, 1); err != nil {
		return err
	}
	return l.GPU.Wait()
}
