package traces

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// pods draws jobs on paper: "a:460 b:1000x4 c:0" are a share, four GPUs and none.
func pods(t testing.TB, text string) []Job {
	t.Helper()
	var all []Job
	for _, w := range strings.Fields(text) {
		j := Job{Workers: 1}
		name, share, _ := strings.Cut(w, ":")
		j.Name, j.Origin = name, name
		if share != "0" {
			j.Devices = 1
			if n, err := fmt.Sscanf(share, "%dx%d", &j.Compute, &j.Devices); n == 0 {
				t.Fatal(err)
			}
		}
		all = append(all, j)
	}
	return all
}

func namesOf(order []Job) string {
	names := make([]string, 0, len(order))
	for i := range order {
		names = append(names, order[i].Name)
	}
	return strings.Join(names, " ")
}

// TestArrivals pins orders. TestPublishedArrivals compares longer ones with those of the protocol's authors.
func TestArrivals(t *testing.T) {
	const list = "d:1000 b:250 a:460 c:0 e:1000x2 f:500"
	tests := []struct {
		name     string
		capacity int64
		inflate  float64
		seed     int64
		order    string
		rank     []int
	}{
		{"as many as there are", 4000, 0, 42, "b c e f d a", []int{1, 0, 2, 3}},
		// The list asks for 4210 of 10,400.
		{"inflated", 8000, 1.3, 42, "b c e f d a d#2 c#2 c#3 b#2 b#3 f#2 d#3 e#2 c#4 d#4 c#5", []int{1, 2, 3, 0}},
		{"another seed", 8000, 1.3, 43, "a e f b c d c#2 c#3 c#4 f#2 d#2 c#5 f#3 e#2 b#2 b#3 a#2 c#6 b#4 a#3 a#4", []int{0, 1, 3, 2}},
		{"just reached", 4210, 1, 42, "b c e f d a", []int{1, 0, 2, 3}},
		{"the next one would pass", 4211, 1, 42, "b c e f d a", []int{1, 3, 0, 2}},
		{"too many", 4000, 1, 42, "b c e d a", []int{1, 3, 0, 2}},
		{"far too many", 4000, 0.2, 42, "", []int{1, 3, 2, 0}},
		{"no room for any GPU", 4000, 0.0001, 42, "", []int{1, 3, 2, 0}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			jobs := pods(t, list)
			order, rank, err := Arrivals(jobs, 4, tc.capacity, tc.seed, tc.inflate)
			if err != nil {
				t.Fatal(err)
			}
			if got := namesOf(order); got != tc.order || !slices.Equal(rank, tc.rank) {
				t.Errorf("order %q, %#v, want %q, %v", got, rank, tc.order, tc.rank)
			}
			if diff := cmp.Diff(pods(t, list), jobs); diff != "" {
				t.Errorf("the jobs were changed (-want +got):\n%s", diff)
			}
		})
	}
}

// TestArrivalsStop: a job of several GPUs may pass the target, since only one of its GPUs counts before it is appended, and
// all of them after.
func TestArrivalsStop(t *testing.T) {
	order, _, err := Arrivals(pods(t, "a:1000x8"), 1, 9000, 1, 1)
	if err != nil || namesOf(order) != "a a#2" {
		t.Errorf("order %q, error %v, want a twice: 8000 + 1000 do not pass 9000", namesOf(order), err)
	}
	order, _, err = Arrivals(pods(t, "a:1000x8"), 1, 8999, 1, 1)
	if err != nil || namesOf(order) != "a" {
		t.Errorf("order %q, error %v, want a once: 8000 + 1000 pass 8999", namesOf(order), err)
	}
}

// TestArrivalsRank: the ranks come after what the order took from the stream. A list that asks for the target takes nothing;
// one that a single milli-GPU would bring past it takes the pick that ends the filling, also when the target is no whole
// number.
func TestArrivalsRank(t *testing.T) {
	for capacity, picks := range map[int64]int{2: 0, 3: 1} { // the targets are 1 and 1.5
		random := rand.New(rand.NewSource(42))
		random.Int()
		random.Shuffle(1, func(int, int) {})
		for range picks {
			random.Int31() // what Intn takes of the stream
		}
		_, rank, err := Arrivals(pods(t, "a:1"), 20, capacity, 42, 0.5)
		if want := random.Perm(20); err != nil || !slices.Equal(rank, want) {
			t.Errorf("capacity %d: ranks %v, want %v, error %v", capacity, rank, want, err)
		}
	}
}

