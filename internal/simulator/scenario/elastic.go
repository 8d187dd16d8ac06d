package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/sim"
)

const (
	// maxRate bounds rates, as in a WorkloadProfile.
	maxRate = 1e12
	// maxRates bounds the points of a curve.
	maxRates = 256
	// maxMoves bounds the changes of size within an hour.
	maxMoves = 3600
	// The bounds of the controller's flags.
	maxResizeTime = 24 * time.Hour
	maxHorizon    = 720 * time.Hour
	maxInterval   = time.Hour
	// notice is the default of the controller's flag.
	notice = 5 * time.Second
)

// elastic reads the configuration of the sizes of elastic gangs.
func (r *reader) elastic(f *elasticFile) sim.ElasticConfig {
	if f == nil {
		f = &elasticFile{}
	}
	var c sim.ElasticConfig
	if c.Policy = elastic.DefaultPolicy; f.Policy != "" {
		c.Policy = string(f.Policy)
	}
	if !contains(elastic.Policies(), c.Policy) {
		r.wrong("elastic.policy", quote(f.Policy), "one of "+strings.Join(elastic.Policies(), ", "))
	}
	c.Every = r.drainTime("elastic.interval", f.Interval, sim.DefaultEvery, [2]time.Duration{time.Second, maxInterval})
	horizon := r.drainTime("elastic.horizon", f.Horizon, elastic.DefaultHorizon*time.Second, [2]time.Duration{time.Second, maxHorizon})
	c.Horizon = horizon.Seconds()
	c.MaxMoves = int(r.wholeOr(elastic.DefaultMaxMoves, "elastic.max_moves", f.MaxMoves, 1, maxMoves))
	c.Notice = r.drainTime("elastic.notice", f.Notice, notice, [2]time.Duration{0, maxInterval})
	c.AdmitWithin = r.drainTime("elastic.admit_within", f.AdmitWithin, sim.DefaultAdmitWithin, [2]time.Duration{time.Second, maxHorizon})
	return c
}

// resizes reads how the size of a gang changes, nil for a gang of one size, and its least number of members.
func (a *asker) resizes(path string, f *gangFile, w *work) *sim.Elastic {
	e := f.Elastic
	if e == nil {
		return nil
	}
	switch {
	case len(f.Members) != 1:
		a.wrong(path+".members", fmt.Sprintf("%d roles of an elastic gang", len(f.Members)), "one role, since all its members do the same work")
	case len(w.requests) > 0 && len(w.requests[0].Containers) == 0:
		a.wrong(path+".members[0].slots", quote(f.Members[0].Slots), "1 or more, since the gang is elastic")
	}
	path += ".elastic"
	sizes, legal := elastic.ParseSizes(string(e.Workers), maxMembers)
	switch {
	case !legal:
		a.wrong(path+".workers", quote(e.Workers), fmt.Sprintf("a range such as 2-8, a range in steps such as 2-8/2, or an ascending list such as 1,2,4,8: numbers from 1 to %d, at most %d of them", maxMembers, elastic.MaxSizes))
		return nil
	case sizes[len(sizes)-1] != len(w.requests):
		a.wrong(path+".workers", quote(e.Workers), fmt.Sprintf("numbers up to the number of members, %d", len(w.requests)))
	case w.gang.MinCount != 0 && w.gang.MinCount != sizes[0]:
		a.wrong(path+".workers", quote(e.Workers), fmt.Sprintf("numbers from min_count on, %d, or no min_count", w.gang.MinCount))
	}
	w.gang.MinCount = sizes[0]
	return &sim.Elastic{
		Sizes: sizes, Curve: elastic.Curve{Points: a.rates(path+".rates", e.Rates)},
		ResizeTime:      a.drainTime(path+".resize_time", e.ResizeTime, elastic.DefaultCost*time.Second, [2]time.Duration{0, maxResizeTime}),
		ReportsProgress: a.yes(path+".reports_progress", e.ReportsProgress),
	}
}

