package sim_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/sim"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// TestScripts tells the stories of testdata/scripts:
//
//	cluster                      the input draws it; "room n1 8 32Gi" gives a host CPU cores and memory, else it has plenty;
//	                             "label n1 rack=r1" labels a node
//	jobs                         the input lists them: "a 5 at=1m for=10m cpu=4 memory=8Gi models=A100,T4"; slots of one
//	                             container after the name, none for a pod without GPUs; "ends" for one that declares its
//	                             end; "priority=5"; "saves=30m" for checkpoints; "budget=b" of which one pod may be missing; "gang=g"
//	                             for a member of a gang, of which the first may say min=2 required=rack preferred=rack,nvlink, or
//	                             elastic=1,2,4 rates=1:1,2:1.9 resize=40s: numbers of members, the speeds of some, the cost of a change
//	run queue=fifo policy=spread mix=(3,3,20) drain=1m timeout=1h    plays the jobs; the mix is slots of usual requests;
//	                             gangs have room kept after the time of drain, or with bounded=1m where ends are known and soon,
//	                             as long as timeout; preempt=tandem grace=30s
//	                             has others evicted, and tells of each preemption; every=10s notice=5s admit=2m moves=4 are those of
//	                             elastic gangs, whose sizes it tells
//	map at=5m                    the picture of a moment, as JSON
//	waiting at=5m                who waits and why, and for whom room is kept, of that picture
//	at percent=80                what is allocated and lost when so much has arrived
//	series                       time, waiting pods and lost compute of the last samples
//	stats from=0s to=1h
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := &story{t: t}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			commands := map[string]func(*datadriven.TestData) (string, error){
				"cluster": s.cluster, "jobs": s.list, "run": s.run, "map": s.drawMap, "waiting": s.waiting, "at": s.at, "series": s.series, "stats": s.stats,
			}
			run := commands[d.Cmd]
			if run == nil {
				d.Fatalf(t, "unknown command %q", d.Cmd)
			}
			out, err := run(d)
			if err != nil {
				return fmt.Sprintf("%serror: %v\n", out, err)
			}
			return out
		})
	})
}

// story is the state of a script.
type story struct {
	t       *testing.T
	setup   sim.Setup
	gangs   map[string]*sim.Gang
	budgets map[string]*sim.Budget
	history *sim.History
}

func (s *story) cluster(d *datadriven.TestData) (string, error) {
	rooms, labels := map[string]vgpu.Room{}, map[string]map[string]string{}
	var drawing []string
	for _, line := range strings.Split(d.Input, "\n") {
		if words := strings.Fields(line); len(words) == 4 && words[0] == "room" {
			memory, err := testkit.ParseBytes(words[3])
			if err != nil {
				return "", err
			}
			rooms[words[1]] = vgpu.Room{MilliCPU: int64(whole(s.t, words[2])) * 1000, Memory: memory}
			continue
		}
		if words := strings.Fields(line); len(words) == 3 && words[0] == "label" {
			key, value, _ := strings.Cut(words[2], "=")
			if labels[words[1]] == nil {
				labels[words[1]] = map[string]string{}
			}
			labels[words[1]][key] = value
			continue
		}
		drawing = append(drawing, line)
	}
	c, err := testkit.Parse(strings.Join(drawing, "\n"))
	if err != nil {
		return "", err
	}
	s.setup.Nodes, s.setup.Labels = nil, labels
	for _, n := range c.Nodes() {
		n = n.Clone()
		n.SetRoom(plenty)
		if room, given := rooms[n.Name()]; given {
			n.SetRoom(room)
		}
		s.setup.Nodes = append(s.setup.Nodes, n)
	}
	return testkit.Draw(c), nil
}

// plenty of CPU and memory.
var plenty = vgpu.Room{MilliCPU: 1 << 40, Memory: 1 << 50}

func (s *story) list(d *datadriven.TestData) (string, error) {
	s.setup.Jobs, s.gangs, s.budgets = nil, map[string]*sim.Gang{}, map[string]*sim.Budget{}
	for _, line := range strings.Split(strings.TrimSpace(d.Input), "\n") {
		words := strings.Fields(line)
		job := sim.Job{Request: vgpu.Request{UID: vgpu.UID(words[0]), Pod: words[0]}}
		for _, w := range words[1:] {
			if err := s.word(&job, w); err != nil {
				return "", fmt.Errorf("%s: %w", line, err)
			}
		}
		s.setup.Jobs = append(s.setup.Jobs, job)
	}
	return fmt.Sprintf("%d jobs\n", len(s.setup.Jobs)), nil
}

