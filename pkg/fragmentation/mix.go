package fragmentation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Kind is one usual request: that of pods that look alike.
type Kind struct {
	// MilliCPU is the CPU request of a pod, in thousandths of a core.
	MilliCPU int64
	// Memory request of a pod on its host; 0 where it does not count.
	Memory vgpu.Bytes
	// Slots of the request; 0 for pods without GPUs. As in requests, k slots are k/N of one device or k/N whole
	// devices.
	Slots vgpu.Slots
	// DeviceMemory is the memory that it states, on all its devices together; 0 for memory in proportion to the slots.
	DeviceMemory vgpu.Bytes
	// Models that may serve it, sorted, each once, and joined by "|"; "" for any.
	Models string
	// Weight says how often it arrives, relative to the other kinds; above zero.
	Weight int64
}

// Bounds of a Mix: they keep sums of 16 losses within 64 bits, for nodes of up to 4,000 devices.
const (
	// MaxKinds bounds the time of Lost. A larger bound counts rarer kinds.
	MaxKinds = 4096
	// MaxWeight bounds the sum of the weights.
	MaxWeight = 1 << 36
	maxCPU    = 1 << 40
	maxMemory = 1 << 50
	maxSlots  = 1 << 40
)

// Mix is the requests that usually arrive. A Mix is immutable.
type Mix struct {
	kinds  []Kind
	models [][]string // per kind
	// bits numbers the models that kinds name, and allowed has the bits of each kind's models, 0 for any.
	bits    map[string]int
	allowed []uint64
	weight  int64
	// unseen is the weight of the requests for untouched devices and nodes, which count although none arrived.
	unseen int64
	// blind says that memory of devices does not count.
	blind bool
	// stated says that a kind states memory of devices.
	stated bool
}

// NewMix returns a mix of the kinds, the most frequent first. NewMix adds up kinds that differ in Weight only. The
// error names the illegal kind. A mix without kinds is legal and loses nothing.
func NewMix(kinds []Kind) (*Mix, error) {
	m := &Mix{kinds: append([]Kind(nil), kinds...)}
	for i := range m.kinds {
		if err := m.kinds[i].validate(); err != nil {
			return nil, fmt.Errorf("make mix: kind %d: %w", i, err)
		}
	}
	slices.SortFunc(m.kinds, func(a, b Kind) int { return a.compare(&b) })
	m.merge()
	slices.SortFunc(m.kinds, func(a, b Kind) int { return cmp.Or(cmp.Compare(b.Weight, a.Weight), a.compare(&b)) })
	if len(m.kinds) > MaxKinds {
		return nil, fmt.Errorf("make mix: %d kinds, at most %d are legal", len(m.kinds), MaxKinds)
	}
	for i := range m.kinds {
		if m.weight += m.kinds[i].Weight; m.weight > MaxWeight {
			return nil, fmt.Errorf("make mix: the weights add up to more than %d", MaxWeight)
		}
		var models []string
		if m.kinds[i].Models != "" {
			models = strings.Split(m.kinds[i].Models, "|")
		}
		m.stated = m.stated || m.kinds[i].DeviceMemory > 0
		m.models = append(m.models, models)
		m.allowed = append(m.allowed, m.bitsOf(models))
	}
	return m, nil
}

// bitsOf returns the bits of models. Beyond maxModels some share a bit, and only a Sketch reads them.
func (m *Mix) bitsOf(models []string) (bits uint64) {
	if m.bits == nil {
		m.bits = map[string]int{}
	}
	for _, model := range models {
		bit, known := m.bits[model]
		if !known {
			bit = len(m.bits)
			m.bits[model] = bit
		}
		bits |= 1 << (bit % maxModels)
	}
	return bits
}

func (k *Kind) validate() error {
	switch {
	case k.MilliCPU < 0 || k.MilliCPU > maxCPU:
		return fmt.Errorf("CPU of %d milli-cores, want 0 to %d", k.MilliCPU, maxCPU)
	case k.Memory < 0 || k.Memory > maxMemory:
		return fmt.Errorf("memory of %d bytes, want 0 to %d", k.Memory, int64(maxMemory))
	case k.Slots < 0 || k.Slots > maxSlots:
		return fmt.Errorf("%d slots, want 0 to %d", k.Slots, maxSlots)
	case k.DeviceMemory < 0 || k.DeviceMemory > maxMemory:
		return fmt.Errorf("device memory of %d bytes, want 0 to %d", k.DeviceMemory, int64(maxMemory))
	case k.Weight < 1 || k.Weight > MaxWeight:
		return fmt.Errorf("weight %d, want 1 to %d", k.Weight, MaxWeight)
	}
	if k.Models == "" {
		return nil
	}
	before := ""
	for _, model := range strings.Split(k.Models, "|") {
		if model <= before {
			return fmt.Errorf("models %q, want names in order, each once, joined by |", k.Models)
		}
		before = model
	}
	return nil
}

