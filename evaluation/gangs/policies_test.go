package gangs

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/evaluation/experiment"
	"github.com/tandem-gpu/tandem/test/must"
)

// timeline writes down where workers are when that changes: "60 a=00 b=1." is 60 s after the start, both workers of a on
// node 0, one of b on node 1 and none for its other.
type timeline struct {
	gangPolicy
	lines []string
	last  string
}

func (w *timeline) round(c *gangCluster) error {
	if err := w.gangPolicy.round(c); err != nil {
		return err
	}
	var b strings.Builder
	for _, j := range c.jobs {
		if j.placed() == 0 {
			continue
		}
		fmt.Fprintf(&b, " %c=", 'a'+rune(j.id))
		for _, n := range j.nodes {
			if n == nowhere {
				b.WriteString(".")
			} else {
				b.WriteString(strconv.Itoa(n))
			}
		}
	}
	if b.String() != w.last {
		w.last = b.String()
		w.lines = append(w.lines, strings.TrimSuffix(fmt.Sprintf("%v%s", c.now, w.last), " "))
	}
	return nil
}

// watch plays jobs "app arrival workers batch" on nodes with so many GPUs under a policy that decides each minute and loads for
// half a minute.
func watch(t testing.TB, p gangPolicy, nodes, gpus int, jobs ...string) []string {
	t.Helper()
	g := &Training{Nodes: nodes, GPUs: gpus, Interval: time.Minute, Restart: 30 * time.Second}
	apps := t4Apps(t)
	var all []gangJob
	for _, text := range jobs {
		var name string
		var j gangJob
		if _, err := fmt.Sscan(text, &name, &j.arrive, &j.workers, &j.batch); err != nil {
			t.Fatal(err)
		}
		j.app = apps[name]
		j.expected = j.app.work(j.batch, j.workers) * j.app.stepTime(j.batch, compactly(j.workers, gpus))
		j.loss = lossOf(j.app, j.batch, j.workers, gpus)
		all = append(all, j)
	}
	w := &timeline{gangPolicy: p}
	must.OK(t, newGangRun(g, w, inArrival(all)).play())
	return w.lines
}

func policyOf(t testing.TB, name string, nodes, gpus int) gangPolicy {
	t.Helper()
	p, err := gangPolicyOf(&Training{Nodes: nodes, GPUs: gpus}, name, 1)
	must.OK(t, err)
	return p
}

