package gangs

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/evaluation/experiment"
	"github.com/tandem-gpu/tandem/pkg/elastic"
)

// Names of policies of Elastic.
const (
	staticGangs  = "static"
	learnedSizes = "goodput-learned"
)

// elasticRow is a policy with its name. The field fixed names a policy of gangPolicies, which keeps the sizes of jobs.
type elasticRow struct {
	name, fixed string
	make        func() elasticPolicy
}

// elasticPolicies are in the order in which all of them are shown.
var elasticPolicies = []elasticRow{
	{name: stockGangs, fixed: stockGangs},
	{name: staticGangs, fixed: "tandem"},
	{name: "round-robin", make: func() elasticPolicy { return &roundRobin{} }},
	{name: tiresiasGangs, fixed: tiresiasGangs},
	{name: "pollux-like", make: func() elasticPolicy { return &polluxLike{known: known{}} }},
	{name: "elastic-kubeflow", make: asPublished("elastic-kubeflow")},
	{name: "dragon", make: asPublished("dragon")},
	{name: "elastic-fifo", make: asPublished("elastic-fifo")},
	{name: "elastic-srjf", make: func() elasticPolicy {
		return &workers{cfg: elastic.Config{Policy: "elastic-srjf", MaxMoves: math.MaxInt}, knows: known{}, lengths: trueLengths{}}
	}},
	{name: "elastic-srjf-predicted", make: func() elasticPolicy {
		return &workers{cfg: elastic.Config{Policy: "elastic-srjf", MaxMoves: math.MaxInt}, knows: known{}, lengths: newPredictedLengths(false)}
	}},
	{name: "elastic-srjf-progress", make: func() elasticPolicy {
		return &workers{cfg: elastic.Config{Policy: "elastic-srjf", MaxMoves: math.MaxInt}, knows: known{}, lengths: newPredictedLengths(true)}
	}},
	{name: "ffdl", make: asPublished("ffdl")},
	{name: "goodput", make: func() elasticPolicy { return &workers{knows: known{}} }},
	{name: learnedSizes, make: func() elasticPolicy { return &workers{knows: learned{}} }},
}

// asPublished asks elastic.Workers for a policy of others, which does not bound how often sizes change.
func asPublished(name string) func() elasticPolicy {
	return func() elasticPolicy {
		return &workers{cfg: elastic.Config{Policy: name, MaxMoves: math.MaxInt}, knows: known{}}
	}
}

// ElasticPolicies returns the names of the policies that Elastic compares, in the order of display.
func ElasticPolicies() []string {
	names := make([]string, 0, len(elasticPolicies))
	for i := range elasticPolicies {
		names = append(names, elasticPolicies[i].name)
	}
	return names
}

// ParseElasticPolicies reads names of policies separated by commas, or experiment.All.
func ParseElasticPolicies(list string) ([]string, error) {
	if list == experiment.All {
		return ElasticPolicies(), nil
	}
	names := strings.Split(list, ",")
	for i, name := range names {
		switch {
		case !slices.Contains(ElasticPolicies(), name):
			return nil, fmt.Errorf("read policies %q: unknown policy %q, known are %s, or %s for every one", list, name,
				strings.Join(ElasticPolicies(), ", "), experiment.All)
		case slices.Contains(names[:i], name):
			return nil, fmt.Errorf("read policies %q: %s appears twice", list, name)
		}
	}
	return names, nil
}

// knowledge is what a policy knows of a job.
type knowledge interface {
	// of returns the job's curve, and the seconds that a change of its size costs.
	of(r *elasticRun, j *elasticJob) (elastic.Curve, float64)
}

// known are the measured curves, as profiles would declare them, by job, and the true costs.
type known map[int]elastic.Curve

func (k known) of(r *elasticRun, j *elasticJob) (elastic.Curve, float64) {
	c, there := k[j.id]
	if !there {
		c = j.measuredCurve(r.perNode)
		k[j.id] = c
	}
	return c, j.cost
}

// learned is what the reports of jobs have taught so far, by application and batch size, then by job.
type learned map[string]map[int]*reports

// reports are those of one job. moves counts the changes of its size that it has reported.
type reports struct {
	elastic.Learner
	moves int
}

