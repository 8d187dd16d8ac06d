package fragmentation_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

func TestNewMixErrors(t *testing.T) {
	const most = fragmentation.MaxWeight
	legal := fragmentation.Kind{Slots: 1, Weight: 1}
	tests := []struct {
		name  string
		kinds []fragmentation.Kind
		want  string
	}{
		{"negative CPU", []fragmentation.Kind{legal, {MilliCPU: -1, Weight: 1}}, "make mix: kind 1: CPU of -1 milli-cores, want 0 to 1099511627776"},
		{"much CPU", []fragmentation.Kind{{MilliCPU: 1<<40 + 1, Weight: 1}}, "make mix: kind 0: CPU of 1099511627777 milli-cores, want 0 to 1099511627776"},
		{"negative memory", []fragmentation.Kind{{Memory: -1, Weight: 1}}, "make mix: kind 0: memory of -1 bytes, want 0 to 1125899906842624"},
		{"much memory", []fragmentation.Kind{{Memory: 1<<50 + 1, Weight: 1}}, "make mix: kind 0: memory of 1125899906842625 bytes, want 0 to 1125899906842624"},
		{"negative slots", []fragmentation.Kind{{Slots: -1, Weight: 1}}, "make mix: kind 0: -1 slots, want 0 to 1099511627776"},
		{"many slots", []fragmentation.Kind{{Slots: 1<<40 + 1, Weight: 1}}, "make mix: kind 0: 1099511627777 slots, want 0 to 1099511627776"},
		{"no weight", []fragmentation.Kind{{Slots: 1}}, "make mix: kind 0: weight 0, want 1 to 68719476736"},
		{"much weight", []fragmentation.Kind{{Slots: 1, Weight: most + 1}}, "make mix: kind 0: weight 68719476737, want 1 to 68719476736"},
		{"much weight together", []fragmentation.Kind{{Slots: 1, Weight: most}, legal}, "make mix: the weights add up to more than 68719476736"},
		{"models out of order", []fragmentation.Kind{{Slots: 1, Models: "T4|A100", Weight: 1}}, `make mix: kind 0: models "T4|A100", want names in order, each once, joined by |`},
		{"a model twice", []fragmentation.Kind{{Slots: 1, Models: "T4|T4", Weight: 1}}, `make mix: kind 0: models "T4|T4", want names in order, each once, joined by |`},
		{"a model without a name", []fragmentation.Kind{{Slots: 1, Models: "|T4", Weight: 1}}, `make mix: kind 0: models "|T4", want names in order, each once, joined by |`},
		{"many kinds", kindsOf(fragmentation.MaxKinds + 1), "make mix: 4097 kinds, at most 4096 are legal"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if _, err := fragmentation.NewMix(tc.kinds); err == nil || err.Error() != tc.want {
				t.Errorf("error %v, want %s", err, tc.want)
			}
		})
	}
}

// kindsOf returns so many unlike kinds.
func kindsOf(n int) []fragmentation.Kind {
	kinds := make([]fragmentation.Kind, n)
	for i := range kinds {
		kinds[i] = fragmentation.Kind{MilliCPU: int64(i), Slots: 1, Weight: 1}
	}
	return kinds
}

// TestNewMixBounds: the largest legal amounts, and a loss of them that does not overflow.
func TestNewMixBounds(t *testing.T) {
	if _, err := fragmentation.NewMix(append(kindsOf(fragmentation.MaxKinds), kindsOf(fragmentation.MaxKinds)...)); err != nil {
		t.Errorf("kinds that are the same count as one: %v", err)
	}
	m, err := fragmentation.NewMix([]fragmentation.Kind{
		{MilliCPU: 1 << 40, Memory: 1 << 50, Slots: 1 << 40, Models: "A100|T4", Weight: fragmentation.MaxWeight},
	})
	must.OK(t, err)
	n := drawn(t, "n1: g0 A100 | g1 A100")
	if got, want := m.Lost(n), int64(2000*fragmentation.MaxWeight); got != want {
		t.Errorf("lost %d, want %d", got, want)
	}
}

// TestKinds: the most frequent first, then less CPU, less memory, fewer slots, the smaller models; equal kinds are one.
func TestKinds(t *testing.T) {
	given := []fragmentation.Kind{
		{Slots: 2, Models: "T4", Weight: 3},
		{Slots: 2, Models: "A100", Weight: 3},
		{Slots: 5, Weight: 2},
		{MilliCPU: 1, Weight: 3},
		{Memory: 1, Weight: 3},
		{Slots: 5, Weight: 4},
		{Slots: 1, Models: "T4", Weight: 3},
	}
	m, err := fragmentation.NewMix(given)
	must.OK(t, err)
	want := []fragmentation.Kind{
		{Slots: 5, Weight: 6},
		{Slots: 1, Models: "T4", Weight: 3},
		{Slots: 2, Models: "A100", Weight: 3},
		{Slots: 2, Models: "T4", Weight: 3},
		{Memory: 1, Weight: 3},
		{MilliCPU: 1, Weight: 3},
	}
	if diff := cmp.Diff(want, m.Kinds()); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
	if m.Weight() != 21 {
		t.Errorf("weight %d, want 21", m.Weight())
	}
	if given[0].Weight != 3 || given[0].Models != "T4" {
		t.Errorf("NewMix changed what it was given: %+v", given)
	}
}

