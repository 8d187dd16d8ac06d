package shapes

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// family makes one thing hard.
type family struct {
	name  string
	fills bool
	tune  func(d *drawer, s *Shape)
}

func families() []family {
	return []family{
		{"plain", true, nil}, {"plain-flow", false, nil},
		{"whole-beside-fractions", true, wholeBesideFractions}, {"whole-beside-fractions-flow", false, wholeBesideFractions},
		{"memory-heavy", true, memoryHeavy}, {"memory-heavy-flow", false, memoryHeavy},
		{"cpu-starved", true, cpuStarved}, {"cpu-starved-flow", false, cpuStarved},
		{"many-models", true, manyModels}, {"many-models-flow", false, manyModels},
		{"heavy-tail", true, heavyTail}, {"heavy-tail-flow", false, heavyTail},
		{"changing", true, changing}, {"changing-flow", false, changing},
		{"few-kinds", true, fewKinds}, {"few-kinds-flow", false, fewKinds},
		{"host-memory", true, hostMemory}, {"burst-flow", false, func(d *drawer, s *Shape) { s.burst = d.within(.05, .2) }},
		{"cpu-pods", true, cpuPods}, {"day-flow", false, func(d *drawer, s *Shape) {
			days := d.within(2, 5)
			s.busy = func(at float64) float64 { return 1 + .7*math.Sin(2*math.Pi*days*at) }
		}},
	}
}

// cluster draws one to three kinds of nodes.
func (d *drawer) cluster(s *Shape) {
	models := []string{"A100", "L4", "T4", "V100", "H100", "A10", "L40S"}
	d.Shuffle(len(models), func(i, j int) { models[i], models[j] = models[j], models[i] })
	perGPU, ram := d.spread(6, 24), d.spread(24, 128)
	for i := range 1 + d.IntN(3) {
		gpus := one(d, 1, 2, 4, 4, 8, 8)
		h := host{count: max(2, int(d.spread(40, 200))/gpus), gpus: gpus, model: models[i], memory: vgpu.Bytes(one(d, 16, 24, 40, 80)) * vgpu.GiB}
		h.room = vgpu.Room{
			MilliCPU: int64(1000 * math.Round(float64(gpus)*perGPU*d.within(.7, 1.3))),
			Memory:   vgpu.Bytes(float64(gpus)*ram*d.within(.7, 1.3)) * vgpu.GiB,
		}
		s.hosts = append(s.hosts, h)
	}
}

// perGPU returns the mean room of the hosts for each GPU.
func (s *Shape) perGPU() (milliCPU, memory float64) {
	for _, h := range s.hosts {
		milliCPU += float64(h.room.MilliCPU) * float64(h.count)
		memory += float64(h.room.Memory) * float64(h.count)
	}
	return milliCPU / s.gpus(), memory / s.gpus()
}

// mix draws three to twelve kinds of pods that want about as much of the hosts as of the GPUs.
func (d *drawer) mix(s *Shape) {
	for range 3 + d.IntN(10) {
		slots := vgpu.Slots(1 + d.IntN(9))
		if d.Float64() < .4 {
			slots = s.slots * vgpu.Slots(one(d, 1, 1, 1, 2, 2, 4, 8))
		}
		s.kinds = append(s.kinds, d.kind(s, slots))
	}
}

func (d *drawer) kind(s *Shape, slots vgpu.Slots) kind {
	cpu, memory := s.perGPU()
	gpus := float64(slots) / float64(s.slots)
	return kind{
		weight: d.spread(.1, 1), slots: slots,
		host: vgpu.Room{
			MilliCPU: int64(500 * math.Ceil(gpus*cpu*d.within(.2, 1.1)/500)),
			Memory:   vgpu.Bytes(math.Ceil(gpus*memory*d.within(.2, 1)/float64(vgpu.GiB))) * vgpu.GiB,
		},
		median: time.Duration(d.spread(300, 14400)) * time.Second, sigma: d.within(.3, 1.5),
	}
}

func wholeBesideFractions(d *drawer, s *Shape) {
	s.hosts[0].gpus = 8
	s.hosts[0].count = max(4, s.hosts[0].count)
	s.hosts[0].room.MilliCPU, s.hosts[0].room.Memory = max(s.hosts[0].room.MilliCPU, 64000), max(s.hosts[0].room.Memory, 256*vgpu.GiB)
	s.kinds = nil
	for range 2 + d.IntN(5) {
		s.kinds = append(s.kinds, d.kind(s, vgpu.Slots(1+d.IntN(5))))
	}
	s.share(d.kind(s, 80), d.within(.2, .6))
}

