package gangs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const (
	// remade is how long after its end a pod is made again that was preempted.
	remade = time.Second
	// inTime is how long a preemptor may take to run once its victims, and those that it waits for, are gone: some steps of the plugins.
	inTime = 15 * time.Second
	// mostBatches is how often others may be evicted for a preemptor that nothing came between.
	mostBatches = 1
)

// The rule about evictions is a promise and no law: events race each other and faults, and no order of the plugins' steps is right
// for all of them. The promise is kept in all but one of so many random histories. The rest is printed, and does not fail the test.
const kept = 1000

// The violations of the promise begin with one of these.
const (
	evictedAgain  = "others are evicted again and again"
	evictedInVain = "eviction in vain"
)

// isPromise reports whether a violation is one of the promise: it may happen, but rarely.
func isPromise(violation string) bool {
	return strings.HasPrefix(violation, evictedAgain) || strings.HasPrefix(violation, evictedInVain)
}

// mayBreak is how many of so many random histories may break the promise.
func mayBreak(histories int) int { return max(1, histories/kept) }

// claim is what was evicted for one preemptor that does not run yet.
type claim struct {
	// victims by name, and the pods by name that the preemptor waits for in place of evicting them: they end soon by themselves.
	victims, awaited map[string]types.UID
	// batches counts the instants of evictions, and last is the last of them.
	batches int
	last    time.Time
	// cleared is when the last of them was gone, zero before that.
	cleared time.Time
	// excused says what came between, "" for nothing.
	excused string
}

// memberEnded excuses a preemptor: more of its members lack a place than others were evicted for.
const memberEnded = "a member of it ended"

// memberCame excuses a preemptor that ran before: its rest ran on without that member, and others were evicted for fewer members.
const memberCame = "a member of it came back"

// tear is what an instant of evictions does to a gang.
type tear struct {
	at time.Time
	// before are the members that ran before it, without those that were ending, and those bound at this instant since, of the least
	// that must run. Nobody may have heard yet of the unsure ones: they ended at this instant before it, or their node came or went.
	before, unsure, least, evicted int
	// ended counts the members that ended by themselves at this instant after the first eviction: they were not evicted any more.
	ended int
}

// torn reports whether the evictions leave some members and fewer than must run, however many of the unsure ones were taken to run,
// and however many that ended by themselves were to be evicted.
func (t *tear) torn() bool {
	for more := -t.ended; more <= t.unsure; more++ {
		if left := t.before + more - t.evicted; left <= 0 || left >= t.least {
			return false
		}
	}
	return true
}

// ends are the members of a gang that ended, or began to, at one instant without having been preempted. Nobody may have heard yet,
// and evictions are decided and begin at one instant here.
type ends struct {
	at    time.Time
	count int
}

// endsAt counts the members that ended at an instant.
func (e *ends) endsAt(now time.Time) int {
	if e.at != now {
		return 0
	}
	return e.count
}

// add takes in that a member ended now.
func (e *ends) add(now time.Time) { e.at, e.count = now, e.endsAt(now)+1 }

// tally counts evictions, and the preemptors that ran after them without anything coming between; the pods that drains evicted, and
// the waits that ended in the busy world. In a history with a controller it counts the changes of targets, the members that the
// controller evicted, and the deaths of controllers.
type tally struct{ evictions, served, drained, waits, moves, left, deaths int }

// tallies adds up the tallies of all histories.
var tallies sharedTally

type sharedTally struct {
	mu sync.Mutex
	tally
}

func (s *sharedTally) add(t *tally) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evictions += t.evictions
	s.served += t.served
	s.drained += t.drained
	s.waits += t.waits
	s.moves += t.moves
	s.left += t.left
	s.deaths += t.deaths
}

// preemptorOf returns who a pod was preempted for, as the plugin says it, nil for nobody that is known.
func (w *world) preemptorOf(pod *v1.Pod) *team {
	for _, c := range pod.Status.Conditions {
		if c.Type != v1.DisruptionTarget {
			continue
		}
		for _, what := range []string{"Preempted by pod ", "Preempted by gang "} {
			if rest, ok := strings.CutPrefix(c.Message, what+namespace+"/"); ok {
				name, _, _ := strings.Cut(rest, " ")
				return w.teams[name]
			}
		}
	}
	return nil
}

