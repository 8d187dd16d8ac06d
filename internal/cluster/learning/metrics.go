package learning

import (
	"maps"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tandem-gpu/tandem/internal/metrics"
)

// Reasons for which the learner ignores a report.
const (
	dropAbsurd     = "absurd"
	dropZero       = "zero"
	dropFar        = "far"
	dropNoRate     = "no-rate"
	dropSeveral    = "several-devices"
	dropCrowded    = "crowded"
	dropForeign    = "foreign-programs"
	dropUnknownPod = "unknown-pod"
	dropOtherNode  = "other-node"
	dropRefused    = "refused"
	dropRestored   = "restored"
	dropUnwritable = "unwritable"
	dropFull       = "full"
)

// reasons are all of them, sorted.
var reasons = []string{
	dropAbsurd, dropCrowded, dropFar, dropForeign, dropFull, dropNoRate, dropOtherNode, dropRefused, dropRestored, dropSeveral,
	dropUnknownPod, dropUnwritable, dropZero,
}

// Results of a write.
const (
	resultWritten = "written"
	resultMade    = "made"
	resultDeleted = "deleted"
	resultFailed  = "failed"
)

// counts are the learner's counters. The learner's lock guards them.
type counts struct {
	solo, coRuns, restarts, broken uint64
	dropped, writes                map[string]uint64
	slowdowns                      slowdowns
}

// slowdowns are the measured ones: their number, their sum, and how many are at most each bucket of the family.
type slowdowns struct {
	number  uint64
	sum     float64
	buckets map[float64]uint64
}

func (s *slowdowns) add(v float64) {
	if s.buckets == nil {
		s.buckets = map[float64]uint64{}
	}
	s.number, s.sum = s.number+1, s.sum+v
	for _, most := range measured.Buckets {
		if v <= most {
			s.buckets[most]++
		}
	}
}

// cumulative returns a copy of the buckets, also of those without a slowdown.
func (s *slowdowns) cumulative() map[float64]uint64 {
	all := map[float64]uint64{}
	for _, most := range measured.Buckets {
		all[most] = s.buckets[most]
	}
	return all
}

// measure counts a slowdown that was measured. The promise of the pod is in thousandths, 0 for none.
func (c *counts) measure(slowdown float64, promise int64) {
	c.slowdowns.add(slowdown)
	if promise > 0 && slowdown > float64(promise)/1000 {
		c.broken++
	}
}

func (c *counts) drop(reason string) { count(&c.dropped, reason) }

func (c *counts) write(result string) { count(&c.writes, result) }

func count(in *map[string]uint64, word string) {
	if *in == nil {
		*in = map[string]uint64{}
	}
	(*in)[word]++
}

// prefix begins the names of the learner's metrics.
const prefix = "tandem_learning_"

const fromZero = "0 or more"

