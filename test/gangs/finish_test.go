package gangs

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Spans of the end of a history.
const (
	// lastRun is how long pods run then.
	lastRun = 20 * time.Second
	// turn is what one gang or pod may take then: to run, to end, and to be tried again after failures and bans.
	turn = lastRun + grace + 65*time.Second
	// look is the time between two looks.
	look = 5 * time.Second
)

// finish brings a history to its end: faults end, nodes and devices are well, all members are there and run for a short time.
// All that fits must have run within a bounded time, and when all pods are gone nothing may be left of them.
func (w *world) finish() {
	w.quiet()
	w.rest(pause)
	limit := turn * time.Duration(len(w.teams)+2)
	var left []string
	for passed := time.Duration(0); passed < limit && w.violation == ""; passed += look {
		if left = w.stuck(); len(left) == 0 {
			break
		}
		w.rest(look)
	}
	if len(left) > 0 {
		w.fail("starved: after %v without faults and with pods that run for %v these still wait: %s", limit, lastRun, strings.Join(left, ", "))
	}
	if w.violation == "" {
		w.clear()
	}
}

// quiet ends all faults and brings all members.
func (w *world) quiet() {
	w.api.say("> the end: all is well, pods run for %v", lastRun)
	w.api.heal()
	w.api.mu.Lock()
	w.api.running = lastRun
	w.api.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(w.hosts)) {
		w.must(w.node(step{name: name}))
	}
	for _, pod := range w.pods() {
		if pod.Spec.NodeName != "" {
			time.AfterFunc(lastRun, func() { w.api.end(pod.Name, pod.UID, "ended") })
		}
	}
	for _, t := range w.sorted() {
		if t.arrived.Load() == 0 {
			continue // deleted
		}
		if !t.grouped {
			w.must(w.group(t))
		}
		arrive := step{verb: "arrive", name: t.name, options: map[string]string{"count": fmt.Sprint(t.members)}}
		if w.lacks(t) {
			w.intervene(arrive) // the gang may need more places than others were evicted for
		}
		w.must(w.arrive(arrive))
	}
}

// lacks reports whether members of a gang are not there.
func (w *world) lacks(t *team) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count(t).exists < t.members-len(t.done)
}

func (w *world) must(err error) {
	if err != nil {
		w.fail("play the end: %v", err)
	}
}

// stuck names the gangs and single pods that wait although they fit into the cluster by themselves, with as many members there as
// must run.
func (w *world) stuck() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var names []string
	for _, t := range w.sorted() {
		pending, c := w.pending(t), w.count(t)
		if t.elastic != "" && c.bound-c.ending >= t.min {
			continue // its target may hold the others back
		}
		needs := w.mustRun(t, &c)
		if pending > 0 && c.exists >= needs && !t.malformed() && fits(t, needs, w.emptied()) {
			names = append(names, fmt.Sprintf("%s (%d of %d pending, %d must run)", t.name, pending, c.exists, needs))
		}
	}
	return names
}

// clear removes all pods, and checks that nothing is kept for any.
func (w *world) clear() {
	for _, t := range w.sorted() {
		w.must(w.deleteGang(step{name: t.name}))
	}
	w.rest(grace + lateBy)
	if left := w.pods(); len(left) > 0 {
		w.fail("pod %s does not end", left[0].Name)
	}
	for _, uid := range slices.Sorted(maps.Keys(w.uids)) {
		if h, kept := w.sched.share.Held(vgpu.UID(uid)); kept {
			w.fail("room is held on %s for pod %s, which is gone", h.Node, uid)
		}
		if a, kept := w.sched.share.Assigned(&v1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}}); kept {
			w.fail("room is reserved on %s for pod %s, which is gone", a.Node, uid)
		}
	}
	w.probe()
	w.checkForgotten()
}

// probe has one pod scheduled, after which the plugin's ledgers hold that pod and nothing else.
func (w *world) probe() {
	if len(w.hosts) == 0 {
		return
	}
	w.must(w.pod(step{name: "probe", options: map[string]string{"slots": "1", "runs": "1h"}}))
	w.rest(2 * time.Second)
	if pod := w.api.pod("probe"); pod == nil || pod.Spec.NodeName == "" {
		w.fail("a pod of one slot finds no room in an empty cluster")
		return
	}
	w.must(w.pod(step{name: "second-probe", options: map[string]string{"slots": "1", "runs": "1h"}}))
	w.rest(2 * time.Second)
	for _, n := range w.sched.share.Published() {
		if n.Ledger == nil {
			continue
		}
		for _, h := range n.Ledger.Holds() {
			w.fail("the ledger of node %s holds room for pod %s, which is gone", n.Name, h.UID)
		}
		for _, a := range n.Ledger.Assignments() {
			if !strings.Contains(string(a.UID), "probe") {
				w.fail("the ledger of node %s has pod %s, which is gone", n.Name, a.UID)
			}
		}
	}
}
