package experiment

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/evaluation/measurements"
	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// ratedSlots is the number of slots of a device: the default of the agent.
const ratedSlots vgpu.Slots = 10

// ratedNode is how many devices of one model a node has.
const ratedNode = 4

// MaxRatedJobs bounds Rating.Jobs. Above it a run takes minutes.
const MaxRatedJobs = 10_000

// loadSteps is the number of looks at a run: after each fifth of the jobs.
const loadSteps = 5

// Rating lets jobs that each want a rate come one after the other, and leave never, and compares what ways of choosing
// a GPU spend on them. A job is one of the measured kinds. The wanted rate is the job's rate on a number of slots from
// 1 to all of a device, of one of the models: as if its owner had tried it there.
type Rating struct {
	// Rates are the measured ones; Rating skips jobs with several workers.
	Rates []measurements.Rate
	// Devices by model.
	Devices map[string]int
	// Prices are lists of what a whole device and hour costs by model, in millionths.
	Prices []map[string]int64
	// Jobs that come, at most MaxRatedJobs.
	Jobs int
	// Policies by name, and Seeds: at least one of each.
	Policies []string
	Seeds    []int64
	// Several goroutines call Progress with the number of complete runs; it may be nil.
	Progress func(done, total int)
}

// wanting is one job.
type wanting struct {
	app  string
	rate placement.Rate
	// measured is the number of slots on which its owner reached the rate.
	measured vgpu.Slots
}

// choice is a way of choosing: it returns the request of a job.
type choice struct {
	name    string
	request func(*ratedRun, wanting) (vgpu.Request, bool)
}

// choices by what they know. The first is what the scheduler does.
var choices = []choice{
	{"cheapest-share", cheapestShare},
	{"cheapest-model", cheapestModel},
	{"any-model", anyModel},
	{"same-slots", sameSlots},
	{"measured-slots", measuredSlots},
}

// Run plays every list of prices, policy, choice and seed.
func (r *Rating) Run() (*results.Rates, error) {
	apps, err := r.measured()
	if err != nil {
		return nil, fmt.Errorf("compare rates: %w", err)
	}
	runs := make([]ratedRun, 0, len(r.Prices)*len(r.Policies)*len(choices)*len(r.Seeds))
	for _, prices := range r.Prices {
		table, err := tableOf(apps, prices)
		if err != nil {
			return nil, fmt.Errorf("compare rates: %w", err)
		}
		for _, policy := range r.Policies {
			for c := range choices {
				for _, seed := range r.Seeds {
					runs = append(runs, ratedRun{
						rating: r, apps: apps, prices: prices, policy: policy, choice: &choices[c], seed: seed, table: table,
					})
				}
			}
		}
	}
	if len(runs) == 0 || r.Jobs < 1 || r.Jobs > MaxRatedJobs {
		return nil, fmt.Errorf("compare rates: %d lists of prices, %d policies, %d seeds, %d jobs: want at least one of each, and at most %d jobs",
			len(r.Prices), len(r.Policies), len(r.Seeds), r.Jobs, MaxRatedJobs)
	}
	err = scenario.Each(len(runs), r.Progress, func(i int) error { return runs[i].play() })
	if err != nil {
		return nil, fmt.Errorf("compare rates: %w", err)
	}
	out := &results.Rates{}
	for i := 0; i < len(runs); i += len(r.Seeds) {
		out.Results = append(out.Results, summed(runs[i:i+len(r.Seeds)])...)
	}
	return out, nil
}

// models returns the models of the cluster by name.
func (r *Rating) models() []string { return slices.Sorted(maps.Keys(r.Devices)) }

// measured returns the rates of a whole device by kind of job, of those that were measured on every model of the cluster,
// and then by model.
func (r *Rating) measured() (map[string]map[string]float64, error) {
	apps := map[string]map[string]float64{}
	for _, m := range r.Rates {
		if m.Workers != 1 || m.Together <= 0 || r.Devices[m.Model] == 0 {
			continue
		}
		if apps[m.App] == nil {
			apps[m.App] = map[string]float64{}
		}
		apps[m.App][m.Model] = m.Together
	}
	maps.DeleteFunc(apps, func(_ string, by map[string]float64) bool { return len(by) < len(r.Devices) })
	if len(apps) == 0 {
		return nil, fmt.Errorf("no job was measured on all of %s", strings.Join(r.models(), ", "))
	}
	return apps, nil
}

// tableOf returns the chooser's table: for each kind of job and model the rate of a whole device. A share of it reaches
// its part.
func tableOf(apps map[string]map[string]float64, prices map[string]int64) (*placement.Rates, error) {
	var points []placement.Throughput
	for app, by := range apps {
		for model, rate := range by {
			points = append(points, placement.Throughput{
				Profile: app, Model: model, Share: vgpu.WholeGPU, Rate: millionths(rate),
			})
		}
	}
	return placement.NewRates(points, prices)
}

// millionths returns a rate rounded down.
func millionths(rate float64) placement.Rate { return placement.Rate(math.Floor(rate * 1e6)) }

// draw returns the jobs of a seed.
func (r *Rating) draw(apps map[string]map[string]float64, seed int64) []wanting {
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	names, models := slices.Sorted(maps.Keys(apps)), r.models()
	jobs := make([]wanting, r.Jobs)
	for i := range jobs {
		app, model := names[random.IntN(len(names))], models[random.IntN(len(models))]
		slots := vgpu.Slots(1 + random.IntN(int(ratedSlots)))
		whole := millionths(apps[app][model])
		jobs[i] = wanting{app: app, measured: slots, rate: max(1, whole*placement.Rate(slots)/placement.Rate(ratedSlots))}
	}
	return jobs
}

// cluster returns the nodes, each with devices of one model.
func (r *Rating) cluster() (*vgpu.Cluster, error) {
	var nodes []*vgpu.Node
	for _, model := range r.models() {
		for first := 0; first < r.Devices[model]; first += ratedNode {
			name := fmt.Sprintf("%s-%04d", model, first/ratedNode)
			var devices []vgpu.Device
			for i := range min(ratedNode, r.Devices[model]-first) {
				devices = append(devices, vgpu.Device{
					ID: vgpu.DeviceID(fmt.Sprintf("%s/g%d", name, i)), Index: i, Model: model, Slots: ratedSlots,
					Memory: traces.DeviceMemory(model), Healthy: true,
				})
			}
			n, err := vgpu.NewNode(name, devices)
			if err != nil {
				return nil, err
			}
			nodes = append(nodes, n)
		}
	}
	if len(nodes) == 0 {
		return nil, errors.New("the cluster has no devices")
	}
	return vgpu.NewCluster(nodes...)
}

// usualShares is the mix of the jobs, each with its measured slots.
func usualShares(jobs []wanting) (*fragmentation.Mix, error) {
	kinds := make([]fragmentation.Kind, len(jobs))
	for i := range jobs {
		kinds[i] = fragmentation.Kind{Slots: jobs[i].measured, Weight: 1}
	}
	return fragmentation.NewMix(kinds)
}