var (
	broken = metrics.Family{Name: prefix + "broken_promises_total", Type: metrics.Counter, Unit: "intervals", Range: fromZero,
		Help: "Intervals in which neighbours slowed a pod down more than its max-slowdown allows, by the rate that the pod reports and its known rate alone."}
	measured = metrics.Family{Name: prefix + "measured_slowdown_ratio", Type: metrics.Histogram, Unit: "ratio", Range: "1 or more",
		Buckets: []float64{1, 1.05, 1.1, 1.15, 1.2, 1.3, 1.5, 2, 3},
		Help: "Slowdown of a pod beside its neighbours in one interval: its rate alone by the rate that it reports, and 1 where it is faster than alone. " +
			"Counted for pods that report a rate and whose rate alone is known."}
	observations = metrics.Family{Name: prefix + "observations_total", Type: metrics.Counter, Labels: []string{"kind"}, Unit: "observations", Range: fromZero,
		Help: "Intervals that taught something about a workload by kind: alone, or beside others."}
	dropped = metrics.Family{Name: prefix + "dropped_total", Type: metrics.Counter, Labels: []string{"reason"}, Unit: "values", Range: fromZero,
		Help: "Values, intervals and profiles that taught nothing, by reason: absurd (no use or rate can be that), zero (a rate), " +
			"far (from what the workload reported before), no-rate, several-devices (the rate is not of one device), crowded (too many " +
			"neighbours to tell whose pressure it was), foreign-programs (that belong to no pod hold memory), unknown-pod, other-node " +
			"(a node told of a pod that is not bound to it), refused, restored (a status that is out of range), unwritable (no WorkloadProfile can hold the workload), full (all profiles are of " +
			"workloads that were observed lately)."}
	restarts = metrics.Family{Name: prefix + "restarts_total", Type: metrics.Counter, Unit: "workloads", Range: fromZero,
		Help: "Workloads that were learned anew since they report in another unit."}
	profiles = metrics.Family{Name: prefix + "workloads", Type: metrics.Gauge, Labels: []string{"state"}, Unit: "workloads", Range: fromZero,
		Help: "Workloads by the state of their WorkloadProfile: declared by a user, made by the scheduler, or none."}
	waiting = metrics.Family{Name: prefix + "waiting", Type: metrics.Gauge, Unit: "workloads", Range: fromZero,
		Help: "Workloads of which more was learned than their WorkloadProfile says."}
	writes = metrics.Family{Name: prefix + "writes_total", Type: metrics.Counter, Labels: []string{"result"}, Unit: "requests", Range: fromZero,
		Help: "WorkloadProfiles by what became of them: written, made, deleted, or failed."}
)

// Families returns the table of the learner's metrics, the source of its collector.
func Families() []metrics.Family {
	return []metrics.Family{broken, dropped, measured, observations, restarts, waiting, profiles, writes}
}

// Collector returns the learner's metrics.
func (l *Learner) Collector() prometheus.Collector {
	c := &collector{learner: l, descs: map[string]*prometheus.Desc{}}
	for _, f := range Families() {
		c.descs[f.Name] = prometheus.NewDesc(f.Name, f.Help, f.Labels, nil)
	}
	return c
}

type collector struct {
	learner *Learner
	descs   map[string]*prometheus.Desc
}

// Describe lists the metrics.
func (c *collector) Describe(ch chan<- *prometheus.Desc) {
	for _, name := range slices.Sorted(maps.Keys(c.descs)) {
		ch <- c.descs[name]
	}
}

// Collect sends them.
func (c *collector) Collect(ch chan<- prometheus.Metric) {
	l := c.learner
	l.mu.Lock()
	defer l.mu.Unlock()
	tell := func(f metrics.Family, v uint64, labels ...string) {
		kind := prometheus.CounterValue
		if f.Type == metrics.Gauge {
			kind = prometheus.GaugeValue
		}
		ch <- prometheus.MustNewConstMetric(c.descs[f.Name], kind, float64(v), labels...)
	}
	tell(observations, l.counts.solo, "alone")
	tell(observations, l.counts.coRuns, "beside")
	tell(restarts, l.counts.restarts)
	tell(broken, l.counts.broken)
	slow := &l.counts.slowdowns
	ch <- prometheus.MustNewConstHistogram(c.descs[measured.Name], slow.number, slow.sum, slow.cumulative())
	tell(waiting, uint64(len(l.queue)+len(l.lateQueue)))
	for _, reason := range reasons {
		tell(dropped, l.counts.dropped[reason], reason)
	}
	for _, result := range []string{resultDeleted, resultFailed, resultMade, resultWritten} {
		tell(writes, l.counts.writes[result], result)
	}
	of := map[string]uint64{}
	for _, w := range l.workloads {
		switch {
		case w.profile == nil:
			of["none"]++
		case w.made:
			of["made"]++
		default:
			of["declared"]++
		}
	}
	for _, kind := range []string{"declared", "made", "none"} {
		tell(profiles, of[kind], kind)
	}
}
