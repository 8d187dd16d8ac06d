package reservation

import (
	"fmt"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// preemptors are the single pods of the histories, and victims those that they have evicted.
var preemptors, victims = []vgpu.UID{"p", "q"}, []vgpu.UID{"v", "w"}

// evictions are some that began, with their victims.
type evictions struct {
	id      Preemptor
	victims []vgpu.UID
	stopped bool
}

// randomOfPod draws an event about a single pod, or about evictions.
func (h *history) randomOfPod(gangName string) Event {
	t := h.rapid
	yes := func(what string) bool { return rapid.Bool().Draw(t, what) }
	pod := refOf(rapid.SampledFrom(preemptors).Draw(t, "pod"))
	switch rapid.IntRange(0, 13).Draw(t, "event of a pod") {
	case 0, 1, 2:
		e := PodRoomMade{PodRef: pod, Room: PodRoom{Place: placeOf(string(pod.UID), "n1/g0").Assignment, Victims: h.refs()}, Until: h.now.Add(time.Minute), Evict: h.drawChosen()}
		if other := preemptors[1-slices.Index(preemptors, pod.UID)]; yes("passes") {
			e.Passed = []vgpu.UID{other}
		}
		return e
	case 3, 4:
		return PodRefused{PodRef: pod, NodeKnown: yes("known"), There: h.drawVictims()}
	case 5:
		return OthersSought{UID: pod.UID, Others: h.refs(), Until: h.now.Add(time.Minute)}
	case 6:
		return PodTicked{UID: pod.UID, NodeStands: rapid.IntRange(0, 5).Draw(t, "stands") > 0, There: h.drawVictims()}
	case 7:
		return PodEnded{UID: pod.UID, Gone: yes("gone")}
	case 8:
		return EvictionsWanted{Ref: h.gangs[gangName].Ref, Evict: h.drawChosen()}
	case 9, 10:
		return h.endEvictions()
	case 11:
		return SecondPassed{}
	}
	return h.rareOfPod(pod)
}

func (h *history) rareOfPod(pod PodRef) Event {
	t := h.rapid
	victim := rapid.SampledFrom(victims).Draw(t, "victim")
	switch rapid.IntRange(0, 6).Draw(t, "rare event of a pod") {
	case 0:
		return VictimGone{UID: victim}
	case 1:
		return VictimWithdrawn{Preemptor: PodPreemptor(pod.UID), UID: victim}
	case 2:
		return PodRetried{PodRef: pod, At: h.now.Add(time.Second), OnBudgets: rapid.Bool().Draw(t, "on budgets")}
	case 3:
		return BudgetsEased{}
	case 4:
		return PlainEvicted{}
	case 5:
		delete(h.held, pod.UID) // it could not be held
		return PodHoldFailed{UID: pod.UID}
	}
	return PodRoomWanted{pod}
}

// endEvictions ends evictions that run, if any.
func (h *history) endEvictions() Event {
	var numbers []Evictions
	for number := range h.running {
		numbers = append(numbers, number)
	}
	if len(numbers) == 0 {
		return SecondPassed{}
	}
	slices.Sort(numbers)
	number := rapid.SampledFrom(numbers).Draw(h.rapid, "evictions")
	run := h.running[number]
	e := EvictionsEnded{Preemptor: run.id, Number: number, Evict: run.victims, Stay: h.drawVictims()}
	if run.id.Pod != "" {
		e.Pod = refOf(run.id.Pod)
	}
	if run.stopped || rapid.Bool().Draw(h.rapid, "fails") {
		e.Why, e.Asked = "no", h.drawVictims()
	}
	return e
}

func (h *history) drawVictims() []vgpu.UID {
	return victims[:rapid.IntRange(0, len(victims)).Draw(h.rapid, "victims")]
}

func (h *history) drawChosen() []Chosen {
	var all []Chosen
	for _, uid := range h.drawVictims() {
		all = append(all, Chosen{UID: uid, Until: h.now.Add(time.Minute)})
	}
	return all
}

func (h *history) refs() []PodRef {
	var all []PodRef
	for _, uid := range h.drawVictims() {
		all = append(all, refOf(uid))
	}
	return all
}

func refOf(uid vgpu.UID) PodRef { return PodRef{UID: uid, Pod: "default/" + string(uid)} }

// checkPodHold: the hold of a pod without room ends, unless the pod is bound, when GPUShare ends it.
func (h *history) checkPodHold(e Event, uid vgpu.UID, isWanted bool) {
	if isWanted {
		return
	}
	if ended, ok := e.(PodEnded); !ok || ended.Gone || ended.UID != uid {
		h.rapid.Fatalf("after %T devices are held for pod %s, and the machine does not know it", e, uid)
	}
	delete(h.held, uid)
}

// checkEvictions: evictions that stop or end have begun; those that begin for a preemptor take the place of those that are over or
// were stopped, unless the preemptor has its room made anew; the bucket never owes more than one plan and its size.
func (h *history) checkEvictions(e Event, effects []Effect) {
	if over, ok := e.(EvictionsEnded); ok {
		delete(h.running, over.Number)
	}
	for _, effect := range effects {
		switch effect := effect.(type) {
		case BeginEvictions:
			if _, ok := h.running[effect.Number]; ok {
				h.rapid.Fatalf("after %T evictions %d begin twice", e, effect.Number)
			}
			h.running[effect.Number] = begun(e)
		case StopEvictions:
			run, ok := h.running[effect.Number]
			if !ok {
				h.rapid.Fatalf("after %T evictions %d stop, which do not run", e, effect.Number)
			}
			run.stopped = true
			h.running[effect.Number] = run
		}
	}
	for who, number := range h.state.evictions {
		if run, ok := h.running[number]; !ok || run.id != who {
			h.rapid.Fatalf("after %T the machine takes evictions %d for those of %v", e, number, who)
		}
	}
}

func begun(e Event) evictions {
	var run evictions
	var chosen []Chosen
	switch e := e.(type) {
	case PodRoomMade:
		run.id, chosen = PodPreemptor(e.UID), e.Evict
	case EvictionsWanted:
		run.id, chosen = GangPreemptor(e.Ref), e.Evict
	}
	for _, c := range chosen {
		run.victims = append(run.victims, c.UID)
	}
	return run
}

// checkPods: a pod with room has a phase and waits for what it had evicted; one without room and without a pause is forgotten; a room
// that evictions make is not kept after these were stopped.
func (h *history) checkPods(e Event) {
	for uid, p := range h.state.pods {
		r := p.room()
		switch {
		case r == nil && p.Failures == 0 && p.Retry.IsZero() && !p.OnBudgets:
			h.rapid.Fatalf("after %T pod %s is remembered for nothing", e, uid)
		case r != nil && r.Place.UID != uid:
			h.rapid.Fatalf("after %T pod %s has the room of %s", e, uid, r.Place.UID)
		case r != nil && r.evictions != 0 && h.running[r.evictions].stopped:
			h.rapid.Fatalf("after %T pod %s has a room whose evictions were stopped", e, uid)
		}
	}
	for _, g := range h.state.gangs {
		if n := g.preempting(); n != nil && n.evictions != 0 && h.running[n.evictions].stopped {
			h.rapid.Fatalf("after %T gang %s has a room whose evictions were stopped", e, g.Ref)
		}
	}
	if owed := h.state.allowance.filling(h.now); owed > 10*time.Minute {
		h.rapid.Fatal(fmt.Sprintf("after %T the bucket fills for %v", e, owed))
	}
}