func TestArrivalsErrors(t *testing.T) {
	some := pods(t, "a:460 b:1000")
	tests := []struct {
		jobs     []Job
		nodes    int
		capacity int64
		inflate  float64
		want     string
	}{
		{nil, 1, 1000, 1, "order arrivals: no jobs"},
		{some, 0, 1000, 1, "order arrivals: 0 nodes, want 1 to 1048576"},
		{some, 1 << 21, 1000, 1, "order arrivals: 2097152 nodes, want 1 to 1048576"},
		{some, 1, 0, 1, "order arrivals: a capacity of 0 milli-GPU, want 1 to 1000000000000"},
		{some, 1, 1000, -1, "order arrivals: inflate -1, want 0 to 10"},
		{some, 1, 1000, 10.5, "order arrivals: inflate 10.5, want 0 to 10"},
		{some, 1, 1000, math.NaN(), "order arrivals: inflate NaN, want 0 to 10"},
		{some, 1, 1000, math.Inf(1), "order arrivals: inflate +Inf, want 0 to 10"},
		{pods(t, "a:460 b:0 a:0"), 1, 1000, 1, "order arrivals: job a appears twice"},
		{pods(t, "a:0 b:0"), 1, 1000, 1, "order arrivals: no job asks for GPUs: repeating them cannot inflate the load"},
		{pods(t, "a:460 a#2:0"), 1, 100_000, 1, "order arrivals: name repeat 2 of job a: there is a job a#2"},
		{pods(t, "a:1"), 1, 2_000_000, 1, "order arrivals: more than 262144 arrivals are needed to ask for 2000000 milli-GPU"},
		{[]Job{{Name: "a"}}, 1, 1000, 1, "order arrivals: job a: 0 workers, want 1 to 10000"},
	}
	for _, tc := range tests {
		if _, _, err := Arrivals(tc.jobs, tc.nodes, tc.capacity, 42, tc.inflate); err == nil || err.Error() != tc.want {
			t.Errorf("error %v, want %s", err, tc.want)
		}
	}
}

// TestPropertyArrivals holds Arrivals to the laws of its protocol, whatever the order of its input.
func TestPropertyArrivals(t *testing.T) {
	shares := rapid.SampledFrom([]string{"0", "90", "460", "1000", "1000x2", "1000x8"})
	rapid.Check(t, func(rt *rapid.T) {
		var text []string
		for i, share := range rapid.SliceOfN(shares, 1, 20).Draw(rt, "shares") {
			text = append(text, fmt.Sprintf("p%d:%s", i, share))
		}
		jobs := pods(t, strings.Join(text, " "))
		capacity := rapid.Int64Range(1, 20_000).Draw(rt, "capacity")
		inflate := rapid.SampledFrom([]float64{0, 0.5, 1, 1.3}).Draw(rt, "inflate")
		seed, nodes := rapid.Int64().Draw(rt, "seed"), rapid.IntRange(1, 20).Draw(rt, "nodes")
		order, rank, err := Arrivals(jobs, nodes, capacity, seed, inflate)
		if err != nil {
			if sum(jobs) > 0 {
				rt.Fatal(err)
			}
			return
		}
		laws(rt, jobs, order, inflate*float64(capacity))
		if want := rand.New(rand.NewSource(0)).Perm(nodes); len(rank) != nodes || !cmp.Equal(sorted(rank), sorted(want)) {
			rt.Fatalf("ranks %v are no permutation of %d", rank, nodes)
		}
		slices.Reverse(jobs)
		again, rankAgain, err := Arrivals(jobs, nodes, capacity, seed, inflate)
		if err != nil || !cmp.Equal(order, again) || !cmp.Equal(rank, rankAgain) {
			rt.Fatal("the order of the list changes the arrivals")
		}
	})
}

// laws: repeats have names of their own and are else as the original; all jobs come first, unless they ask for more than the
// target; the order asks for about the target, by the protocol's rule of when to stop.
func laws(t *rapid.T, jobs, order []Job, target float64) {
	byName, names := map[string]Job{}, map[string]bool{}
	for _, j := range jobs {
		byName[j.Name] = j
	}
	for _, j := range order {
		if names[j.Name] {
			t.Fatalf("job %s appears twice", j.Name)
		}
		names[j.Name] = true
		j.Name = j.Origin
		if !cmp.Equal(j, byName[j.Origin]) {
			t.Fatalf("arrival %+v is none of the jobs", j)
		}
	}
	most := vgpu.MilliGPU(0)
	for i := range jobs {
		most = max(most, jobs[i].Total())
	}
	switch all, got := sum(jobs), sum(order); {
	case target == 0:
		if len(order) != len(jobs) {
			t.Fatalf("%d arrivals of %d jobs without inflation", len(order), len(jobs))
		}
	case float64(all) > target:
		if float64(got) > target || float64(got+most) <= target || len(order) >= len(jobs) {
			t.Fatalf("they ask for %d of %v, the largest for %d", got, target, most)
		}
	default:
		last := order[len(order)-1]
		if float64(got+vgpu.WholeGPU) <= target {
			t.Fatalf("they ask for %d of %v", got, target)
		}
		if len(order) > len(jobs) && float64(got-last.Total()+last.Compute) > target {
			t.Fatalf("they ask for %d of %v, the last one for %d", got, target, last.Total())
		}
		for _, j := range order[:len(jobs)] {
			if j.Name != j.Origin {
				t.Fatalf("repeat %s comes before all jobs came once", j.Name)
			}
		}
	}
}

func sum(jobs []Job) (total vgpu.MilliGPU) {
	for i := range jobs {
		total += jobs[i].Total()
	}
	return total
}

func sorted(list []int) []int { return slices.Sorted(slices.Values(list)) }