// TestGangPolicies: a job of elm holds its GPUs for 90 seconds, one of ash for 930.
func TestGangPolicies(t *testing.T) {
	for _, tc := range []struct {
		name, policy string
		nodes, gpus  int
		jobs, want   []string
	}{
		{
			"pods take what there is, and wait for the rest", stockGangs, 1, 4,
			[]string{"elm 0 3 4", "elm 1 2 4"},
			[]string{"60 a=000 b=0.", "180 b=00", "300"},
		},
		{
			"a part that waited for ten minutes makes room", stockGangs, 1, 4,
			[]string{"ash 0 3 4", "elm 1 2 4", "elm 2 1 4"},
			[]string{"60 a=000 b=0.", "660 a=000 c=0", "780 a=000 b=0.", "1020 b=00", "1140"},
		},
		{
			"a whole job or nothing, others pass", "gang", 1, 4,
			[]string{"elm 0 3 4", "elm 1 2 4", "elm 2 1 4"},
			[]string{"60 a=000 c=0", "180 b=00", "300"},
		},
		{
			"workers on the emptiest nodes", "gang", 2, 3,
			[]string{"elm 0 1 4", "elm 60 4 4"},
			[]string{"60 a=1 b=0011", "180"},
		},
		{
			"who comes later than half a minute after the first waits for it", "dragon", 1, 4,
			[]string{"elm 0 3 4", "elm 1 2 4", "elm 2 1 4"},
			[]string{"60 a=000", "180 b=00 c=0", "300"},
		},
		{
			"in the first half minute others pass", "dragon", 1, 4,
			[]string{"elm 0 3 4", "elm 40 2 4", "elm 41 1 4"},
			[]string{"60 a=000 c=0", "180 b=00", "300"},
		},
		{
			"one node if there is one", "dragon", 2, 4,
			[]string{"elm 0 3 4", "elm 61 4 4", "elm 61 1 4"},
			[]string{"60 a=111", "120 a=111 b=0000 c=1", "180 b=0000 c=1", "240"},
		},
		{
			"else the emptiest node first", "dragon", 3, 3,
			[]string{"elm 0 2 4", "elm 61 4 4"},
			[]string{"60 a=00", "120 a=00 b=1110", "180 b=1110", "240"},
		},
		{
			"the emptiest node first", tiresiasGangs, 3, 4,
			[]string{"elm 0 3 4", "elm 1 5 8", "elm 2 3 4"},
			[]string{"60 a=000 b=11112 c=222", "180"},
		},
		{
			"others pass until the room of the first has changed hands", "tandem-drained", 1, 4,
			[]string{"elm 0 3 4", "elm 1 4 4", "elm 61 1 4", "ash 121 3 4", "elm 181 1 4"},
			[]string{"60 a=000", "120 a=000 c=0", "180 c=0 d=000", "240 d=000", "1140 b=0000", "1260 e=0", "1380"},
		},
		{
			"devices are kept for the first of two", "tandem-drained", 1, 4,
			[]string{"elm 0 3 4", "elm 1 4 4", "elm 61 1 4", "ash 121 3 4", "elm 122 4 4", "elm 181 1 4"},
			[]string{"60 a=000", "120 a=000 c=0", "180 c=0 d=000", "240 d=000", "1140 b=0000", "1260 e=0000", "1380 f=0", "1500"},
		},
		{
			"others pass for ever", "tandem-undrained", 1, 4,
			[]string{"elm 0 3 4", "elm 1 4 4", "elm 61 1 4", "ash 121 3 4", "elm 181 1 4"},
			[]string{"60 a=000", "120 a=000 c=0", "180 c=0 d=000", "240 d=000 e=0", "360 d=000", "1140 b=0000", "1260"},
		},
		{
			"who ends before the devices are free passes", "tandem-deadlines-drained", 1, 4,
			[]string{"elm 0 3 4", "elm 1 4 4", "elm 61 1 4", "ash 121 3 4", "elm 181 1 4"},
			[]string{"60 a=000", "120 a=000 c=0", "180 c=0 d=000", "240 d=000 e=0", "360 d=000", "1140 b=0000", "1260"},
		},
		{
			"others pass: nothing is kept for hours, nor where nobody declares an end", "tandem", 1, 4,
			[]string{"elm 0 3 4", "elm 1 4 4", "elm 61 1 4", "ash 121 3 4", "elm 181 1 4"},
			[]string{"60 a=000", "120 a=000 c=0", "180 c=0 d=000", "240 d=000 e=0", "360 d=000", "1140 b=0000", "1260"},
		},
		{
			"who was there when the first began to wait does not pass it over", "tandem-drained", 1, 4,
			[]string{"ash 0 2 4", "elm 1 4 4", "elm 2 1 4", "elm 61 1 4", "elm 121 1 4", "elm 122 1 4"},
			[]string{"60 a=00 c=0", "120 a=00 c=0 d=0", "180 a=00 d=0 e=0", "240 a=00 e=0 f=0", "300 a=00 f=0", "360 a=00", "1020 b=0000", "1140"},
		},
		{
			"close together", "tandem", 3, 2,
			[]string{"elm 0 1 4", "elm 60 2 4", "elm 60 1 4"},
			[]string{"60 a=0 b=11 c=0", "180"},
		},
		{
			"the least expected GPU time first", "tandem-shortest", 1, 2,
			[]string{"elm 0 2 4", "elm 1 2 32", "elm 2 1 4", "elm 3 1 8"},
			[]string{"60 c=0 d=0", "180 d=0", "240 a=00", "360 b=00", "660"},
		},
		{
			"larger jobs stop for others and go on", "tandem-size", 5, 4,
			[]string{"ash 0 17 64", "elm 61 4 4", "elm 62 1 4"},
			[]string{"60 a=00001111222233334", "120 b=0000 c=1", "240 a=00001111222233334", "1140"},
		},
		{
			"who runs goes on before others of its priority", "tandem-service", 1, 4,
			[]string{"elm 0 3 4", "elm 1 4 4", "ash 2 1 4"},
			[]string{"60 a=000 c=0", "180 c=0", "1020 b=0000", "1140"},
		},
		{
			"the first goes on before others", tiresiasGangs, 1, 4,
			[]string{"elm 0 3 4", "elm 1 4 4", "ash 2 1 4"},
			[]string{"60 a=000 c=0", "180 b=0000", "300 c=0", "1140"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := watch(t, policyOf(t, tc.policy, tc.nodes, tc.gpus), tc.nodes, tc.gpus, tc.jobs...)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.policy, diff)
			}
		})
	}
}