// evicted takes in that a pod that was preempted begins to end, or is gone. The caller holds the mutex.
func (w *world) evicted(t *team, pod *v1.Pod, what string) {
	if what == "gone" {
		if pod.Spec.NodeName == "" && w.stateOf(pod) == idle {
			w.fail("pod %s was deleted by a preemption although it had no place", pod.Name)
		}
		w.remake(t, pod)
		return
	}
	if what != "ending" {
		return
	}
	w.tally.evictions++
	now := time.Now()
	if w.tearAt(t, now) == nil {
		running, unsure := w.running(t, now)
		w.torn[t.name] = append(w.torn[t.name], &tear{at: now, before: running, unsure: unsure + t.ended.endsAt(now), least: t.leastAt(now)})
	}
	w.tearAt(t, now).evicted++
	p := w.preemptorOf(pod)
	if p == nil {
		return
	}
	if lower, higher := corev1helpers.PodPriority(pod), int32(p.priority); lower > higher || lower == higher && !w.givesWay(t, p) {
		w.fail("pod %s of priority %d was preempted for %s of priority %d", pod.Name, lower, p.name, higher)
	}
	c := w.claims[p.name]
	if c == nil {
		c = &claim{victims: map[string]types.UID{}, awaited: map[string]types.UID{}}
		w.claims[p.name] = c
	}
	if c.last != now {
		c.batches++
		c.last = now
	}
	c.victims[pod.Name], c.cleared = pod.UID, time.Time{}
	w.awaits(p, c)
	w.meanwhile(p, c, pod.Spec.NodeName)
	w.yields(p, c)
	if c.batches > mostBatches && c.excused == "" {
		w.fail(evictedAgain+" for %s, although nothing came between", p.name)
	}
}

// givesWay reports whether a gang may be evicted for another one of its priority: both have started, and lack members that wait.
func (w *world) givesWay(t, p *team) bool {
	lacks := func(t *team) bool {
		c := w.count(t)
		return t.source != "" && t.health.started && c.exists > c.bound-c.ending
	}
	return lacks(t) && lacks(p)
}

// awaits notes the pods that a preemptor may wait for beside its victims. Only the plugin knows which of them are in its plan.
func (w *world) awaits(p *team, c *claim) {
	for _, pod := range w.pods() {
		if pod.Spec.NodeName != "" && corev1helpers.PodPriority(pod) < int32(p.priority) && endsSoon(pod) {
			c.awaited[pod.Name] = pod.UID
		}
	}
}

// anyThere reports whether any of some pods is there still.
func (w *world) anyThere(pods map[string]types.UID) bool {
	for name, uid := range pods {
		if pod := w.api.pod(name); pod != nil && pod.UID == uid {
			return true
		}
	}
	return false
}

// tearAt returns what the evictions of an instant do to a gang so far, nil for nothing.
func (w *world) tearAt(t *team, now time.Time) *tear {
	for _, tear := range w.torn[t.name] {
		if tear.at.Equal(now) {
			return tear
		}
	}
	return nil
}

// meanwhile excuses a preemptor for what happened at the instant of an eviction on a node, which may have come after the decision.
func (w *world) meanwhile(p *team, c *claim, node string) {
	now := time.Now()
	for _, s := range w.steps {
		if w.stepped.Equal(now) {
			w.disturb(p, c, s)
		}
	}
	if last := w.arrivals[node]; last.at.Equal(now) && last.priority > int32(p.priority) {
		c.excuse(last.name + " came before it")
	}
	if w.api.refusedLately() {
		c.excuse("an eviction was refused")
	}
	if p.ended.endsAt(now) > 0 {
		c.excuse(memberEnded)
	}
	if p.came.Equal(now) {
		c.excuse(memberCame)
	}
}

