package sim

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/tandem-gpu/tandem/pkg/resize"
)

// sizing is the state of an elastic gang in a run.
type sizing struct {
	*Elastic
	// target is the number of members that may run, since a time. The gang starts with its least number.
	target int
	since  time.Duration
	// moved are the Unix times of the changes of the target while the gang ran.
	moved []int64
	// short says that the last search found no place for a member within the target, and seen how often room had come
	// free then; −1 where there was none for this target.
	short bool
	seen  int
	// done is the work that counts, in nanoseconds of the Duration, and served the time in seconds that members have run,
	// added up: both up to a time.
	done, served float64
	at           time.Duration
	// workers are the members that run since then, speed is the work that they do in a time, none before works.
	workers int
	speed   float64
	works   time.Duration
	// state is what has become of the target, since the gang arrived.
	state *resize.State
}

func newSizing(e *Elastic) *sizing {
	return &sizing{Elastic: e, target: e.Sizes[0], seen: -1}
}

// relative returns the speed of so many members on so many nodes.
func (s *sizing) relative(workers, hosts int) float64 {
	switch {
	case workers == 0:
		return 0
	case s.Fleet != nil:
		return 1
	}
	return s.Curve.Rate(workers, hosts) / s.Curve.Rate(s.Sizes[0], 1)
}

// work returns the work that is done at a time.
func (s *sizing) work(now time.Duration) float64 {
	return s.done + s.speed*float64(max(0, now-max(s.at, s.works)))
}

// serves returns the time in seconds that members have run until a time, added up.
func (s *sizing) serves(now time.Duration) float64 {
	return s.served + float64(s.workers)*(now-s.at).Seconds()
}

// saves returns the part of some work that an eviction does not undo. Speeds round, so that a nanosecond may be missing.
func (j *Job) saves(work float64) float64 {
	if j.Checkpoint == 0 {
		return 0
	}
	every := float64(j.Checkpoint)
	return min(work, math.Floor((work+1)/every)*every)
}

// undone returns the time for which the gang of a job would work again after an eviction now.
func (s *sizing) undone(j *Job, now time.Duration) time.Duration {
	work := s.work(now)
	if s.speed == 0 {
		return 0
	}
	return time.Duration((work - j.saves(work)) / s.speed)
}

// sizingOf returns the state of the elastic gang of a job, nil where its gang is not elastic.
func (e *engine) sizingOf(job int) *sizing {
	if g := e.history.groupOf[job]; g != nil {
		return g.sizing
	}
	return nil
}

// atWork returns the members of a gang that run and do not leave, by rank.
func (e *engine) atWork(g *group) []int {
	var members []int
	for _, job := range g.jobs {
		if e.history.Outcomes[job].State == Running && !e.leaving[job] {
			members = append(members, job)
		}
	}
	return members
}

// resized notes that other members of an elastic gang run than before. The gang pauses unless it starts, and its end is another.
// If the gang was evicted as a whole, the work since the last checkpoint is undone.
func (e *engine) resized(g *group) error {
	s, now, members := g.sizing, e.sample.At, e.atWork(g)
	nodes := make([]int, 0, len(members))
	for _, job := range members {
		nodes = append(nodes, e.places[e.cluster.Node(e.history.Outcomes[job].Assignment.Node)])
	}
	s.done, s.served = s.work(now), s.serves(now)
	switch {
	case len(members) == 0:
		s.done, s.works = e.setup.Jobs[g.jobs[0]].saves(s.done), now
	case s.workers == 0:
		s.works = now
	default:
		s.works = max(s.works, e.after(s.ResizeTime))
	}
	s.at, s.workers, s.speed = now, len(members), s.relative(len(members), countDistinct(nodes))
	e.noteSize(g)
	if len(members) == 0 {
		return nil
	}
	e.history.Gangs[g.number].Spread = spread(e.history.levels, nodes)
	return e.pace(g, members)
}

func countDistinct(nodes []int) int {
	return len(slices.Compact(slices.Sorted(slices.Values(nodes))))
}

// pace notes when an elastic gang ends at its present speed.
func (e *engine) pace(g *group, members []int) error {
	s, total := g.sizing, e.setup.Jobs[g.jobs[0]].Duration
	if total == 0 {
		return nil
	}
	rest := max(0, math.Round((float64(total)-s.done)/s.speed))
	if rest >= float64(never-s.works) {
		return fmt.Errorf("gang %s would end after the latest time, %v", g.gang.Name, never)
	}
	end := s.works + time.Duration(rest)
	for _, job := range members {
		e.undue(job)
		e.history.Outcomes[job].Ended = end
		e.due(departure{end, job})
	}
	e.history.Gangs[g.number].Ended = end
	return nil
}

// noteSize adds the present size of an elastic gang to its history. An eviction stays there although the gang starts again
// at the same time, since it undoes work.
func (e *engine) noteSize(g *group) {
	o, s := &e.history.Gangs[g.number], g.sizing
	if last := len(o.Sizes) - 1; last >= 0 && o.Sizes[last].At == e.sample.At && (last == 0 || o.Sizes[last].Workers > 0) {
		o.Sizes = o.Sizes[:last]
	}
	o.Sizes = append(o.Sizes, Size{At: e.sample.At, Workers: s.workers, Speed: s.speed, Works: s.works})
}

// joinElastic notes that an elastic gang arrives: its members beyond the least number are held back.
func (e *engine) joinElastic(g *group) {
	for _, job := range g.jobs[len(g.askers()):] {
		e.history.Outcomes[job].State = Held
	}
	e.elastic = append(e.elastic, g)
	slices.SortStableFunc(e.elastic, func(a, b *group) int { return cmp.Compare(e.priority(b), e.priority(a)) })
	g.sizing.at = e.sample.At
	g.sizing.state = resize.New(resize.Config{Notice: e.setup.Elastic.Notice, Within: e.setup.Elastic.AdmitWithin}, clock(e.sample.At))
	e.noteSize(g)
}

// leaveElastic notes that an elastic gang has ended, or is dropped.
func (e *engine) leaveElastic(g *group) {
	s := g.sizing
	s.done, s.served, s.at, s.workers, s.speed, s.works = s.work(e.sample.At), s.serves(e.sample.At), e.sample.At, 0, 0, e.sample.At
	e.noteSize(g)
	e.elastic = slices.DeleteFunc(e.elastic, func(other *group) bool { return other == g })
}

// restart makes a gang that was evicted as a whole wait with its least number of members.
func (s *sizing) restart(now time.Duration) {
	s.target, s.since, s.short, s.seen = s.Sizes[0], now, false, -1
	s.state.Step(resize.Due{View: s.view(nil), Number: s.target}, clock(now)) // members that had a notice are gone
}

// view returns what package resize sees of a gang of which some members run.
func (s *sizing) view(members []int) *resize.View {
	v := &resize.View{Sizes: s.Sizes, Possible: s.Sizes, Number: s.target, Since: clock(s.since), Running: len(members), Members: make([]resize.Member, len(members))}
	for i, job := range members {
		v.Members[i] = resize.Member{ID: strconv.Itoa(job), Within: i + 1, Running: true}
	}
	if s.short {
		v.Lacks = "no node has room for further members"
	}
	return v
}