// reportEvery is the seconds between two reports of a job.
const reportEvery = 10

// report lets a running job report its rate: none until it works.
func (l *reports) report(r *elasticRun, j *elasticJob) error {
	workers, hosts := len(j.places), nodesOf(j.nodes)
	if len(j.moved) > l.moves {
		l.moves = len(j.moved)
		changed := j.moved[l.moves-1]
		if err := l.Report(changed, workers, hosts, 0); err != nil {
			return err
		}
		if works := changed + reportEvery*int64(math.Ceil(j.cost/reportEvery)); works <= int64(r.now) {
			return l.Report(works, workers, hosts, j.rate)
		}
	}
	if j.delay > 0 {
		return l.Report(int64(r.now), workers, hosts, 0)
	}
	return l.Report(int64(r.now), workers, hosts, j.rate)
}

func (l learned) of(r *elasticRun, j *elasticJob) (elastic.Curve, float64) {
	name := fmt.Sprintf("%s-%d", j.app.name, j.batch)
	if l[name] == nil {
		l[name] = map[int]*reports{}
	}
	if len(j.places) > 0 {
		if l[name][j.id] == nil {
			l[name][j.id] = &reports{}
		}
		if err := l[name][j.id].report(r, j); err != nil {
			panic(err) // the rates of a table are possible ones
		}
	}
	var points []elastic.Point
	cost, pauses := 0.0, 0
	for _, id := range slices.Sorted(maps.Keys(l[name])) {
		of := l[name][id]
		points = append(points, of.Points()...)
		cost += of.Pause * float64(of.Pauses)
		pauses += of.Pauses
	}
	if pauses == 0 {
		return elastic.Curve{Points: meanPoints(points)}, elastic.DefaultCost
	}
	return elastic.Curve{Points: meanPoints(points)}, cost / float64(pauses)
}

// meanPoints makes one point of those with the same number of workers and hosts: the mean of their rates.
func meanPoints(points []elastic.Point) []elastic.Point {
	slices.SortFunc(points, func(a, b elastic.Point) int {
		return cmp.Or(cmp.Compare(a.Workers, b.Workers), cmp.Compare(a.Hosts, b.Hosts), cmp.Compare(a.Rate, b.Rate))
	})
	var means []elastic.Point
	for len(points) > 0 {
		same, sum := 0, 0.0
		for same < len(points) && points[same].Workers == points[0].Workers && points[same].Hosts == points[0].Hosts {
			sum += points[same].Rate
			same++
		}
		means = append(means, elastic.Point{Workers: points[0].Workers, Hosts: points[0].Hosts, Rate: sum / float64(same)})
		points = points[same:]
	}
	return means
}

// nodesOf counts the nodes of workers.
func nodesOf(nodes []int) int {
	return len(slices.Compact(slices.Sorted(slices.Values(nodes))))
}

// workers asks elastic.Workers.
type workers struct {
	cfg   elastic.Config
	knows knowledge
	// lengths says how long jobs still take, nil where the policy does not know that.
	lengths lengths
}

func (w *workers) sizes(r *elasticRun, there []*elasticJob) (want, order []int, err error) {
	jobs := make([]elastic.Job, 0, len(there))
	if w.lengths != nil {
		if err := w.lengths.learn(r); err != nil {
			return nil, nil, err
		}
	}
	for _, j := range there {
		curve, cost := w.knows.of(r, j)
		e := elastic.Job{
			Name: j.name, Arrived: int64(j.arrive), Started: int64(j.started), Sizes: j.sizes, Placed: j.places,
			Worker: j.worker(0), Wishes: together, Curve: curve, Cost: cost, Moved: j.moved,
		}
		if w.lengths != nil {
			if e.Remaining, err = w.lengths.remaining(r, j); err != nil {
				return nil, nil, err
			}
		}
		jobs = append(jobs, e)
	}
	plan, err := elastic.Workers(&r.cluster, jobs, nil, int64(r.now), w.cfg)
	if err != nil {
		return nil, nil, err
	}
	for i := range plan.Targets {
		if err := plan.Targets[i].Err; err != nil {
			return nil, nil, err
		}
		want = append(want, plan.Targets[i].Workers)
	}
	return want, plan.Order, nil
}
