package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/elastic"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/resize"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// maxWaiting bounds the jobs that wait and are not elastic, for which elastic gangs shrink at one decision, as in the
// controller.
const maxWaiting = 500

// nextDecision returns when the sizes of elastic gangs are next decided on, and false where there is no such time yet.
func (e *engine) nextDecision() (time.Duration, bool) {
	every := e.setup.Elastic.Every
	if len(e.elastic) == 0 || e.sample.At > latest {
		return 0, false
	}
	at := (e.sample.At/every + 1) * every
	return at, e.decides(at)
}

// decides reports whether sizes are decided on at a time: as long as a pod is to come, to end or to leave, and where none is, for a while
// more, since a run with gangs that never end has to end.
func (e *engine) decides(at time.Duration) bool {
	return len(e.arrivals) > 0 || len(e.running) > 0 || e.serves() || at <= e.stirred+e.setup.Elastic.settled()
}

// adjust decides on the sizes of the elastic gangs where it is time for that, carries the decisions out, and places members
// that came back or found no place earlier.
func (e *engine) adjust() error {
	if len(e.elastic) == 0 {
		return nil
	}
	before, order := len(e.history.log), e.elastic
	if now := e.sample.At; now > e.decided && now%e.setup.Elastic.Every == 0 && e.decides(now) {
		e.decided = now
		var err error
		if order, err = e.decideSizes(); err != nil {
			return err
		}
	}
	if err := e.turn(); err != nil {
		return err
	}
	for _, g := range order {
		if err := e.grow(g); err != nil {
			return err
		}
	}
	if len(e.history.log) > before {
		e.note()
	}
	return nil
}

// decideSizes asks fleets for their sizes and package elastic for those of the other elastic gangs, and lets members leave. It
// returns the gangs in the order in which their sizes change.
func (e *engine) decideSizes() ([]*group, error) {
	fleets, training := e.fleets()
	reserved, err := e.sizeFleets(fleets)
	if err != nil {
		return nil, err
	}
	jobs := make([]elastic.Job, 0, len(training))
	for _, g := range training {
		e.look(g)
		jobs = append(jobs, e.elasticJob(g))
	}
	jobs = append(append(jobs, e.missingReplicas(fleets)...), e.waitingJobs()...)
	if err := e.setRemaining(jobs, training); err != nil {
		return nil, err
	}
	plan, err := elastic.Workers(e.seen(), jobs, reserved, unix(e.sample.At), e.setup.Elastic.Config)
	if err != nil {
		return nil, err
	}
	place := func(i int) int {
		if at := slices.Index(plan.Order, i); at >= 0 {
			return at
		}
		return len(plan.Order)
	}
	list := make([]int, len(training))
	for i := range list {
		list[i] = i
	}
	slices.SortStableFunc(list, func(a, b int) int { return place(a) - place(b) })
	order := make([]*group, 0, len(list))
	for _, i := range list {
		order = append(order, training[i])
	}
	for k, g := range order {
		if err := e.follow(g, &plan.Targets[list[k]]); err != nil {
			return nil, err
		}
	}
	return append(fleets, order...), nil // replicas get idle devices before trainings grow
}

// seen returns the cluster as the controller sees it: without the room that the scheduler keeps, and without the pods that
// end or are to leave, since who waits for their room gets it soon.
func (e *engine) seen() *gang.Cluster {
	c, ledger := &gang.Cluster{Levels: e.levels}, e.ledger()
	gone := map[string][]int{} // by node
	for _, job := range e.soonGone() {
		node := e.history.Outcomes[job].Assignment.Node
		gone[node] = append(gone[node], job)
	}
	for _, n := range e.cluster.Nodes() {
		room := ledger(n.Name()).Room()
		if n.Held() {
			n = n.Without(func(_ *vgpu.Hold, held bool) bool { return held })
		} else {
			n = n.Clone()
		}
		for _, job := range gone[n.Name()] {
			n.Remove(e.history.Outcomes[job].Assignment.UID)
			room = room.Plus(e.setup.Jobs[job].Request.Host)
		}
		n.SetRoom(room)
		c.Nodes = append(c.Nodes, n)
	}
	return c
}

// soonGone returns the jobs that end because they were evicted, and the members beyond the targets of elastic gangs.
func (e *engine) soonGone() []int {
	var all []int
	for job, leaves := range e.leaving {
		if leaves {
			all = append(all, job)
		}
	}
	for _, g := range e.elastic {
		if members := e.atWork(g); len(members) > g.sizing.target {
			all = append(all, members[g.sizing.target:]...)
		}
	}
	slices.Sort(all)
	return all
}