// TestTiresiasOrder: a job falls into the second queue while it runs with 16 GPU-hours, and stays there.
func TestTiresiasOrder(t *testing.T) {
	jobs := make([]*gangJob, 4)
	for i := range jobs {
		jobs[i] = &gangJob{id: i, workers: 1, nodes: []int{0}}
	}
	q := newTiresias()
	for _, tc := range []struct {
		change func()
		there  []int
		want   string
	}{
		{func() {}, []int{0, 1, 2}, "0 1 2"},
		{func() { jobs[0].service = tiresiasQueue - 1 }, []int{0, 1, 2}, "0 1 2"},
		{func() { jobs[0].service = tiresiasQueue }, []int{0, 1, 2}, "1 2 0"},
		{func() { jobs[1].service, jobs[1].nodes[0] = tiresiasQueue+1, nowhere }, []int{0, 1, 2, 3}, "1 2 3 0"},
		{func() { jobs[1].nodes[0] = 0 }, []int{0, 1, 2, 3}, "2 3 0 1"},
		{func() {}, []int{1, 3}, "3 1"},
	} {
		tc.change()
		c := &gangCluster{}
		for _, id := range tc.there {
			c.jobs = append(c.jobs, jobs[id])
		}
		var got []string
		for _, j := range q.order(c) {
			got = append(got, strconv.Itoa(j.id))
		}
		if strings.Join(got, " ") != tc.want {
			t.Errorf("with %v there: %v, want %s", tc.there, got, tc.want)
		}
	}
}

func TestEmptiest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	seen := map[int]int{}
	for range 3000 {
		seen[emptiest([]int{1, 3, 2, 3, 3}, random)]++
	}
	for _, n := range []int{1, 3, 4} {
		if seen[n] < 900 {
			t.Errorf("node %d is chosen %d of 3000 times", n, seen[n])
		}
	}
	if len(seen) != 3 {
		t.Errorf("%v", seen)
	}
}

func TestHoursClass(t *testing.T) {
	for amount, want := range map[float64]int{0: 0, 3.999: 0, 4: 1, 15.999: 1, 16: 2, 1000: 2} {
		if got := hoursClass(amount*3600, 4, 16); got != want {
			t.Errorf("%v GPU-hours are of class %d, want %d", amount, got, want)
		}
	}
	for workers, want := range map[int]int{1: 0, 16: 0, 17: 1, 48: 1} {
		if got := bySize(&gangCluster{perNode: 4, free: make([]int, 16)}, &gangJob{workers: workers}); got != want {
			t.Errorf("%d workers are of class %d, want %d", workers, got, want)
		}
	}
	if half := bySize(&gangCluster{perNode: 4, free: make([]int, 8)}, &gangJob{workers: 9}); half != 1 {
		t.Errorf("9 workers on 32 GPUs are of class %d, want 1", half)
	}
}

func TestParseGangPolicies(t *testing.T) {
	all, err := ParsePolicies(experiment.All)
	if err != nil || !slices.Equal(all, Policies()) || len(all) < 10 {
		t.Errorf("%v, %v", all, err)
	}
	if some, err := ParsePolicies("tandem,dragon"); err != nil || !slices.Equal(some, []string{"tandem", "dragon"}) {
		t.Errorf("%v, %v", some, err)
	}
	for list, want := range map[string]string{"": `unknown policy ""`, "tandem,tetris": `unknown policy "tetris", known are kubernetes`, "gang,gang": "gang appears twice"} {
		if _, err := ParsePolicies(list); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", list, err, want)
		}
	}
}
