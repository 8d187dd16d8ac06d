package gangs

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"
)

// elasticBeat is so long that gangs rarely change their sizes more often within an hour than they may.
const elasticBeat = 30 * time.Minute

// composeElastic returns a random workload in which the first gang is elastic, and one in four later arrivals. These gangs never end, so that they
// get what others leave, and lose what others need. All pods have whole GPUs: the scheduler takes the profiles of the gangs, by which they resize at
// once, for known workloads, which prefer idle GPUs to shared ones.
func composeElastic(seed uint64) *chapters {
	random := rand.New(rand.NewPCG(seed, 2))
	one := func(words ...string) string { return words[random.IntN(len(words))] }
	c := &chapters{seed: seed, beat: elasticBeat, elastic: true}
	for i := range 1 + random.IntN(3) {
		c.nodes = append(c.nodes, step{verb: "node", name: fmt.Sprintf("n%d", i+1), options: map[string]string{
			"gpus": one("2", "4", "4", "8"), "rack": one("r1", "r2"), "island": "0", "cpus": "64",
		}})
	}
	for i := range 5 + random.IntN(5) {
		s := step{verb: "pod", name: fmt.Sprintf("t%02d", i), options: map[string]string{"slots": one("10", "10", "20"), "runs": one("1115s", "3335s", "9935s")}}
		if random.IntN(2) == 0 {
			s.verb, s.options["source"] = "gang", "label"
			s.options["members"], s.options["slots"] = fmt.Sprint(2+random.IntN(3)), "10"
		}
		if i == 0 || random.IntN(4) == 0 {
			least := 1 + random.IntN(2)
			most := least + 1 + random.IntN(5)
			s.verb, s.name = "gang", fmt.Sprintf("e%02d", i)
			s.options = map[string]string{
				"source": "label", "slots": "10", "members": fmt.Sprint(most), "min": fmt.Sprint(least), "elastic": fmt.Sprintf("%d-%d", least, most), "agile": "1",
			}
		}
		c.teams = append(c.teams, s)
	}
	return c
}

// sizes says how many members of each elastic gang have a place.
func (p picture) sizes() string {
	count := map[string]int{}
	for name := range p.places {
		if gang, _, member := strings.Cut(name, "-"); member && strings.HasPrefix(gang, "e") {
			count[gang]++
		}
	}
	var words []string
	for _, gang := range slices.Sorted(maps.Keys(count)) {
		words = append(words, fmt.Sprintf("%s:%d", gang, count[gang]))
	}
	return strings.Join(words, " ")
}

// TestSimulatorResizesAlike plays random workloads of elastic gangs, other gangs and pods through the controller with the scheduler, and through the simulator. At the end of
// each beat the elastic gangs have the same sizes.
func TestSimulatorResizesAlike(t *testing.T) {
	t.Parallel()
	var all struct{ workloads, beats, unlike, resizes int }
	for i := range (workloadCount() + 2) / 3 { // a workload takes three times as long as without the controller
		c := composeElastic(*seed + uint64(i))
		want, _ := c.simulated(t)
		got, log := c.scheduled(t)
		all.workloads++
		for k := range want {
			all.beats++
			if k > 0 && want[k].sizes() != want[k-1].sizes() {
				all.resizes++
			}
			if want[k].sizes() == got[k].sizes() {
				continue
			}
			all.unlike++
			t.Logf("workload of seed %d, beat %d at %v:\nsimulator: %s; %v\nscheduler: %s; %v\n%s%s", c.seed, k, time.Duration(k)*c.beat, want[k].sizes(), want[k], got[k].sizes(), got[k],
				c, strings.Join(log, "\n"))
			break
		}
	}
	t.Logf("%+v", all)
	if all.unlike > all.workloads/mostUnlike || all.resizes == 0 {
		t.Errorf("%d of %d workloads come out otherwise in the simulator than by the controller, %d changes of sizes", all.unlike, all.workloads, all.resizes)
	}
}
