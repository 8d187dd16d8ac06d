package reservation

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// podEvent reads the commands about single pods and about evictions.
func podEvent(a *args, cmd string, uid vgpu.UID) Event {
	pod := PodRef{UID: uid, Pod: "default/" + string(uid)}
	switch cmd {
	case "pod-refused":
		return PodRefused{PodRef: pod, NodeKnown: !a.has("lost"), There: a.uids("there")}
	case "others":
		e := OthersSought{UID: uid, Others: a.pods("are"), Why: "it lacks something"}
		if len(e.Others) > 0 {
			e.Until = a.w.now.Add(30 * time.Second)
		}
		return e
	case "pod-wants":
		return PodRoomWanted{pod}
	case "pod-room":
		return podRoomMade(a, pod)
	case "pod-hold-failed":
		return PodHoldFailed{UID: uid, Why: "the node has no devices"}
	case "pod-retried":
		e := PodRetried{PodRef: pod, OnBudgets: a.has("on-budgets")}
		if a.has("in") {
			e.At = a.w.now.Add(a.time("in"))
		}
		return e
	case "pod-ended":
		return PodEnded{UID: uid, Gone: a.has("gone")}
	case "pod-tick":
		return PodTicked{UID: uid, NodeStands: !a.has("lost"), There: a.uids("there")}
	}
	return evictionsEvent(a, cmd, uid)
}

// podRoomMade reads "pod-room high at=n1/g0 priority=5 victims=a,b evict=a,b passed=low".
func podRoomMade(a *args, pod PodRef) Event {
	at := placeOf(string(pod.UID), a.text("at"))
	return PodRoomMade{
		PodRef: pod, Room: PodRoom{Place: at.Assignment, Priority: int32(a.count("priority")), Victims: a.pods("victims")},
		Until: a.w.now.Add(time.Minute), Evict: a.chosen("evict"), Passed: a.uids("passed"),
	}
}

func evictionsEvent(a *args, cmd string, uid vgpu.UID) Event {
	switch cmd {
	case "evict-for": // a gang
		return EvictionsWanted{Ref: Ref{Source: "label", Namespace: "default", Name: string(uid)}, Priority: int32(a.count("priority")), Evict: a.chosen("evict")}
	case "evicted", "evictions-failed":
		return evictionsEnded(a, cmd, string(uid))
	case "victim-withdrawn":
		return VictimWithdrawn{Preemptor: a.preemptor(a.text("for")), UID: uid}
	case "victim-gone":
		return VictimGone{UID: uid}
	case "plain-evicted":
		return PlainEvicted{}
	case "budgets-ease":
		return BudgetsEased{}
	case "second":
		return SecondPassed{}
	}
	return nil
}

// evictionsEnded reads "evictions-failed high asked=a stay=b" and "evicted high". With "first" it is about the first evictions for the
// preemptor, not about the last.
func evictionsEnded(a *args, cmd, name string) Event {
	e := EvictionsEnded{Preemptor: a.preemptor(name), Number: a.w.begun[name].Number, Asked: a.uids("asked"), Stay: a.uids("stay")}
	if e.Preemptor.Pod != "" {
		e.Pod = PodRef{UID: e.Preemptor.Pod, Pod: "default/" + name}
	}
	if a.has("first") {
		e.Number = 1
	}
	for _, c := range a.w.evict[e.Number] {
		e.Evict = append(e.Evict, c.UID)
	}
	if cmd == "evictions-failed" {
		e.Why = "the API server refuses"
	}
	return e
}

// preemptor returns a gang that was declared, else a pod.
func (a *args) preemptor(name string) Preemptor {
	if f := a.w.gangs[name]; f != nil {
		return GangPreemptor(f.Ref)
	}
	return PodPreemptor(vgpu.UID(name))
}

func (a *args) pods(key string) []PodRef {
	var all []PodRef
	for _, name := range a.list(key) {
		all = append(all, PodRef{UID: vgpu.UID(name), Pod: "default/" + name})
	}
	return all
}

// chosen returns pods that are gone a minute from now at the latest. Each counts against a budget with its name.
func (a *args) chosen(key string) []Chosen {
	var all []Chosen
	for _, name := range a.list(key) {
		all = append(all, Chosen{UID: vgpu.UID(name), Until: a.w.now.Add(time.Minute), Budgets: []Stamp{{Name: "budget-of-" + name, Version: "1"}}})
	}
	return all
}

// begins notes evictions that begin.
func (w *world) begins(e Event, b BeginEvictions) {
	switch e := e.(type) {
	case PodRoomMade:
		w.begun[string(e.UID)], w.evict[b.Number] = b, e.Evict
	case EvictionsWanted:
		w.begun[e.Ref.Name], w.evict[b.Number] = b, e.Evict
	}
}

// showPod tells what is remembered of a pod.
func (w *world) showPod(uid vgpu.UID) string {
	p := w.state.pods[uid]
	if p == nil {
		return "nothing is remembered"
	}
	var b strings.Builder
	if r := p.room(); r != nil {
		fmt.Fprintf(&b, "room: %s, victims %v, withdrawn %v\n", r.Place.Node, names(r.Victims), sorted(r.withdrawn))
	}
	switch phase := p.phase.(type) {
	case *leavingRoom:
		fmt.Fprintf(&b, "victims leave %s\n", w.in(phase.until))
	case *clearedRoom:
		fmt.Fprintf(&b, "cleared %s\n", w.in(phase.since))
	}
	if p.Failures > 0 {
		fmt.Fprintf(&b, "preemptions that came to nothing: %d, next %s: %s\n", p.Failures, w.in(p.Until), p.Why)
	}
	if !p.Retry.IsZero() || p.OnBudgets {
		fmt.Fprintf(&b, "tried again %s, on budgets %v\n", w.in(p.Retry), p.OnBudgets)
	}
	return b.String()
}

func names(refs []PodRef) []string {
	all := []string{}
	for _, r := range refs {
		all = append(all, string(r.UID))
	}
	return all
}

// showVictims tells who was chosen, and what budgets are charged with.
func (w *world) showVictims() string {
	var b strings.Builder
	victims := w.state.Victims(w.now)
	for _, uid := range append(sorted(w.state.chosen), "nobody") {
		if _, ok := victims[uid]; ok != w.state.IsChosen(uid, w.now) {
			w.t.Fatalf("%s is chosen %v, and a victim %v", uid, !ok, ok)
		}
	}
	for _, uid := range sorted(victims) {
		fmt.Fprintf(&b, "%s is gone %s\n", uid, w.in(victims[uid]))
	}
	var charged []string
	for stamp, count := range w.state.Charges() {
		charged = append(charged, fmt.Sprintf("%s=%d", stamp.Name, count))
	}
	slices.Sort(charged)
	fmt.Fprintf(&b, "charged: %v\n", charged)
	return b.String()
}

func describePod(effect Effect) string {
	switch e := effect.(type) {
	case StillLeaving:
		return "wait: " + e.Why
	case CameToNothing:
		return "came to nothing: " + e.Why
	case SeekOthers:
		return "seek others on " + e.Node
	case Defer:
		return fmt.Sprintf("defer for %v", e.Wait)
	case BeginEvictions:
		return fmt.Sprintf("begin evictions %d", e.Number)
	case StopEvictions:
		return fmt.Sprintf("stop evictions %d", e.Number)
	case ActivatePods:
		return fmt.Sprintf("activate pods %v", names(e.Pods))
	}
	return fmt.Sprintf("%T", effect)
}