func (s *story) word(job *sim.Job, w string) (err error) {
	key, value, given := strings.Cut(w, "=")
	switch {
	case w == "ends":
		job.DeclaresEnd = true
	case key == "gang":
		if s.gangs[value] == nil {
			s.gangs[value] = &sim.Gang{Name: value}
		}
		job.Gang = s.gangs[value]
	case key == "priority":
		job.Request.Priority = int32(whole(s.t, value))
	case key == "saves":
		job.Checkpoint, err = time.ParseDuration(value)
	case key == "budget":
		if s.budgets[value] == nil {
			s.budgets[value] = &sim.Budget{Name: value, MaxUnavailable: 1}
		}
		job.Budget = s.budgets[value]
	case key == "min":
		job.Gang.MinCount = whole(s.t, value)
	case key == "required":
		job.Gang.Wishes.Required = strings.Split(value, ",")
	case key == "preferred":
		job.Gang.Wishes.Preferred = strings.Split(value, ",")
	case key == "elastic" || key == "rates" || key == "resize":
		err = s.elastic(job.Gang, key, value)
	case !given:
		job.Request.Containers = append(job.Request.Containers, vgpu.ContainerRequest{
			Name: fmt.Sprintf("c%d", len(job.Request.Containers)), Slots: vgpu.Slots(whole(s.t, w)),
		})
	case key == "at":
		job.Arrive, err = time.ParseDuration(value)
	case key == "for":
		job.Duration, err = time.ParseDuration(value)
	case key == "cpu":
		job.Request.Host.MilliCPU = int64(whole(s.t, value)) * 1000
	case key == "memory":
		job.Request.Host.Memory, err = testkit.ParseBytes(value)
	case key == "models":
		for _, m := range strings.Split(value, ",") {
			job.Request.Variants = append(job.Request.Variants, vgpu.Variant{Model: m})
		}
	default:
		err = fmt.Errorf("unknown word %q", w)
	}
	return err
}

func whole(t *testing.T, w string) int {
	t.Helper()
	n := 0
	if _, err := fmt.Sscanf(w, "%d", &n); err != nil {
		t.Fatalf("%q is no number", w)
	}
	return n
}

func (s *story) run(d *datadriven.TestData) (string, error) {
	queue, policy := "drop", "packed"
	s.setup.Gangs, s.setup.Preemption, s.setup.Elastic = sim.GangConfig{}, sim.PreemptionConfig{}, sim.ElasticConfig{}
	var mix []string
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "queue":
			queue = a.Vals[0]
		case "policy":
			policy = a.Vals[0]
		case "mix":
			mix = a.Vals
		case "drain":
			after, err := time.ParseDuration(a.Vals[0])
			if err != nil {
				return "", err
			}
			s.setup.Gangs.Drains, s.setup.Gangs.DrainAfter = gang.AllDrains, after
		case "bounded":
			after, err := time.ParseDuration(a.Vals[0])
			if err != nil {
				return "", err
			}
			s.setup.Gangs.Drains, s.setup.Gangs.DrainAfter = gang.BoundedDrains, after
		case "timeout":
			timeout, err := time.ParseDuration(a.Vals[0])
			if err != nil {
				return "", err
			}
			s.setup.Gangs.DrainTimeout = timeout
		case "preempt":
			policy, err := sim.PreemptionByName(a.Vals[0])
			if err != nil {
				return "", err
			}
			s.setup.Preemption.Policy = policy
		case "grace":
			grace, err := time.ParseDuration(a.Vals[0])
			if err != nil {
				return "", err
			}
			s.setup.Preemption.Grace = grace
		default:
			if err := s.elasticFlag(a.Key, a.Vals[0]); err != nil {
				return "", err
			}
		}
	}
	var err error
	if s.setup.Queue, err = sim.QueueByName(queue); err != nil {
		return "", err
	}
	if s.setup.Policy, err = placement.ByName(policy); err != nil {
		return "", err
	}
	s.setup.Mix = nil
	if mix != nil {
		var kinds []fragmentation.Kind
		for _, m := range mix {
			kinds = append(kinds, fragmentation.Kind{Slots: vgpu.Slots(whole(s.t, m)), Weight: 1})
		}
		if s.setup.Mix, err = fragmentation.NewMix(kinds); err != nil {
			return "", err
		}
	}
	if s.history, err = sim.Run(s.setup); err != nil {
		return "", err
	}
	return s.tell()
}
