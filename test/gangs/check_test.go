package gangs

import (
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// slack is what a half-bound gang may outlive its deadline by: the time that its pods take to end, and some steps of the
// plugin.
const slack = grace + 10*time.Second

// heldOver is how long room may still be kept for fewer members than must run after members ended or were removed: some steps of the plugin.
// Room that was kept in place of one that ended is too little when the others end. A member that is sent back in the moment between
// its Permit and the framework's knowing that it waits goes on waiting until the plugin's next step.
const heldOver = 3 * time.Second

// health is what is known of a gang's life. It ends when none of its members is bound or about to be.
type health struct {
	// started: as many members as must run were bound at once.
	started bool
	// half is since when fewer are bound, of a gang that has not started; zero for never.
	half time.Time
	// parts is since when room is kept for fewer, of a gang that has not started; zero for never.
	parts time.Time
	// excused says why that may be so until the deadline, exempt why for longer; "" for no reason.
	excused, exempt string
}

// excuse notes why a gang may be bound in part until the deadline.
func (h *health) excuse(why string) {
	if h.excused == "" {
		h.excused = why
	}
}

// count is how many members of a gang there are in each state.
type count struct {
	// bound: on a node. ending: of those, how many are being deleted.
	bound, ending int
	// binding: let go, and not bound. waiting: reserved, and not let go. held: none of these, and room is kept.
	binding, waiting, held int
	// exists: in the API, and not being deleted.
	exists int
}

// count looks at the members of a gang: in the API, in the scheduler's cache and in the plugin GPUShare.
func (w *world) count(t *team) count {
	c := count{}
	for i := range t.members {
		pod := w.api.pod(t.member(i))
		if pod == nil {
			continue
		}
		if pod.DeletionTimestamp == nil {
			c.exists++
		}
		switch state := w.stateOf(pod); {
		case pod.Spec.NodeName != "":
			c.bound++
			if pod.DeletionTimestamp != nil {
				c.ending++
			}
		case state == waiting:
			c.waiting++
		case state == binding:
			c.binding++
		case state == held:
			c.held++
		}
	}
	return c
}

// States of a pod that is not bound.
const (
	idle = iota
	waiting
	binding
	held
)

func (w *world) stateOf(pod *v1.Pod) int {
	s := w.sched
	if assumed, err := s.scheduler.Cache.IsAssumedPod(pod); err == nil && assumed {
		if s.scheduler.Profiles[v1.DefaultSchedulerName].GetWaitingPod(pod.UID) != nil {
			return waiting
		}
		return binding
	}
	if _, kept := s.share.Held(vgpu.UID(pod.UID)); kept {
		return held
	}
	return idle
}

// podChanged checks what must hold at every instant, when the API server has changed a pod. It runs under its lock.
func (w *world) podChanged(pod *v1.Pod, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.teamOf(pod.Name)
	if t == nil {
		return
	}
	w.noticeEnd(t, pod, what)
	if preempted(pod) {
		t.health.exempt = "a member was preempted"
		w.evicted(t, pod, what)
	}
	w.jobGoesOn(t, pod, what)
	w.ownerGoesOn(t, pod, what)
	if what == "bound" {
		if tear := w.tearAt(t, time.Now()); tear != nil {
			tear.before++
		}
		w.overtaken(pod)
		w.checkLedger(pod.Spec.NodeName)
		w.checkTopology(t)
		w.checkMalformed(t)
		w.checkHeld(t, pod)
	}
	w.notice()
	if c := w.claims[t.name]; c != nil && what == "bound" {
		w.served(t, c)
	}
	w.judge(t, false)
}

// noticeEnd takes in that a member that ran begins to end, or ends at once, without having been preempted.
func (w *world) noticeEnd(t *team, pod *v1.Pod, what string) {
	begins := what == "ending" || what == "gone" && pod.DeletionTimestamp == nil
	h := w.hosts[pod.Spec.NodeName]
	if !begins || h == nil || h.lost || preempted(pod) {
		return
	}
	t.ended.add(time.Now())
	if tear := w.tearAt(t, time.Now()); tear != nil {
		tear.ended++
	}
	if c := w.claims[t.name]; c != nil {
		c.excuse(memberEnded)
	}
}

// checkMalformed checks that no member is bound of a gang that nobody can place, while the members that make it so exist, and
// did so before.
func (w *world) checkMalformed(t *team) {
	if c := w.count(t); c.bound == 1 && t.spoiled && w.isSpoiled(t, c) {
		w.fail("gang %s is malformed, and a member is bound", t.name)
	}
}

func (w *world) isSpoiled(t *team, c count) bool {
	first := w.api.pod(t.member(0))
	return t.malformed() && c.exists >= max(2, t.needs(c)) && first != nil && first.DeletionTimestamp == nil
}

func preempted(pod *v1.Pod) bool {
	for _, c := range pod.Status.Conditions {
		if c.Type == v1.DisruptionTarget && c.Reason == v1.PodReasonPreemptionByScheduler {
			return true
		}
	}
	return false
}

// notice excuses the gangs that faults struck.
func (w *world) notice() {
	for pod := range w.api.wasHit() {
		if t := w.teamOf(pod); t != nil {
			t.health.excuse("a bind failed")
			if c := w.claims[t.name]; c != nil {
				c.excuse("a bind failed")
			}
		}
	}
}

// outside notes that somebody else than the scheduler removes a pod: a gang that is not whole yet cannot become so. The others
// may be let go before the scheduler hears of it.
func (w *world) outside(pod, what string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if t := w.teamOf(pod); t != nil && !t.health.started {
		t.shrunk = time.Now()
		switch c := w.count(t); {
		case c.bound > 0 || c.binding > 0:
			t.health.exempt = pod + " " + what
		default:
			t.health.excuse(pod + " " + what)
		}
	}
}

// checkSettled checks what must hold when nothing more happens without time passing.
func (w *world) checkSettled() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.notice()
	if w.api.spins != "" {
		w.fail("the scheduler spins: it tries %s again and again without time passing", w.api.spins)
	}
	w.checkEvictions()
	for _, t := range w.sorted() {
		w.judge(t, true)
		t.spoiled = w.isSpoiled(t, w.count(t))
	}
}