// look has package resize look at an elastic gang.
func (e *engine) look(g *group) {
	g.sizing.state.Step(resize.Looked{View: g.sizing.view(e.atWork(g))}, clock(e.sample.At))
}

// elasticJob returns an elastic gang as package elastic sees it.
func (e *engine) elasticJob(g *group) elastic.Job {
	s, first, members := g.sizing, &e.setup.Jobs[g.jobs[0]], e.atWork(g)
	view := s.view(members)
	j := elastic.Job{
		Name: g.gang.Name, Priority: first.Request.Priority, Arrived: unix(first.Arrive), Sizes: s.state.Offer(view),
		Worker: gang.Member{Request: first.Request}, Wishes: g.want.Wishes, Losses: g.want.Losses, Curve: s.Curve,
		Cost: s.ResizeTime.Seconds(), Moved: s.moved,
	}
	if len(s.state.Leave(view)) > 0 { // the last change has not happened yet, and can be taken back for nothing
		j.Moved = j.Moved[:max(0, len(j.Moved)-1)]
	}
	for _, job := range members[:min(len(members), s.target)] {
		o := &e.history.Outcomes[job]
		j.Placed = append(j.Placed, o.Assignment)
		if at := unix(o.Started); j.Started == 0 || at < j.Started {
			j.Started = at
		}
	}
	return j
}

// alike returns what jobs that take about as long as one have in common, as the controller sees it.
func alike(r *vgpu.Request, least int) elastic.Alike {
	return elastic.Alike{Namespace: namespaceOf(r), Workload: fmt.Sprintf("%s/%d", namespaceOf(r), r.Workload), Least: least, Slots: int(r.PeakSlots())}
}

// learnLength learns how long an elastic gang took that has ended.
func (e *engine) learnLength(g *group) error {
	if e.lengths == nil {
		return nil
	}
	had := elastic.Had{Served: g.sizing.served}
	if g.sizing.ReportsProgress {
		had.Done = 1
	}
	return e.lengths.Ended(alike(&e.setup.Jobs[g.jobs[0]].Request, g.sizing.Sizes[0]), had, false)
}

// saidDone returns the part of its work that an elastic gang says it has done, 0 where it says nothing.
func (e *engine) saidDone(g *group) float64 {
	total := e.setup.Jobs[g.jobs[0]].Duration
	if !g.sizing.ReportsProgress || total == 0 {
		return 0
	}
	return min(1, g.sizing.work(e.sample.At)/float64(total))
}

// setRemaining notes of jobs how long they still take, where the policy of sizes goes by that. The first jobs are those of elastic gangs.
func (e *engine) setRemaining(jobs []elastic.Job, gangs []*group) error {
	if e.lengths == nil {
		return nil
	}
	for i := range jobs {
		j := &jobs[i]
		had := elastic.Had{}
		if i < len(gangs) {
			had = elastic.Had{Served: gangs[i].sizing.serves(e.sample.At), Done: e.saidDone(gangs[i])}
		}
		var err error
		if j.Remaining, err = e.lengths.Remaining(alike(&j.Worker.Request, j.Sizes[0]), had); err != nil {
			return err
		}
	}
	return nil
}

// waitingJobs returns the pods and gangs that are not elastic and wait for devices, as jobs of package elastic.
func (e *engine) waitingJobs() []elastic.Job {
	jobs := make([]elastic.Job, 0, min(len(e.waiting), maxWaiting))
	for _, job := range e.waiting {
		if len(jobs) == maxWaiting { // the queue is in order of priority and time
			break
		}
		g, members := e.history.groupOf[job], e.unit(job)
		first := slices.IndexFunc(members, func(member int) bool { return len(e.setup.Jobs[member].Request.Containers) > 0 })
		if first < 0 || g != nil && g.sizing != nil && g.sizing.Fleet == nil {
			continue
		}
		r := &e.setup.Jobs[members[first]].Request
		j := elastic.Job{
			Name: "pod " + r.Pod, Priority: r.Priority, Arrived: unix(e.setup.Jobs[job].Arrive), Sizes: []int{1}, Worker: gang.Member{Request: *r},
		}
		if g != nil {
			j.Name, j.Sizes, j.Wishes = "gang "+g.gang.Name, []int{g.want.MinCount}, g.want.Wishes
		}
		jobs = append(jobs, j)
	}
	return jobs
}

