package fragmentation_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	day = 24 * 3600
	// noon is the middle of a day of the clock, the half-life of these tests, in seconds.
	noon = 20000*day + day/2
	// one is what a pod of now weighs.
	one = 1 << 20
)

func daily() *fragmentation.Learner { return fragmentation.NewLearner(day) }

func slots(k int) fragmentation.Kind { return fragmentation.Kind{Slots: vgpu.Slots(k)} }

func weighing(k fragmentation.Kind, weight int64) fragmentation.Kind {
	k.Weight = weight
	return k
}

// The pods without vGPUs are one kind, however many there are: at most as heavy as the others.
func TestLearnerMix(t *testing.T) {
	tests := []struct {
		name string
		pods map[fragmentation.Kind]int
		want []fragmentation.Kind
	}{
		{"nothing came yet", nil, nil},
		{"pods with vGPUs count each for itself",
			map[fragmentation.Kind]int{slots(1): 90, slots(2): 6, slots(3): 4},
			[]fragmentation.Kind{weighing(slots(1), 90*one), weighing(slots(2), 6*one), weighing(slots(3), 4*one)}},
		{"pods without vGPUs are one kind",
			map[fragmentation.Kind]int{slots(1): 10, {}: 5},
			[]fragmentation.Kind{weighing(slots(1), 10*one), weighing(slots(0), 5*one)}},
		{"they do not outweigh the others",
			map[fragmentation.Kind]int{slots(1): 6, slots(10): 4, {}: 1000},
			[]fragmentation.Kind{weighing(slots(0), 10*one), weighing(slots(1), 6*one), weighing(slots(10), 4*one)}},
		{"they are one kind whatever CPU they want",
			map[fragmentation.Kind]int{slots(1): 10, {MilliCPU: 1000}: 2, {MilliCPU: 2000}: 3},
			[]fragmentation.Kind{weighing(slots(1), 10*one), weighing(slots(0), 5*one)}},
		{"they alone keep room for nothing", map[fragmentation.Kind]int{{}: 1000}, nil},
		{"a pod that no mix may have does not count",
			map[fragmentation.Kind]int{slots(1): 2, {MilliCPU: 1 << 50, Slots: 1}: 5}, []fragmentation.Kind{weighing(slots(1), 2*one)}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			a := daily()
			for k, count := range test.pods {
				for range count {
					a.Observe("team", k, noon)
				}
			}
			if diff := gocmp.Diff(test.want, a.Usual(noon).Kinds(), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("mix (-want +got):\n%s", diff)
			}
		})
	}
}

// The same pods give the same mix in any order: as they come one by one, as the informer replays them after a restart,
// newest or oldest first.
func TestLearnerDoesNotDependOnTheOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	type arrival struct {
		kind    fragmentation.Kind
		created int64
	}
	all := make([]arrival, 2000)
	for i := range all {
		k := fragmentation.Kind{MilliCPU: random.Int64N(8) * 1000, Slots: vgpu.Slots(random.Int64N(11))}
		all[i] = arrival{k, noon - random.Int64N(20*day)}
	}
	mix := func() []fragmentation.Kind {
		a := daily()
		for _, x := range all {
			a.Observe("team", x.kind, x.created)
		}
		return a.Usual(noon).Kinds()
	}
	slices.SortFunc(all, func(x, y arrival) int { return cmp.Compare(x.created, y.created) })
	want := mix()
	if len(want) < 50 {
		t.Fatalf("the mix has %d kinds", len(want))
	}
	slices.Reverse(all)
	if diff := gocmp.Diff(want, mix()); diff != "" {
		t.Errorf("newest first (-want +got):\n%s", diff)
	}
	for range 10 {
		random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		if diff := gocmp.Diff(want, mix()); diff != "" {
			t.Fatalf("shuffled (-want +got):\n%s", diff)
		}
	}
}

// A new mix costs a scoring of all nodes: it comes when an eighth is new, or a minute after the last.
func TestLearnerRenewsItsMixNowAndThen(t *testing.T) {
	now := int64(noon)
	a := daily()
	seen := a.Usual(now)
	renewed := func() bool {
		before := seen
		seen = a.Usual(now)
		return seen != before
	}
	a.Observe("team", slots(1), noon)
	if !renewed() || len(seen.Kinds()) != 1 {
		t.Fatalf("after the first pod the mix is %v", seen.Kinds())
	}
	for range 79 {
		a.Observe("team", slots(2), noon)
	}
	if !renewed() { // 80 pods
		t.Error("79 pods after one are not material")
	}
	for range 9 {
		a.Observe("team", slots(3), noon)
	}
	if renewed() {
		t.Error("9 of 80 pods are material")
	}
	a.Observe("team", slots(3), noon)
	if !renewed() { // 90 pods
		t.Error("10 of 80 pods are not material")
	}
	now += fragmentation.Pause
	if renewed() {
		t.Error("a minute without a pod is a change")
	}
	a.Observe("team", slots(4), now)
	if !renewed() { // 91 pods
		t.Error("a pod does not count after a minute")
	}
	a.RenewEvery(3600)
	now += 3599
	a.Observe("team", slots(5), now)
	if renewed() {
		t.Error("a pod counts before the longer pause is over")
	}
	now++
	if !renewed() { // 92 pods
		t.Error("a pod does not count after the longer pause")
	}
}
