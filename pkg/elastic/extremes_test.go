package elastic

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// A decision compares at most maxLooked sizes of a job, all of them legal: always the least and the largest, the present one and its neighbours, and the
// largest for which there is room; of others one at least in each fifth part of growth.
func TestPropertyLooked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		least := rapid.IntRange(1, 1000).Draw(t, "least")
		most := rapid.IntRange(least, 10_000).Draw(t, "most")
		sizes, err := Steps(least, most, rapid.IntRange(1, 50).Draw(t, "step"))
		if err != nil {
			t.Fatal(err)
		}
		present, at := 0, rapid.IntRange(-1, len(sizes)-1).Draw(t, "at")
		if at >= 0 {
			present = sizes[at]
		}
		room := rapid.IntRange(0, 12_000).Draw(t, "room")
		got := looked(sizes, present, room)
		if len(sizes) <= maxLooked && !slices.Equal(got, sizes) || len(got) > maxLooked || !ascends(got) {
			t.Fatalf("%d of %d sizes: %v", len(got), len(sizes), got)
		}
		has := func(n int) bool { return slices.Contains(got, n) }
		if !has(sizes[0]) || !has(sizes[len(sizes)-1]) || at >= 0 && (!has(present) || !has(sizes[max(0, at-1)]) || !has(sizes[min(at+1, len(sizes)-1)])) {
			t.Fatalf("%v lack the ends, %d or its neighbours", got, present)
		}
		fits := slices.DeleteFunc(slices.Clone(sizes), func(n int) bool { return n > room })
		for i, n := range fits {
			if !slices.Contains(sizes, n) {
				t.Fatalf("%d is not legal", n)
			}
			next, _ := slices.BinarySearch(got, n)
			if i == len(fits)-1 && got[next] != n || float64(got[next]) > 1.2*float64(n) && got[next] != sizes[min(i+1, len(sizes)-1)] {
				t.Fatalf("%v: after %d comes %d, with room for %d", got, n, got[next], room)
			}
		}
	})
}

// The searches of a call share a number of steps, and are greedy where they need more.
func TestKnapsackTakesBoundedSteps(t *testing.T) {
	lists := make([][]option, 100)
	for j := range lists {
		for n := range 64 {
			lists[j] = append(lists[j], option{n + 1, vgpu.MilliGPU(n+1) * vgpu.WholeGPU, float64(n * (200 - n))})
		}
	}
	steps := maxSteps
	for range 20 {
		before := steps
		chosen := bestOptions(lists, 1500*vgpu.WholeGPU, &steps)
		if takes, _ := sum(lists, chosen); takes > 1500*vgpu.WholeGPU {
			t.Fatalf("the options take %d", takes)
		}
		if steps < before/2 {
			t.Fatalf("a search took %d steps of %d", before-steps, before)
		}
	}
	if steps == maxSteps {
		t.Error("no search was exact")
	}
}

// Loans for many times become a few. Together they are as much, and none of them lasts longer than it may.
func TestPropertyFewLoans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loans := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) loan {
			return loan{vgpu.MilliGPU(rapid.IntRange(1, 9).Draw(t, "amount")), float64(rapid.IntRange(1, 99).Draw(t, "lasts"))}
		}), 0, 40).Draw(t, "loans")
		lastsFor := func(loans []loan, seconds float64) (sum vgpu.MilliGPU) {
			for _, l := range loans {
				if l.lasts >= seconds {
					sum += l.amount
				}
			}
			return sum
		}
		few := fewLoans(slices.Clone(loans))
		if len(few) > maxLoans || lastsFor(few, 0) != lastsFor(loans, 0) {
			t.Fatalf("%v became %v", loans, few)
		}
		for _, l := range few {
			if lastsFor(few, l.lasts) > lastsFor(loans, l.lasts) {
				t.Fatalf("%v became %v, which last longer", loans, few)
			}
		}
	})
}

// BenchmarkExtremes is one decision with what a tenant may ask for without any GPU of its own: gangs that wait, with the most legal sizes, and with
// topology keys of their own.
func BenchmarkExtremes(b *testing.B) {
	for _, tc := range []struct {
		name        string
		nodes, jobs int
		sizes       string
		keys        int
	}{
		{"elastic-workers/100-gangs/1-8/1000-GPUs", 125, 100, "1-8", 0},
		{"elastic-workers/100-gangs/1-256/1000-GPUs", 125, 100, "1-256", 0},
		{"elastic-workers/100-gangs/1-10000-in-steps/1000-GPUs", 125, 100, "1-10000/40", 0},
		{"elastic-workers/1500-gangs/1-256/1000-GPUs", 125, 1500, "1-256", 0},
		{"elastic-workers/1500-gangs/1-8/64-GPUs", 8, 1500, "1-8", 0},
		{"preferred-topology/1500-gangs/8-keys/64-GPUs", 8, 1500, "1-8", 8},
	} {
		b.Run(tc.name, func(b *testing.B) {
			c := &gang.Cluster{}
			for i := range tc.nodes {
				c.Nodes = append(c.Nodes, testkit.Node(b, fmt.Sprintf("n%04d", i), testkit.A100, 8))
			}
			sizes, legal := ParseSizes(tc.sizes, 10_000)
			if !legal {
				b.Fatal(tc.sizes)
			}
			var jobs []Job
			for i := range tc.jobs {
				j := Job{Name: fmt.Sprintf("team/job-%04d", i), Arrived: int64(i), Sizes: sizes, Cost: 30, Curve: Curve{Growth: .6 + float64(i%40)/100}}
				j.Worker.Request = *testkit.Request("team/worker", 10)
				for k := range tc.keys {
					j.Wishes.Preferred = append(j.Wishes.Preferred, fmt.Sprintf("team.example/key-%d-%d", i, k))
				}
				jobs = append(jobs, j)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Workers(c, jobs, nil, 10_000, Config{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
