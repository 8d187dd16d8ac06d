package scenario

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Scenario is what a file says, checked.
type Scenario struct {
	Name        string
	Description string
	// Nodes of the cluster, empty.
	Nodes []*vgpu.Node
	// Policies and Seeds to play the workload with, each policy with each seed.
	Policies []string
	Seeds    []int64
	Queue    sim.Queue
	// Labels of the nodes, by the name of the node, then by key.
	Labels map[string]map[string]string
	Gangs  sim.GangConfig
	// Preemption is the configuration of evictions for pods and gangs without room.
	Preemption sim.PreemptionConfig
	// Elastic is the configuration of the sizes of elastic gangs.
	Elastic sim.ElasticConfig
	// Assertions are the expectations.
	Assertions []Assertion

	sources []source
	fleets  []*fleet
	ordered []orderedPart
	typical typical
	// slots of each GPU where the scenario tells of work, else 0. until is up to when it does, 0 for the end of the run.
	slots vgpu.Slots
	until time.Duration
}

// Read reads the scenario at a path. The error is an *Error, or one about opening the file.
func Read(path string) (*Scenario, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read scenario: %w", err)
	}
	return Parse(path, data)
}

// Parse reads a scenario. The file is its name in errors, and paths of traces count from its folder.
func Parse(file string, data []byte) (*Scenario, error) {
	f, err := decode(file, data)
	if err != nil {
		return nil, err
	}
	r := &reader{file: file, nodeLabels: map[string]map[string]string{}}
	s := &Scenario{Name: r.name("name", f.Name, map[scalar]string{}), Description: string(f.Description)}
	s.Policies = r.policies(f.Policies)
	s.Queue = r.queue(f.Queue)
	s.Seeds = r.seeds(f.Seeds)
	s.Preemption = r.preemption(f.Preemption, s.Queue)
	s.Elastic = r.elastic(f.Elastic)
	if s.Nodes = r.cluster(&f.Cluster); r.err == nil {
		s.Labels = r.nodeLabels
		var usual []string
		s.Gangs, usual = r.gangs(f.Gangs, r.known(s.Nodes))
		s.sources, s.fleets, s.ordered = r.workload(&f.Workload, s.Nodes, usual, s.Policies)
		s.until = r.day(f.Day)
		if len(f.Workload.Fleets)+len(f.Workload.Notebooks) > 0 || contains(s.Policies, native) {
			s.slots = r.oneSize("cluster", s.Nodes)
		} else if f.Day != "" {
			r.wrong("day", quote(f.Day), "fleets, notebooks or the policy native beside it")
		}
		s.typical = r.typical(f.Typical, modelsOf(s.Nodes))
		s.Assertions = r.assertions(f.Assertions, s.Policies, levelsOf(s.Labels), elasticNames(s.sources, s.fleets))
	}
	if r.err != nil {
		return nil, r.err
	}
	return s, nil
}

// Only returns the scenario with one policy and one seed alone, "" for all, and with the assertions that are about them. The error says what
// the scenario has.
func (s *Scenario) Only(policy, seed string) (*Scenario, error) {
	only := *s
	only.Policies = slices.DeleteFunc(slices.Clone(s.Policies), func(p string) bool { return policy != "" && p != policy })
	only.Seeds = slices.DeleteFunc(slices.Clone(s.Seeds), func(n int64) bool { return seed != "" && strconv.FormatInt(n, 10) != seed })
	if len(only.Policies) == 0 || len(only.Seeds) == 0 {
		known := make([]string, 0, len(s.Policies)*len(s.Seeds))
		for _, p := range s.Policies {
			for _, n := range s.Seeds {
				known = append(known, fmt.Sprintf("%s with seed %d", p, n))
			}
		}
		return nil, fmt.Errorf("flags --policy %q and --seed %q: the scenario has %s", policy, seed, strings.Join(known, ", "))
	}
	only.Assertions = slices.DeleteFunc(slices.Clone(s.Assertions), func(a Assertion) bool { return a.Policy != "" && policy != "" && a.Policy != policy })
	return &only, nil
}

// Jobs returns the workload of a seed: listed jobs, then those of the generators, then notebooks, then those of the trace. Replicas of
// fleets are not among them, since their number depends on the policy.
func (s *Scenario) Jobs(seed int64) ([]sim.Job, error) {
	return s.draw(seed, func(source, []sim.Job) {})
}