// follow gives an elastic gang its target, and lets its members beyond the target leave.
func (e *engine) follow(g *group, t *elastic.Target) error {
	if t.Err != nil {
		return t.Err
	}
	members := e.atWork(g)
	for _, effect := range g.sizing.state.Step(resize.Planned{View: g.sizing.view(members), Target: t}, clock(e.sample.At)) {
		if set, is := effect.(resize.Set); is {
			e.setTarget(g, set.Number, len(members))
		}
	}
	return e.shrink(g, members)
}

// setTarget gives an elastic gang of which so many members run another number.
func (e *engine) setTarget(g *group, number, running int) {
	s := g.sizing
	if number == s.target {
		return
	}
	s.target, s.since, s.short, s.seen = number, e.sample.At, false, -1
	if running > 0 {
		s.moved = append(s.moved, unix(e.sample.At))
		o := &e.history.Gangs[g.number]
		o.Moves = append(o.Moves, e.sample.At)
	}
}

// shrink gives notice to the last members beyond the target of an elastic gang, and evicts those whose notice is over.
func (e *engine) shrink(g *group, members []int) error {
	s := g.sizing
	var evicted []int
	for _, effect := range s.state.Step(resize.Due{View: s.view(members), Number: s.target}, clock(e.sample.At)) {
		if effect, is := effect.(resize.Evict); is {
			job, err := strconv.Atoi(effect.ID)
			if err != nil {
				return fmt.Errorf("evict a member of gang %s: %w", g.gang.Name, err)
			}
			e.evict(job)
			evicted = append(evicted, job)
		}
	}
	if len(evicted) == 0 {
		return nil
	}
	if err := e.resized(g); err != nil {
		return err
	}
	if e.setup.Preemption.Grace > 0 {
		return nil
	}
	for _, job := range evicted {
		if e.leaving[job] {
			e.undue(job)
			if err := e.leave(job); err != nil {
				return err
			}
		}
	}
	return nil
}

// grow places the members within the target of a running elastic gang that have no place, beside the others, by the
// decision of the scheduler.
func (e *engine) grow(g *group) error {
	s, present := g.sizing, e.atWork(g)
	if len(present) == 0 || len(present) >= s.target || g.broken || s.seen == e.releases {
		return nil
	}
	want := &gang.Group{
		Name: g.gang.Name, MinCount: max(g.want.MinCount, len(present)), Wishes: g.want.Wishes, Losses: g.want.Losses,
	}
	for _, job := range present {
		want.Placed = append(want.Placed, e.history.Outcomes[job].Assignment)
	}
	var missing []int
	for rank, job := range g.jobs[:s.target] {
		if e.history.Outcomes[job].State == Held && len(missing) < s.target-len(present) {
			missing = append(missing, job)
			want.Members = append(want.Members, gang.Member{Rank: rank, Request: e.request(job)})
		}
	}
	if len(missing) == 0 {
		return nil // they are about to leave their places
	}
	plan, err := gang.Place(g.on(e.cluster), want, e.gangConfig(true))
	if err != nil {
		return err
	}
	s.seen = e.releases
	s.short = plan.Places == nil || slices.ContainsFunc(plan.Places, func(a vgpu.Assignment) bool { return a.Node == "" })
	if plan.Places == nil {
		return nil
	}
	for i, job := range missing {
		if plan.Places[i].Node == "" {
			continue
		}
		e.since[job] = e.sample.At
		if err := e.start(job, plan.Places[i]); err != nil {
			return fmt.Errorf("grow gang %s: %w", g.gang.Name, err)
		}
	}
	if err := e.tell(g); err != nil {
		return err
	}
	return e.resized(g)
}

// levelsOfAll returns the levels that the wishes of any gang name, each once.
func levelsOfAll(groups []*group) []gang.Level {
	var all []gang.Level
	for _, g := range groups {
		for _, l := range g.levels {
			if !slices.ContainsFunc(all, func(o gang.Level) bool { return o.Key == l.Key }) {
				all = append(all, l)
			}
		}
	}
	slices.SortFunc(all, func(a, b gang.Level) int { return strings.Compare(a.Key, b.Key) })
	return all
}

// lead returns how much more work counts as lost with a member of an elastic gang than with those after it, so that of
// members that lost the same the last ones are evicted first, as in the scheduler. The value is 0 for other pods.
func (e *engine) lead(job int) int64 {
	g := e.history.groupOf[job]
	if g == nil || g.sizing == nil {
		return 0
	}
	return max(0, maxLead-int64(slices.Index(g.jobs, job)))
}

// maxLead is the lead of the first member, in thousandths of a GPU times seconds.
const maxLead = 10_000