// judge checks that a gang is whole, absent, or excused. Settled says that nothing more happens now.
func (w *world) judge(t *team, settled bool) {
	if t.source == "" {
		return
	}
	c, h := w.count(t), &t.health
	switch {
	case c.bound == 0 && c.binding == 0 && settled:
		*h = health{}
	case c.bound >= t.needs(c):
		h.started = true
	}
	if h.started {
		return
	}
	if settled {
		w.judgeHalves(t, c)
	}
	if c.bound == 0 {
		h.half = time.Time{}
		return
	}
	if h.half.IsZero() {
		h.half = time.Now()
	}
	w.judgeTorn(t, c, settled)
}

// judgeTorn checks a gang of which fewer members are bound than must run.
func (w *world) judgeTorn(t *team, c count, settled bool) {
	h := &t.health
	since := time.Since(h.half)
	switch {
	case h.exempt != "":
	case since > placementDeadline+slack:
		w.fail("gang %s is bound in part for %v, longer than its deadline (%s): %v", t.name, since, h.excused, c)
	case h.excused != "":
	case c.bound+c.binding+c.waiting < t.needs(c):
		w.fail("gang %s is torn: %v", t.name, c)
	case settled && c.bound+c.binding < t.needs(c):
		w.fail("gang %s is torn, its other members were not let go: %v", t.name, c)
	}
}

// judgeHalves checks that a gang that has not started keeps room for as many members as must run, or for none: two gangs that
// each keep a half would wait for each other. Members without vGPUs need no room kept.
func (w *world) judgeHalves(t *team, c count) {
	placed := c.bound + c.binding + c.waiting + c.held
	if t.launcher && placed > 0 {
		placed++
	}
	h := &t.health
	if placed == 0 || placed >= t.needs(c) {
		h.parts = time.Time{}
		return
	}
	if h.parts.IsZero() {
		h.parts = time.Now()
	}
	smaller := c.exists < t.needs(c) || time.Since(t.ended.at) < heldOver || time.Since(t.shrunk) < heldOver
	if smaller && time.Since(h.parts) < heldOver {
		return
	}
	if h.excused == "" && h.exempt == "" {
		w.fail("gang %s keeps room for a half: %v", t.name, c)
	}
}

// String says how many members are in each state.
func (c count) String() string {
	return fmt.Sprintf("%d bound (%d ending), %d binding, %d waiting, %d held, %d exist", c.bound, c.ending, c.binding, c.waiting, c.held, c.exists)
}

// checkLedger adds up what the pods of a node were given.
func (w *world) checkLedger(name string) {
	h := w.hosts[name]
	if h == nil {
		return
	}
	devices, err := kube.Devices(h.gpuNode())
	if err != nil {
		w.fail("read GPUNode %s: %v", name, err)
		return
	}
	ledger, err := vgpu.NewNode(name, devices)
	if err != nil {
		w.fail("read GPUNode %s: %v", name, err)
		return
	}
	for _, pod := range w.pods() {
		if pod.Spec.NodeName != name || !kube.WantsVGPU(pod) {
			continue
		}
		a, err := kube.AssignmentOf(pod)
		if err == nil {
			err = ledger.Add(a)
		}
		if err != nil {
			w.fail("the assignments of node %s do not add up: %v", name, err)
		}
	}
}

// checkTopology checks that the bound members of a gang that are not ending are in one domain of each required level.
func (w *world) checkTopology(t *team) {
	for _, level := range t.required {
		domains := map[string]bool{}
		for i := range t.members {
			pod := w.api.pod(t.member(i))
			if pod == nil || pod.Spec.NodeName == "" || pod.DeletionTimestamp != nil || level == v1alpha1.TopologyNVLink && !kube.WantsVGPU(pod) {
				continue
			}
			// Nobody knew where it was, and its siblings may have gone elsewhere.
			if h := w.hosts[pod.Spec.NodeName]; h != nil && h.wasLost || w.api.isLate(pod.UID) {
				continue
			}
			domains[w.domain(level, pod)] = true
		}
		if len(domains) > 1 {
			w.fail("gang %s is in %d domains of %s: %v", t.name, len(domains), level, domains)
		}
	}
}

// domain returns the domain of a level that a bound pod is in.
func (w *world) domain(level string, pod *v1.Pod) string {
	h := w.hosts[pod.Spec.NodeName]
	if h == nil {
		return ""
	}
	switch level {
	case rackLabel:
		return h.rack
	case v1.LabelHostname:
		return h.name
	}
	a, err := kube.AssignmentOf(pod)
	if err != nil {
		return h.name
	}
	islands := map[string]bool{}
	for i := range h.gpus {
		for _, c := range a.Containers {
			for _, id := range c.Devices {
				if string(id) == h.device(i) {
					islands[fmt.Sprintf("%s/%d", h.name, i/max(1, h.island))] = true
				}
			}
		}
	}
	names := []string{}
	for name := range islands {
		names = append(names, name)
	}
	return strings.Join(names, "+")
}
