package telemetry

import (
	"math"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-gpu/tandem/internal/agent/metrics"
	"github.com/tandem-gpu/tandem/internal/agent/nvml"
	"github.com/tandem-gpu/tandem/internal/agent/resident"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// client is a process on a device with the resident that it belongs to, -1 for one that belongs to none.
type client struct {
	nvml.Process
	resident int
}

// divide says what each resident of a device used, in their order, and sums up the device. whose returns the resident
// of a process, -1 for none.
//
// The driver may report the utilisation of the MPS server, or of the device, and of no client. Then the clients share
// it in proportion to the compute limits of their containers: no other known number bounds a client. A process without
// a resident counts as one that may use the whole device. Example: the server ran for 60 % of the time, two clients
// have limits of 20 % and 40 %: 20 % and 40 %.
func divide(s nvml.Sample, residents []resident.Share, whose func(pid int) int) ([]metrics.Use, metrics.Sample) {
	clients, server := clientsOf(s, whose)
	uses := make([]metrics.Use, len(residents))
	for i := range uses {
		uses[i].Source = metrics.SourceMeasured
	}
	if total, lumped := lump(s, clients, server); lumped {
		apportion(clients, residents, total)
		for _, c := range clients {
			if c.resident >= 0 {
				uses[c.resident].Source = metrics.SourceApportioned
			}
		}
	}
	device := metrics.Sample{
		MemoryUsed:  int64(s.MemoryUsed),
		Rates:       metrics.Rates{SM: s.SM, MemoryBandwidth: s.MemoryBandwidth},
		Temperature: float64(s.Temperature), Power: s.Power, Throttle: s.Throttle,
		ECCCorrected: s.ECCCorrected, ECCUncorrected: s.ECCUncorrected,
		Contexts: len(clients),
	}
	for _, c := range clients {
		if c.resident < 0 {
			device.Unattributed++
			device.UnattributedMemory += int64(c.Memory)
			continue
		}
		u := &uses[c.resident]
		u.Contexts++
		u.Memory += int64(c.Memory)
		u.SM = min(1, u.SM+c.SM)
		u.MemoryBandwidth = min(1, u.MemoryBandwidth+c.MemoryBandwidth)
	}
	return uses, device
}

// clientsOf returns the processes without the MPS server, which is nil where there is none.
func clientsOf(s nvml.Sample, whose func(pid int) int) (clients []client, server *nvml.Process) {
	for i := range s.Processes {
		p := &s.Processes[i]
		if p.Server {
			server = p
			continue
		}
		clients = append(clients, client{*p, whose(p.PID)})
	}
	return clients, server
}

// lump returns the utilisation that the clients have to share, false where the driver reports each client.
func lump(s nvml.Sample, clients []client, server *nvml.Process) (metrics.Rates, bool) {
	for _, c := range clients {
		if c.Measured {
			return metrics.Rates{}, false
		}
	}
	total := metrics.Rates{SM: s.SM, MemoryBandwidth: s.MemoryBandwidth}
	if server != nil && server.Measured {
		total = metrics.Rates{SM: server.SM, MemoryBandwidth: server.MemoryBandwidth}
	}
	return total, total.SM > 0 || total.MemoryBandwidth > 0
}

// apportion gives each client its part of the total. The processes of a container share its limit.
func apportion(clients []client, residents []resident.Share, total metrics.Rates) {
	processes := map[int]int{}
	for _, c := range clients {
		processes[c.resident]++
	}
	weight := func(c *client) float64 {
		if c.resident < 0 {
			return float64(vgpu.WholeGPU)
		}
		return float64(residents[c.resident].ComputeLimit) / float64(processes[c.resident])
	}
	sum := 0.0
	for i := range clients {
		sum += weight(&clients[i])
	}
	if sum == 0 {
		return
	}
	for i := range clients {
		part := weight(&clients[i]) / sum
		clients[i].SM, clients[i].MemoryBandwidth = part*total.SM, part*total.MemoryBandwidth
	}
}

// smoothing is how fast the published use follows the measured one: after a step the rest of the way to go is 37 % after
// this time. Shorter publishes bursts, longer hides a change of load.
const smoothing = time.Minute

// weight is how much of the way to a value an average goes in a time.
func weight(since time.Duration) float64 { return 1 - math.Exp(-since.Seconds()/smoothing.Seconds()) }

// smoothed is an exponential moving average of the use of a device.
type smoothed struct {
	sm, memoryBandwidth, memory float64
}

// follow returns the average after a sample, a time after the one before; nil begins it.
func (s *smoothed) follow(d *metrics.Sample, since time.Duration) *smoothed {
	if s == nil {
		return &smoothed{d.SM, d.MemoryBandwidth, float64(d.MemoryUsed)}
	}
	step := func(from, to float64) float64 { return from + weight(since)*(to-from) }
	return &smoothed{
		sm: step(s.sm, d.SM), memoryBandwidth: step(s.memoryBandwidth, d.MemoryBandwidth),
		memory: step(s.memory, float64(d.MemoryUsed)),
	}
}

// usage is the average in the form of the GPUNode.
func (s *smoothed) usage() *v1alpha1.GPUUsage {
	if s == nil {
		return nil
	}
	return &v1alpha1.GPUUsage{
		SMUtilizationPercent:   int32(math.Round(100 * s.sm)),
		MemoryBandwidthPercent: int32(math.Round(100 * s.memoryBandwidth)),
		MemoryUsed:             *resource.NewQuantity(int64(math.Round(s.memory)), resource.BinarySI),
	}
}

const (
	// newsPercent is by how many points a utilisation has to move to be published. newsOfMemory is the same for memory:
	// one part in so many of the device's memory. Smaller ones write the GPUNode more often, for all watchers.
	newsPercent  = 5
	newsOfMemory = 20
)

// isNews reports whether the use has moved far enough from the published one.
func isNews(have, now *v1alpha1.GPUUsage, memory int64) bool {
	if have == nil || now == nil {
		return have != now
	}
	far := func(a, b int32) bool { return a-b >= newsPercent || b-a >= newsPercent }
	moved := have.MemoryUsed.Value() - now.MemoryUsed.Value()
	return far(have.SMUtilizationPercent, now.SMUtilizationPercent) ||
		far(have.MemoryBandwidthPercent, now.MemoryBandwidthPercent) || max(moved, -moved)*newsOfMemory >= memory
}
