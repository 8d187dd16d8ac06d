package elasticity

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/internal/controller/snapshot"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/lifetime"
	"github.com/tandem-gpu/tandem/pkg/resize"
)

// elasticGang is an elastic gang in one pass.
type elasticGang struct {
	*podgroup.Gang
	// all are its members by rank, those that its target holds back included.
	all []*v1.Pod
	// running are those that have a node and no deletion timestamp, by rank; hosts is the number of their nodes.
	running []*v1.Pod
	hosts   int
	// ended are members that have ended and still exist.
	ended []*v1.Pod
	// target is its ElasticTarget, nil where there is none.
	target *v1alpha1.ElasticTarget
	// problem says what is wrong with it, "" for nothing. It keeps its target then. missing says that fewer members exist than must run.
	problem, missing string
	// resizable says whether the controller may change its size, and view is what package resize sees of it.
	resizable verdict
	view      *resize.View
	// tuning is what it wants and gets where it states a rate, nil where it states none.
	tuning *tuning
	// paused and pin are what its user has written into the target: that nothing changes, or a number of members, 0 for none.
	paused bool
	pin    int
	// index is its place in the list of jobs, −1 where elastic.Workers is not asked about it.
	index int
}

// newGang reads a gang. Members are all members that exist.
func newGang(pg *podgroup.Gang, all []*v1.Pod, target *v1alpha1.ElasticTarget) *elasticGang {
	g := &elasticGang{Gang: pg, all: all, target: target, index: -1}
	hosts := map[string]bool{}
	for _, pod := range all {
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
			g.running = append(g.running, pod)
			hosts[pod.Spec.NodeName] = true
		}
	}
	g.hosts = len(hosts)
	return g
}

// comesBack reports whether some of the members run or end, so that those that are missing are expected soon.
func (g *elasticGang) comesBack() bool {
	return slices.ContainsFunc(g.all, func(pod *v1.Pod) bool { return pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil })
}

// workersOf returns all members as package membership sees them.
func (g *elasticGang) workersOf() []membership.Worker {
	list := make([]membership.Worker, len(g.all))
	for i, pod := range g.all {
		list[i] = membership.Worker{Rank: membership.RankOf(pod), OnNode: pod.Spec.NodeName != "", Leaving: pod.DeletionTimestamp != nil}
	}
	return list
}

// workers returns the size that the gang has by its target, or by what runs where it has none.
func (g *elasticGang) workers() int { return g.view.Size() }

// job returns a gang as a job of package elastic. An error says in words why there is none.
func (p *pass) job(c *snapshot.Cluster, g *elasticGang, profile *workloads.Workload) (elastic.Job, error) {
	first, m := g.all[0], p.memory[g.Ref]
	request, err := kube.WholeRequest(first, p.now)
	if err != nil {
		return elastic.Job{}, err
	}
	j := elastic.Job{
		Name: g.String(), Priority: corev1helpers.PodPriority(first), Arrived: g.Created.Unix(), Sizes: m.size.Offer(g.view),
		Worker: gang.Member{Request: request, Kind: c.Kind(first)}, Wishes: p.wishes(g.Gang),
		Curve: elastic.Curve{Points: m.learner.Points()}, Cost: m.learner.Cost(),
	}
	if profile != nil {
		j.Losses = profile.Losses()
		s := profile.Scaling()
		if s.Points != nil {
			j.Curve.Points = s.Points
		}
		if s.ResizeTime >= 0 {
			j.Cost = s.ResizeTime.Seconds()
		}
	}
	c.Divide(j.Wishes)
	leave := idsOf(m.size.Leave(g.view))
	for _, pod := range g.running {
		if leave[string(pod.UID)] {
			c.Remove(pod)
			continue
		}
		a, has := c.Placed(pod)
		if !has { // without its devices the member would count as one that waits
			return elastic.Job{}, fmt.Errorf("pod %s has the node %s, and its devices there are unknown", pod.Name, pod.Spec.NodeName)
		}
		j.Placed = append(j.Placed, a)
		if at := startedAt(pod); j.Started == 0 || at < j.Started {
			j.Started = at
		}
	}
	j.Started = min(j.Started, p.now.Unix())
	if len(j.Placed) == 0 {
		j.Started = 0
	}
	if g.target != nil {
		for _, at := range g.target.Status.Moves {
			j.Moved = append(j.Moved, at.Unix())
		}
	}
	if len(leave) > 0 { // the last change has not happened yet, and can be taken back for nothing
		j.Moved = j.Moved[:max(0, len(j.Moved)-1)]
	}
	return j, nil
}

// declaresCost reports whether a profile, which may be nil, declares what a change of size costs.
func declaresCost(profile *workloads.Workload) bool {
	return profile != nil && profile.Scaling().ResizeTime >= 0
}

// possible returns the legal sizes for which the gang has members, or its owner will make them.
func (g *elasticGang) possible() []int {
	sizes := slices.Clone(g.Sizes)
	if o := g.resizable.owner; o != nil { // it makes the members that are missing
		return slices.DeleteFunc(sizes, func(size int) bool { return !o.Fits(size) })
	}
	for len(sizes) > 1 && sizes[len(sizes)-1] > max(len(g.all), g.resizable.most) {
		sizes = sizes[:len(sizes)-1]
	}
	return sizes
}

// wishes returns how close together the members come: as the gang says, else as the scheduler's arguments do.
func (p *pass) wishes(pg *podgroup.Gang) gang.Wishes {
	return gang.Wishes{Required: pg.Required, Preferred: pg.Preferred}.Or(p.options.Preferred)
}

// startedAt returns the Unix time at which a pod got its node, or of its creation where nothing says so.
func startedAt(pod *v1.Pod) int64 {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue && !c.LastTransitionTime.IsZero() {
			return c.LastTransitionTime.Unix()
		}
	}
	return pod.CreationTimestamp.Unix()
}