// compare orders kinds by all but the weight.
func (k *Kind) compare(o *Kind) int {
	return cmp.Or(cmp.Compare(k.MilliCPU, o.MilliCPU), cmp.Compare(k.Memory, o.Memory), cmp.Compare(k.Slots, o.Slots),
		cmp.Compare(k.DeviceMemory, o.DeviceMemory), cmp.Compare(k.Models, o.Models))
}

// merge adds up adjacent kinds that differ in Weight only.
func (m *Mix) merge() {
	out := m.kinds[:0]
	for _, k := range m.kinds {
		if last := len(out) - 1; last >= 0 && out[last].compare(&k) == 0 {
			out[last].Weight += k.Weight
			continue
		}
		out = append(out, k)
	}
	m.kinds = out
}

// Mix returns the mix itself, so that a Mix is a Measure.
func (m *Mix) Mix() *Mix { return m }

// Kinds returns the kinds, the most frequent first. Callers must not modify them.
func (m *Mix) Kinds() []Kind { return m.kinds }

// Weight returns the sum of the weights, without that of the unseen requests.
func (m *Mix) Weight() int64 { return m.weight }

// Expecting returns the mix with requests that nobody has seen yet. Half of their weight is a request for an untouched
// device, half one for an untouched node: all its devices. They stand for the large job that will come one day. The
// weight is 0 or more, in the unit of the kinds' weights. Kinds and Weight do not show these requests.
func (m *Mix) Expecting(unseen int64) *Mix {
	out := *m
	out.unseen = min(max(0, unseen), MaxWeight)
	return &out
}

// all returns the weight of all requests, the unseen ones too.
func (m *Mix) all() int64 { return m.weight + m.unseen }

// Typical returns the most frequent kinds, as few as make up the part of the weight, 1 to 100 percent. Among equally
// frequent kinds, those with less CPU, less memory, fewer slots, then the smaller models come first. Example: of
// weights 90, 6 and 4, 95 percent are the first two.
func (m *Mix) Typical(percent int64) *Mix {
	t := &Mix{bits: m.bits, unseen: m.unseen, blind: m.blind, stated: m.stated}
	for i := range m.kinds {
		if t.weight*100 >= percent*m.weight {
			break
		}
		t.kinds, t.models, t.allowed = m.kinds[:i+1], m.models[:i+1], m.allowed[:i+1]
		t.weight += m.kinds[i].Weight
	}
	return t
}

// Demanding returns the typical kinds of the part of the weight, or all kinds where the typical ones have less than the
// part of all slots, both in percent. So frequent small requests do not hide rare large ones. Example: of 97 pods of 3
// slots and 3 pods of 80, 95 percent of the weight are the first kind. The first kind has 55 percent of the slots; for
// a part of 90 both kinds count.
func (m *Mix) Demanding(percent, slots int64) *Mix {
	typical := m.Typical(percent)
	if typical.demand()*100 < m.demand()*float64(slots) {
		return m
	}
	return typical
}

// demand returns the slots of all kinds, each by its weight.
func (m *Mix) demand() float64 {
	sum := 0.
	for i := range m.kinds {
		// The conversion stops machines that multiply and add in one step from rounding in another way.
		sum += float64(float64(m.kinds[i].Weight) * float64(m.kinds[i].Slots))
	}
	return sum
}

// WithoutMemory returns the mix of the kinds without their memory, on hosts and devices: kinds that differ only in
// memory become one. The mix has no unseen requests.
func (m *Mix) WithoutMemory() *Mix {
	kinds := slices.Clone(m.kinds)
	for i := range kinds {
		kinds[i].Memory, kinds[i].DeviceMemory = 0, 0
	}
	plain, err := NewMix(kinds)
	if err != nil {
		panic("leave memory out of a mix: " + err.Error()) // fewer kinds of the same weight are legal
	}
	plain.blind = true
	return plain
}