// rates reads the points of a curve. Rates that fall are taken for a mistake.
func (r *reader) rates(path string, files []rateFile) []elastic.Point {
	if len(files) > maxRates {
		r.wrong(path, fmt.Sprintf("%d rates", len(files)), fmt.Sprintf("at most %d", maxRates))
		return nil
	}
	points := make([]elastic.Point, 0, len(files))
	for i := range files {
		f, at := &files[i], at(path, i)
		p := elastic.Point{Workers: int(r.whole(at+".workers", f.Workers, 1, maxMembers))}
		p.Hosts = int(r.wholeOr(0, at+".hosts", f.Hosts, 1, int64(p.Workers)))
		if p.Rate = r.decimal(at+".rate", f.Rate, 0, maxRate); p.Rate == 0 {
			r.wrong(at+".rate", quote(f.Rate), "a decimal number above 0")
		}
		for _, o := range points {
			less, more := o, p
			if p.Workers < o.Workers {
				less, more = p, o
			}
			switch {
			case o.Hosts != p.Hosts:
			case o.Workers == p.Workers:
				r.wrong(at+".workers", quote(f.Workers), "each number of workers once for each number of hosts")
			case more.Rate < less.Rate:
				r.wrong(at+".rate", quote(f.Rate), fmt.Sprintf("rates that do not fall with the number of workers: %d workers have %s, and %d have %s",
					less.Workers, number(less.Rate), more.Workers, number(more.Rate)))
			}
		}
		points = append(points, p)
	}
	return points
}

// elasticNames returns the names of the elastic jobs that a workload may have, as assertions name them.
func elasticNames(sources []source, fleets []*fleet) []string {
	names := make([]string, 0, len(fleets))
	for _, s := range sources {
		switch s := s.(type) {
		case listed:
			for i := range s {
				if g := s[i].Gang; g != nil && g.Elastic != nil {
					names = append(names, strings.TrimPrefix(g.Name, "jobs/"))
				}
			}
		case *generator:
			if slices.ContainsFunc(s.shapes, func(x shape) bool { return x.gang != nil && x.gang.Elastic != nil }) {
				for i := range s.count {
					names = append(names, s.jobName(i))
				}
			}
		}
	}
	for _, x := range fleets {
		names = append(names, "fleets/"+x.name)
	}
	return slices.Compact(names)
}

// jobOf reads the job of an assertion about elastic jobs, "" for all of them.
func (r *reader) jobOf(path string, f *assertionFile, jobs []string) string {
	switch {
	case f.Job == "":
		return ""
	case f.Metric != elasticWorkers && f.Metric != elasticMoves:
		r.wrong(path+".job", quote(f.Job), "nothing, since only "+elasticMoves+" and "+elasticWorkers+" are about one job")
	case !contains(jobs, string(f.Job)):
		r.wrong(path+".job", quote(f.Job), "the name of an elastic job: "+orNone(jobs[:min(len(jobs), maxNames)]))
	}
	return string(f.Job)
}

// maxNames bounds the names of jobs in an error.
const maxNames = 20

// elasticMoves and elasticWorkers are the metrics of elastic jobs.
const (
	elasticMoves   = "elastic_moves"
	elasticWorkers = "elastic_workers"
)

// isOf reports whether an assertion about elastic jobs is about a gang.
func (w span) isOf(g *sim.GangOutcome) bool {
	return len(g.Sizes) > 0 && (w.job == "" || strings.TrimPrefix(g.Name, "jobs/") == w.job)
}

// workersOf returns the numbers of workers that elastic jobs have in the window: 0 while they wait, none before their arrival
// and after their end.
func workersOf(h *sim.History, w span) []float64 {
	var all []float64
	for i := range h.Gangs {
		g := &h.Gangs[i]
		if !w.isOf(g) {
			continue
		}
		for k, s := range g.Sizes {
			last := k == len(g.Sizes)-1
			over := last && (g.State == sim.Finished || g.State == sim.Dropped)
			before := !last && (g.Sizes[k+1].At <= w.from || g.Sizes[k+1].At == s.At) // at the end of a number the next one counts
			if !over && !before && s.At <= w.to {
				all = append(all, float64(s.Workers))
			}
		}
	}
	return all
}

// movesOf counts the changes of size of elastic jobs in the window, nothing where no such job is there.
func movesOf(h *sim.History, w span) []float64 {
	if len(workersOf(h, w)) == 0 {
		return nil
	}
	count := 0
	for i := range h.Gangs {
		if g := &h.Gangs[i]; w.isOf(g) {
			for _, at := range g.Moves {
				if w.has(at) {
					count++
				}
			}
		}
	}
	return []float64{float64(count)}
}