// maxWaiting bounds the jobs that wait and are not elastic, for which elastic jobs shrink in one pass: the first ones by
// priority and arrival. More find no room in the same pass anyway, and take time.
const maxWaiting = 500

// waiting returns the pods and gangs that are not elastic and wait for a node, as jobs. A gang of which as many members
// as must run have a node does not wait; another one wants places for those that lack one.
func (p *pass) waiting(c *snapshot.Cluster) []elastic.Job {
	jobs := make([]elastic.Job, 0, 16)
	seen, names := map[podgroup.Ref]bool{}, map[string]bool{}
	for _, pod := range p.objects.Pods {
		if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || pod.Spec.SchedulerName != p.scheduler || len(pod.Spec.SchedulingGates) > 0 ||
			!kube.WantsVGPU(pod) {
			continue
		}
		name, least, created, w := "pod "+kube.PathOf(pod), 1, pod.CreationTimestamp.Unix(), gang.Wishes{}
		if ref, member := p.gangs.Of(pod); member {
			pg, err := p.gangs.Gang(ref)
			if seen[ref] || pg == nil || pg.Sizes != nil {
				continue
			}
			seen[ref] = true
			wanted := lacks(pg, err)
			if wanted == 0 {
				continue
			}
			name, least, created, w = "gang "+ref.String(), wanted, pg.Created.Unix(), p.wishes(pg)
		}
		request, err := kube.WholeRequest(pod, p.now)
		if err != nil || names[name] {
			continue // the scheduler tells its user; gangs of two sources may have one name
		}
		names[name] = true
		jobs = append(jobs, elastic.Job{
			Name: name, Priority: corev1helpers.PodPriority(pod), Arrived: created, Sizes: []int{least},
			Worker: gang.Member{Request: request, Kind: c.Kind(pod)}, Wishes: w, Remaining: p.lengths.remaining(pod, least, elastic.Had{}),
		})
	}
	slices.SortFunc(jobs, func(a, b elastic.Job) int {
		return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.Arrived, b.Arrived), cmp.Compare(a.Name, b.Name))
	})
	jobs = jobs[:min(len(jobs), maxWaiting)]
	for i := range jobs {
		c.Divide(jobs[i].Wishes)
	}
	return jobs
}

// lacks returns how many places a gang wants so that as many members run as must, 0 where it waits for none. A gang that has started and lacks
// members wants places for those that exist. The queue of a scheduler that
// knows the PodGroups of Kubernetes keeps such a gang out as long as it lacks any; whether this one does is unknown here.
func lacks(pg *podgroup.Gang, err error) int {
	ran, waits := running(pg), 0
	for _, pod := range pg.Members {
		if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && len(pod.Spec.SchedulingGates) == 0 {
			waits++
		}
	}
	missing := pg.MinCount - ran
	problem, is := errors.AsType[*podgroup.Problem](err)
	switch {
	case missing <= 0, (pg.Done > 0 || err != nil) && pg.Source == podgroup.Native:
		return 0
	case err == nil:
		return missing
	case !is || !problem.Waits || ran == 0:
		return 0
	}
	return min(missing, waits)
}

// running counts the members of a gang that have a node and no deletion timestamp.
func running(pg *podgroup.Gang) (count int) {
	for _, pod := range pg.Members {
		if pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil {
			count++
		}
	}
	return count
}

// memory is what the controller remembers of a gang between passes. The ElasticTarget also has what the controller learned.
type memory struct {
	// size is what has become of the number of members.
	size *resize.State
	// servers is what has become of the number of parameter servers.
	servers serversNumber
	learner elastic.Learner
	// served is the time in seconds for which members had nodes, added up; at is the time of the last pass.
	served float64
	at     time.Time
	// progress is what the gang has said of the part of its work that it has done, at the ages of package elastic: served ÷ least.
	progress lifetime.Progress
	// like names what the gang has in common with those that take about as long.
	like elastic.Alike
	// seen is when the gang last existed.
	seen time.Time
	// ratesAt is when the learned rates were last written into the target.
	ratesAt time.Time
	// told is the last message of an impossible report, for the log.
	told string
	// present are the members of the last pass. change is the last change of their number until its cost is known, nil
	// without one. restarts says that the members' reports show restarts.
	present  map[types.UID]bool
	hosts    int
	change   *sizeChange
	restarts bool
}

// remember starts from what an ElasticTarget says, and from how long the members have run.
func remember(g *elasticGang, rules resize.Config, now time.Time) *memory {
	m := &memory{at: now, size: resize.New(rules, now)}
	for _, pod := range g.running {
		m.served += max(0, float64(now.Unix()-startedAt(pod)))
	}
	if g.target == nil {
		return m
	}
	for _, r := range g.target.Status.Rates {
		if rate := r.Rate.AsApproximateFloat64(); rate > 0 && r.Workers > 0 && r.Hosts > 0 && r.Hosts <= r.Workers && r.Servers >= 0 && r.Reports > 0 {
			m.learner.Seen = append(m.learner.Seen, elastic.Seen{Workers: int(r.Workers), Hosts: int(r.Hosts), Servers: int(r.Servers), Rate: rate, Reports: int(r.Reports)})
		}
	}
	slices.SortFunc(m.learner.Seen, func(a, b elastic.Seen) int {
		return cmp.Or(a.Workers-b.Workers, a.Hosts-b.Hosts, a.Servers-b.Servers)
	})
	if s := g.target.Status.ResizeSeconds; s != nil && g.target.Status.Resizes > 0 {
		m.learner.Pause, m.learner.Pauses = max(0, float64(*s)), int(g.target.Status.Resizes)
	}
	return m
}