// draw returns the workload of a seed, and shows the jobs of each source.
func (s *Scenario) draw(seed int64, see func(source, []sim.Job)) ([]sim.Job, error) {
	var all []sim.Job
	for _, source := range s.sources {
		jobs, err := source.jobs(seed)
		if err != nil {
			return nil, err
		}
		see(source, jobs)
		all = append(all, jobs...)
	}
	return all, nil
}

func (r *reader) policies(list []scalar) []string {
	if len(list) == 0 {
		r.wrong("policies", "none", "a list of "+strings.Join(knownPolicies(), ", "))
	}
	all := make([]string, 0, len(list))
	for i, s := range list {
		if !contains(knownPolicies(), string(s)) {
			r.wrong(at("policies", i), quote(s), "one of "+strings.Join(knownPolicies(), ", "))
		}
		if contains(all, string(s)) {
			r.wrong(at("policies", i), quote(s), "each policy once")
		}
		all = append(all, string(s))
	}
	return all
}

// queue reads the order of the queue. If nothing stands there, others overtake a job that does not fit, as with Tandem's scheduler.
func (r *reader) queue(s scalar) sim.Queue {
	if s == "" {
		return sim.Skip
	}
	q, err := sim.QueueByName(string(s))
	if err != nil {
		r.wrong("queue", quote(s), "one of "+strings.Join(sim.Queues(), ", "))
	}
	return q
}

// seeds reads "42-51" or a list; 1 where nothing stands.
func (r *reader) seeds(s scalar) []int64 {
	text := string(s)
	if text == "" {
		return []int64{1}
	}
	if strings.HasPrefix(text, "[") {
		text = strings.NewReplacer("[", "", "]", "", `"`, "").Replace(text)
	}
	seeds, err := ParseSeeds(text)
	if err != nil {
		r.wrong("seeds", quote(scalar(strings.ReplaceAll(string(s), `"`, ""))), `whole numbers from 0, each once, as "42-51" or [1, 2, 3]; at most `+fmt.Sprint(maxSeeds))
	}
	return seeds
}

// typical says which requests are usual: a mix in the scenario, that of the workload, or a learned one.
type typical struct {
	mix      *fragmentation.Mix
	workload bool
}

func (r *reader) typical(f *typicalFile, models []string) typical {
	if f == nil || f.From == "learned" && len(f.Requests) == 0 {
		return typical{}
	}
	if f.From == "workload" && len(f.Requests) == 0 {
		return typical{workload: true}
	}
	if f.From != "" || len(f.Requests) == 0 {
		r.wrong("typical", fmt.Sprintf("from: %s and %d requests", quote(f.From), len(f.Requests)),
			"from: learned, from: workload, or a list of requests")
		return typical{}
	}
	kinds := make([]fragmentation.Kind, 0, len(f.Requests))
	for i := range f.Requests {
		path, k := at("typical.requests", i), &f.Requests[i]
		kinds = append(kinds, fragmentation.Kind{
			Weight: r.wholeOr(1, path+".weight", k.Weight, 1, maxWeight), MilliCPU: r.cpu(path+".cpu", k.CPU), Memory: r.memory(path+".memory", k.Memory),
			Slots:        vgpu.Slots(r.wholeOr(0, path+".slots", k.Slots, 0, maxDevices*maxSlots)),
			DeviceMemory: r.memory(path+".gpu_memory", k.GPUMemory),
			Models:       joined(r.models(path+".models", k.Models, models)),
		})
	}
	mix, err := fragmentation.NewMix(kinds)
	if err != nil {
		r.wrong("typical.requests", err.Error(), "requests that can be")
	}
	return typical{mix: mix}
}

func joined(models []string) string {
	return strings.Join(slices.Sorted(slices.Values(models)), "|")
}

// of returns the mix for the jobs of a seed, nil for a learned one.
func (t typical) of(jobs []sim.Job) (*fragmentation.Mix, error) {
	if !t.workload {
		return t.mix, nil
	}
	kinds := make([]fragmentation.Kind, 0, len(jobs))
	for i := range jobs {
		kinds = append(kinds, fragmentation.KindOf(&jobs[i].Request))
	}
	return fragmentation.NewMix(kinds)
}