// running counts the members that run and do not end, where nodes are there, and apart from them those on nodes that came or went
// at this instant, and those that end soon by themselves.
func (w *world) running(t *team, now time.Time) (running, unsure int) {
	for i := range t.members {
		pod := w.api.pod(t.member(i))
		if pod == nil || pod.DeletionTimestamp != nil {
			continue
		}
		switch h := w.hosts[pod.Spec.NodeName]; {
		case h == nil:
		case h.turned.Equal(now), !h.lost && endsSoon(pod):
			unsure++
		case !h.lost:
			running++
		}
	}
	return running, unsure
}

// remake has a member made again that was preempted.
func (w *world) remake(t *team, pod *v1.Pod) {
	if t.again || t.elastic != "" {
		w.makeAgain(t, pod)
	}
}

// makeAgain makes a member again whose pod is gone, after a while.
func (w *world) makeAgain(t *team, pod *v1.Pod) {
	for i := range int(t.arrived.Load()) {
		if t.member(i) == pod.Name {
			time.AfterFunc(remade, func() {
				if w.ctx.Err() == nil && i < int(t.arrived.Load()) {
					w.must(w.create(t, i))
				}
			})
		}
	}
}

// arrival is the pod of the highest priority that was bound to a node at one instant.
type arrival struct {
	at       time.Time
	priority int32
	name     string
}

// overtaken excuses the preemptors that a pod of a higher priority is bound before. The caller holds the mutex.
func (w *world) overtaken(pod *v1.Pod) {
	now, priority := time.Now(), corev1helpers.PodPriority(pod)
	if last := w.arrivals[pod.Spec.NodeName]; !last.at.Equal(now) || last.priority < priority {
		w.arrivals[pod.Spec.NodeName] = arrival{at: now, priority: priority, name: pod.Name}
	}
	for name, c := range w.claims {
		if p := w.teams[name]; corev1helpers.PodPriority(pod) > int32(p.priority) {
			c.excuse(pod.Name + " came before it")
		}
	}
}

// yields excuses a preemptor while room is kept for others of a higher priority, which may be its own.
func (w *world) yields(p *team, c *claim) {
	for _, o := range w.teams {
		for i := range o.members {
			if o.priority <= p.priority || c.excused != "" {
				break
			}
			if pod := w.api.pod(o.member(i)); pod != nil && pod.Spec.NodeName == "" && w.stateOf(pod) != idle {
				c.excuse("room is kept for " + pod.Name)
			}
		}
	}
}

func (c *claim) excuse(why string) {
	if c.excused == "" {
		c.excused = why
	}
}

// intervene excuses the preemptors that a step may keep from running, those too that others are evicted for at its instant.
func (w *world) intervene(s step) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if now := time.Now(); !w.stepped.Equal(now) {
		w.stepped, w.steps = now, nil
	}
	w.steps = append(w.steps, s)
	for name, c := range w.claims {
		w.disturb(w.teams[name], c, s)
	}
}

// disturb excuses a preemptor that a step may keep from running.
func (w *world) disturb(p *team, c *claim, s step) {
	switch s.verb {
	case "restart", "lose", "sick", "unready", "drain", "fault":
		c.excuse(s.String())
	case "ungroup", "regroup", "arrive", "recreate", "deletegang", "delete":
		if s.name == p.name || w.teamOf(s.name) == p {
			c.excuse(s.String())
		}
	}
}

// checkEvictions checks what preemptions did. The caller holds the mutex.
func (w *world) checkEvictions() {
	if w.api.refusedLately() {
		for _, c := range w.claims {
			c.excuse("an eviction was refused")
		}
	}
	for _, name := range slices.Sorted(maps.Keys(w.torn)) {
		for _, tear := range w.torn[name] {
			// The rest of a decision comes later where one of its evictions was refused.
			if w.teams[name].source == "" || !tear.torn() || w.api.refusedAt(tear.at) {
				continue
			}
			w.fail("preemption leaves gang %s %d members of %d that must run: %d were evicted", name, tear.before-tear.evicted, tear.least, tear.evicted)
		}
	}
	clear(w.torn)
	for _, name := range slices.Sorted(maps.Keys(w.claims)) {
		w.checkClaim(w.teams[name], w.claims[name])
	}
}