func TestTypical(t *testing.T) {
	tests := []struct {
		name, mix string
		percent   int64
		want      []vgpu.Slots
	}{
		{"the example of Typical", "slots=1 weight=90\nslots=2 weight=6\nslots=3 weight=4", 95, []vgpu.Slots{1, 2}},
		{"exactly reached", "slots=1 weight=95\nslots=2 weight=5", 95, []vgpu.Slots{1}},
		{"just missed", "slots=1 weight=949\nslots=2 weight=51", 95, []vgpu.Slots{1, 2}},
		{"all", "slots=1 weight=98\nslots=2 weight=1\nslots=3 weight=1", 100, []vgpu.Slots{1, 2, 3}},
		{"one percent", "slots=1 weight=98\nslots=2 weight=2", 1, []vgpu.Slots{1}},
		{"of equally frequent ones the fewer slots", "slots=9 weight=1\nslots=4 weight=1", 50, []vgpu.Slots{4}},
		{"of equally frequent ones the less CPU", "slots=4 cpu=2 weight=1\nslots=9 cpu=1 weight=1", 50, []vgpu.Slots{9}},
		{"of equally frequent ones the less memory", "slots=4 memory=2 weight=1\nslots=9 memory=1 weight=1", 50, []vgpu.Slots{9}},
		{"no kinds", "", 95, nil},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got := mixOf(t, tc.mix).Typical(tc.percent)
			var slots []vgpu.Slots
			weight := int64(0)
			for _, k := range got.Kinds() {
				slots, weight = append(slots, k.Slots), weight+k.Weight
			}
			if diff := cmp.Diff(tc.want, slots); diff != "" || got.Weight() != weight {
				t.Errorf("weight %d, of the kinds %d (-want +got):\n%s", got.Weight(), weight, diff)
			}
		})
	}
}

func TestDemanding(t *testing.T) {
	const tail = "slots=3 weight=97\nslots=80 weight=3" // the first has 291 of 531 slots: 54.8 %
	tests := []struct {
		name, mix      string
		percent, slots int64
		want           int
	}{
		{"the example of Demanding", tail, 95, 90, 2},
		{"the typical ones ask for enough", tail, 95, 54, 1},
		{"just not enough", tail, 95, 55, 2},
		{"exactly enough", "slots=9 weight=95\nslots=19 weight=5", 95, 90, 1}, // 855 of 950
		{"demand is no matter", tail, 95, 0, 1},
		{"of many rare ones all count", "slots=1 weight=95\nslots=30 weight=3\nslots=40 weight=1\nslots=50 weight=1", 95, 90, 4},
		{"pods without GPUs ask for nothing", "slots=0 weight=96\nslots=1 weight=4", 95, 90, 2},
		{"no pod asks for GPUs", "slots=0 cpu=1 weight=96\nslots=0 cpu=2 weight=4", 95, 90, 1},
		{"no kinds", "", 95, 90, 0},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if got := mixOf(t, tc.mix).Demanding(tc.percent, tc.slots).Kinds(); len(got) != tc.want {
				t.Errorf("%d kinds count, want %d: %v", len(got), tc.want, got)
			}
		})
	}
}

// TestWithoutMemory: the two kinds of 5 slots differ in memory only, so they become the most frequent one.
func TestWithoutMemory(t *testing.T) {
	m := mixOf(t, "slots=2 cpu=1 memory=9Gi weight=4\nslots=5 memory=1Gi weight=3\nslots=5 memory=2Gi weight=3\nslots=5 models=T4 weight=1")
	plain := m.WithoutMemory()
	want := []fragmentation.Kind{{Slots: 5, Weight: 6}, {MilliCPU: 1000, Slots: 2, Weight: 4}, {Slots: 5, Models: "T4", Weight: 1}}
	if diff := cmp.Diff(want, plain.Kinds()); diff != "" || plain.Weight() != m.Weight() {
		t.Errorf("weight %d of %d (-want +got):\n%s", plain.Weight(), m.Weight(), diff)
	}
	if m.Kinds()[0].Memory == 0 {
		t.Error("WithoutMemory changed the mix")
	}
	n := drawn(t, "n1 cpu=8: g0 A100") // no memory at all
	if got := plain.Lost(n); got != 1000 {
		t.Errorf("lost %d, want 1000: all but the kind on T4 fit", got)
	}
}

// FuzzNewMix: whatever the kind, NewMix makes a mix that measures, or says which field is wrong.
func FuzzNewMix(f *testing.F) {
	f.Add(int64(1000), int64(1<<30), int64(5), "A100|T4", int64(1))
	f.Add(int64(-1), int64(0), int64(0), "", int64(0))
	f.Add(int64(1<<40), int64(1<<50), int64(1<<40), "|", int64(fragmentation.MaxWeight))
	f.Fuzz(func(t *testing.T, cpu, memory, slots int64, models string, weight int64) {
		m, err := fragmentation.NewMix([]fragmentation.Kind{
			{MilliCPU: cpu, Memory: vgpu.Bytes(memory), Slots: vgpu.Slots(slots), Models: models, Weight: weight},
		})
		if err != nil {
			if !strings.HasPrefix(err.Error(), "make mix: kind 0: ") {
				t.Errorf("error %v names no kind", err)
			}
			return
		}
		n := drawn(t, "n1 cpu=8 memory=64Gi: g0 A100 [a:3] | g1 A100 | g2 T4")
		loss, whole := m.Of(n, freeOf(n), n.Room()), 2700*m.Weight()
		if loss.Lost < 0 || loss.Starved < 0 || loss.Lost+loss.Starved > whole {
			t.Errorf("loss %+v of %d for %+v", loss, whole, m.Kinds())
		}
	})
}