// share adds a kind that makes up a part of all demand.
func (s *Shape) share(k kind, part float64) {
	demand := 0.
	for i := range s.kinds {
		demand += s.kinds[i].weight * float64(s.kinds[i].slots)
	}
	k.weight = part / (1 - part) * demand / float64(k.slots)
	s.kinds = append(s.kinds, k)
}

func memoryHeavy(d *drawer, s *Shape) {
	least := s.hosts[0].memory
	for _, h := range s.hosts {
		least = min(least, h.memory)
	}
	for i := range s.kinds {
		if k := &s.kinds[i]; k.slots < s.slots && d.Float64() < .7 {
			k.memory = max(vgpu.GiB, vgpu.Bytes(min(.95, float64(k.slots)/float64(s.slots)*d.within(1, 4))*float64(least)/float64(vgpu.GiB))*vgpu.GiB)
		}
	}
}

func cpuStarved(d *drawer, s *Shape) {
	by := d.within(.35, .7)
	for i := range s.hosts {
		s.hosts[i].room.MilliCPU = int64(by*float64(s.hosts[i].room.MilliCPU)/1000) * 1000
	}
}

func hostMemory(d *drawer, s *Shape) {
	by := d.within(.35, .7)
	for i := range s.hosts {
		s.hosts[i].room.Memory = vgpu.Bytes(by*float64(s.hosts[i].room.Memory)/float64(vgpu.GiB)) * vgpu.GiB
	}
}

func manyModels(d *drawer, s *Shape) {
	s.hosts = nil
	for len(s.hosts) < 4 {
		d.cluster(s)
	}
	names := []string{"A100", "L4", "T4", "V100", "H100", "A10", "L40S"}
	for i := range s.hosts {
		s.hosts[i].model = names[i%len(names)]
		s.hosts[i].count = max(2, s.hosts[i].count/3)
	}
	for i := range s.kinds {
		if d.Float64() < .5 {
			continue
		}
		for range 1 + d.IntN(3) {
			s.kinds[i].models = append(s.kinds[i].models, s.hosts[d.IntN(len(s.hosts))].model)
		}
		slices.Sort(s.kinds[i].models)
		s.kinds[i].models = slices.Compact(s.kinds[i].models)
	}
}

// heavyTail makes 3 % of the pods a third to two thirds of the demand.
func heavyTail(d *drawer, s *Shape) {
	s.hosts[0].gpus = 8
	s.hosts[0].room.MilliCPU, s.hosts[0].room.Memory = max(s.hosts[0].room.MilliCPU, 64000), max(s.hosts[0].room.Memory, 256*vgpu.GiB)
	s.kinds = nil
	for range 3 + d.IntN(8) {
		s.kinds = append(s.kinds, d.kind(s, vgpu.Slots(1+d.IntN(4))))
	}
	s.share(d.kind(s, 80), d.within(.33, .66))
}

func changing(d *drawer, s *Shape) {
	begin, end := make([]float64, len(s.kinds)), make([]float64, len(s.kinds))
	for i := range s.kinds {
		begin[i], end[i] = d.spread(.05, 1), d.spread(.05, 1)
	}
	sudden, when := d.Float64() < .5, d.within(.3, .7)
	s.change = func(at float64, kind int) float64 {
		if sudden {
			if at < when {
				return begin[kind]
			}
			return end[kind]
		}
		return begin[kind] + at*(end[kind]-begin[kind])
	}
}

func fewKinds(d *drawer, s *Shape) {
	s.kinds = s.kinds[:cmp.Or(d.IntN(3), 1)]
	if d.Float64() < .5 {
		s.kinds[0].slots = vgpu.Slots(2 + d.IntN(4))
	}
}

func cpuPods(d *drawer, s *Shape) {
	cpu, memory := s.perGPU()
	k := kind{weight: d.within(.5, 3), median: time.Hour, sigma: 1, host: vgpu.Room{MilliCPU: int64(cpu * d.within(.1, .6)), Memory: vgpu.Bytes(memory * d.within(.05, .3))}}
	s.kinds = append(s.kinds, k)
}

// keepLegal makes each kind fit on an empty node at least.
func (d *drawer) keepLegal(s *Shape) {
	for i := range s.kinds {
		k := &s.kinds[i]
		gpus := int(k.slots / s.slots)
		var best *host
		for h := range s.hosts {
			x := &s.hosts[h]
			if len(k.models) > 0 && !slices.Contains(k.models, x.model) {
				continue
			}
			if best == nil || x.gpus > best.gpus {
				best = x
			}
		}
		if gpus > best.gpus {
			k.slots = s.slots * vgpu.Slots(best.gpus)
		}
		k.host.MilliCPU = min(k.host.MilliCPU, best.room.MilliCPU)
		k.host.Memory = min(k.host.Memory, best.room.Memory)
	}
}