// checkClaim checks that a preemptor gets the room of its victims.
func (w *world) checkClaim(p *team, c *claim) {
	if w.served(p, c) {
		return
	}
	if w.count(p).exists < p.min {
		delete(w.claims, p.name)
		return
	}
	if w.yields(p, c); c.excused != "" {
		return
	}
	w.checkRush(p)
	if w.anyThere(c.victims) || w.anyThere(c.awaited) {
		return
	}
	if c.cleared.IsZero() {
		c.cleared = time.Now()
	}
	if since := time.Since(c.cleared); since > inTime {
		w.fail(evictedInVain+": %s does not run %v after its last victim was gone (%v)", p.name, since, slices.Sorted(maps.Keys(c.victims)))
	}
}

// served ends the claim of a preemptor that runs, and reports whether it does. Its later steps are another story.
func (w *world) served(p *team, c *claim) bool {
	n := w.count(p)
	if n.bound-n.ending < p.min {
		return false
	}
	if c.excused == "" {
		w.tally.served++
	}
	delete(w.claims, p.name)
	return true
}

// checkRush checks that no pods of a lower priority have taken the room that is kept for a preemptor.
func (w *world) checkRush(p *team) {
	ledgers := map[string]*vgpu.Node{}
	for i := range p.members {
		pod := w.api.pod(p.member(i))
		if pod == nil {
			continue
		}
		h, held := w.sched.share.Held(vgpu.UID(pod.UID))
		if !held {
			continue
		}
		if ledgers[h.Node] == nil {
			ledgers[h.Node] = w.staying(h.Node, int32(p.priority))
		}
		if n := ledgers[h.Node]; n != nil && n.Add(h.Assignment) != nil {
			w.fail("pods of a lower priority have the room on node %s that is kept for %s", h.Node, pod.Name)
		}
	}
}

// staying returns the ledger of a node with the pods of a lower priority that do not end, nil where it cannot be told.
func (w *world) staying(name string, priority int32) *vgpu.Node {
	h := w.hosts[name]
	if h == nil || h.lost {
		return nil
	}
	devices, err := kube.Devices(h.gpuNode())
	if err != nil {
		return nil
	}
	n, err := vgpu.NewNode(name, devices)
	if err != nil {
		return nil
	}
	for _, pod := range w.pods() {
		if pod.Spec.NodeName != name || pod.DeletionTimestamp != nil || corev1helpers.PodPriority(pod) >= priority || endsSoon(pod) {
			continue
		}
		if a, err := kube.AssignmentOf(pod); err == nil {
			_ = n.Add(a) // checkLedger says what is wrong
		}
	}
	return n
}

// endsSoon reports whether a pod ends by itself within the grace that an eviction would give it. A preemptor waits for such a pod.
func endsSoon(pod *v1.Pod) bool {
	seconds, start := pod.Spec.ActiveDeadlineSeconds, pod.Status.StartTime
	return seconds != nil && start != nil && time.Until(start.Add(time.Duration(*seconds)*time.Second)) <= v1.DefaultTerminationGracePeriodSeconds*time.Second
}

// String says what was counted.
func (t *tally) String() string {
	return fmt.Sprintf("%d pods were preempted, %d preemptors ran with nothing coming between; %d pods were drained; %d waits ended in the busy world; %d changes of targets, %d members left, %d controllers died",
		t.evictions, t.served, t.drained, t.waits, t.moves, t.left, t.deaths)
}

// enough histories have evictions in them.
const enough = 50

// checkTallies fails where the histories had no evictions, drains or waits: the claims about them would say nothing.
func checkTallies(t *testing.T, k kit) {
	t.Helper()
	tallies.mu.Lock()
	defer tallies.mu.Unlock()
	t.Log(tallies.String())
	if *histories >= enough && !t.Failed() && (tallies.evictions == 0 || tallies.served == 0 || tallies.drained == 0 || tallies.waits == 0) {
		t.Errorf("%d histories: %v", *histories, &tallies.tally)
	}
	if k.elastic && *histories >= enough && !t.Failed() && (tallies.moves == 0 || tallies.left == 0 || tallies.deaths == 0) {
		t.Errorf("%d histories with a controller: %v", *histories, &tallies.tally)
	}
}
