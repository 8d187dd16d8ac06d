package mig

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/test/must"
)

// guide is the table of NVIDIA's MIG user guide for the A100 and the H100, written independently of the package: by
// compute slices how many memory slices an instance takes, and where it may start.
var guide = map[Slices]struct {
	memory int
	starts []int
}{
	1: {1, []int{0, 1, 2, 3, 4, 5, 6}},
	2: {2, []int{0, 2, 4}},
	3: {4, []int{0, 4}},
	4: {4, []int{0}},
	7: {8, []int{0}},
}

func TestSizes(t *testing.T) {
	if diff := cmp.Diff([]Slices{1, 2, 3, 4, 7}, Sizes()); diff != "" {
		t.Errorf("sizes (-want +got):\n%s", diff)
	}
	for s := Slices(-1); s < 10; s++ {
		want := guide[s]
		if s.Memory() != want.memory || !slices.Equal(s.Starts(), want.starts) {
			t.Errorf("%d slices: memory %d, starts %v, want %+v", s, s.Memory(), s.Starts(), want)
		}
	}
}

// layouts adds to all what can stand on a device: from a memory slice on, beside what stands before it.
func layouts(from int, have counts, all map[counts]bool) {
	if from >= 8 {
		all[have] = true
		return
	}
	layouts(from+1, have, all)
	for i, s := range Sizes() {
		if g := guide[s]; slices.Contains(g.starts, from) {
			more := have
			more[i]++
			layouts(from+g.memory, more, all)
		}
	}
}

// fewest returns the fewest devices for the counts, by a search of all placements.
func fewest(n counts, of map[counts]bool, memo map[counts]int) int {
	if n == (counts{}) {
		return 0
	}
	if k, ok := memo[n]; ok {
		return k
	}
	best := math.MaxInt
	for one := range of {
		rest, fits := n, one != counts{}
		for i := range rest {
			rest[i] -= one[i]
			fits = fits && rest[i] >= 0
		}
		if fits {
			best = min(best, 1+fewest(rest, of, memo))
		}
	}
	memo[n] = best
	return best
}

// TestLaws: the laws count as many devices as are needed when all placements are tried.
func TestLaws(t *testing.T) {
	of, memo := map[counts]bool{}, map[counts]int{}
	layouts(0, counts{}, of)
	if len(of) < 30 {
		t.Fatalf("%d layouts of a device", len(of))
	}
	tried := 0
	for i := range 9 * 6 * 5 * 4 * 2 {
		n := counts{i % 9, i / 9 % 6, i / 54 % 5, i / 270 % 4, i / 1080}
		if got, want := n.used().devices(), fewest(n, of, memo); got != want {
			t.Errorf("instances %v by sizes %v: %d devices, want %d", n, Sizes(), got, want)
		}
		tried++
	}
	t.Logf("%d layouts of a device, %d sets of instances", len(of), tried)
}

// TestDevices works some out by hand.
func TestDevices(t *testing.T) {
	for _, tc := range []struct {
		instances []Slices
		want      int
	}{
		{nil, 0},
		{[]Slices{1}, 1},
		{[]Slices{7, 1}, 2},
		{[]Slices{4, 3}, 1},
		{[]Slices{4, 4}, 2},                // both start at 0
		{[]Slices{3, 3}, 1},                // at 0 and 4
		{[]Slices{3, 3, 1}, 2},             // eight memory slices are taken
		{[]Slices{3, 2, 2}, 1},             // at 4, 0, 2
		{[]Slices{2, 2, 2, 1}, 1},          // at 0, 2, 4, 6
		{[]Slices{4, 2, 1}, 1},             // at 0, 4, 6
		{[]Slices{2, 2, 2, 2}, 2},          // three even starts
		{[]Slices{1, 1, 1, 1, 1, 1, 1}, 1}, // at 0 to 6
		{[]Slices{1, 1, 1, 1, 1, 1, 1, 1}, 2},
	} {
		if got, err := Devices(tc.instances); err != nil || got != tc.want {
			t.Errorf("%v: %d devices, want %d, error %v", tc.instances, got, tc.want, err)
		}
	}
	_, err := Devices([]Slices{3, 5})
	const want = "count devices: instance of 5 compute slices: legal are [1 2 3 4 7]"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// checkDevice compares a device with the table of the guide.
func checkDevice(t interface{ Fatalf(string, ...any) }, d Device) {
	var taken [8]bool
	for i, one := range d {
		g := guide[one.Slices]
		if !slices.Contains(g.starts, one.Start) || (i > 0 && d[i-1].Start >= one.Start) {
			t.Fatalf("instance %+v starts where it may not, or out of order: %+v", one, d)
		}
		for m := range g.memory {
			if taken[one.Start+m] {
				t.Fatalf("two instances on memory slice %d: %+v", one.Start+m, d)
			}
			taken[one.Start+m] = true
		}
	}
	if len(d) == 0 {
		t.Fatalf("a device without instances")
	}
}

// TestPropertyPack: all instances are placed, legally, on the fewest devices, in whatever order they come.
func TestPropertyPack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want []Instance
		var all []Slices
		for i, s := range rapid.SliceOfN(rapid.SampledFrom(Sizes()), 0, 60).Draw(t, "sizes") {
			want = append(want, Instance{Model: fmt.Sprint(i % 3), Variant: Variant{Slices: s, Batch: 1 + i%2}})
			all = append(all, s)
		}
		before := slices.Clone(want)
		devices, err := Pack(want)
		must.OK(t, err)
		if diff := cmp.Diff(before, want); diff != "" {
			t.Fatalf("the argument changed (-want +got):\n%s", diff)
		}
		if n, err := Devices(all); err != nil || n != len(devices) {
			t.Fatalf("%d devices, want %d, error %v", len(devices), n, err)
		}
		var got []Instance
		for _, d := range devices {
			checkDevice(t, d)
			got = append(got, d...)
		}
		for i := range got {
			got[i].Start = 0
		}
		slices.SortFunc(got, compareInstances)
		shuffled := rapid.Permutation(want).Draw(t, "order")
		slices.SortFunc(want, compareInstances)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("instances (-want +got):\n%s", diff)
		}
		again, err := Pack(shuffled)
		must.OK(t, err)
		if diff := cmp.Diff(devices, again); diff != "" {
			t.Fatalf("in another order (-want +got):\n%s", diff)
		}
	})
}

// TestPackFillsDevices: the free slices are on as few devices as can be. The second instance of two slices goes beside the
// first, though another device has a start that it would take first.
func TestPackFillsDevices(t *testing.T) {
	var instances []Instance
	for _, s := range []Slices{2, 3, 2, 3} {
		instances = append(instances, Instance{Variant: Variant{Slices: s}})
	}
	devices, err := Pack(instances)
	must.OK(t, err)
	at := func(s Slices, start int) Instance { return Instance{Variant: Variant{Slices: s}, Start: start} }
	if diff := cmp.Diff([]Device{{at(2, 0), at(2, 2), at(3, 4)}, {at(3, 4)}}, devices); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
}

func TestPackErrors(t *testing.T) {
	_, err := Pack([]Instance{{Model: "bert", Variant: Variant{Slices: 8}}})
	const want = "pack model bert: instance of 8 compute slices: legal are [1 2 3 4 7]"
	if err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
