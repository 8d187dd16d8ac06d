package gangs

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pause is what passes after each step: less than any span that the plugins go by.
const pause = 200 * time.Millisecond

// world is a cluster in the middle of a history.
type world struct {
	ctx   context.Context
	kit   kit
	api   *api
	sched *scheduling
	// control is the last process of the controller, nil for none.
	control *control

	mu    sync.Mutex
	hosts map[string]*host
	teams map[string]*team
	// uids of all pods that there ever were.
	uids map[string]bool
	// claims are the preemptors that others were evicted for, by name, until they run; torn is what evictions did to gangs since
	// the last check, one entry an instant, the oldest first.
	claims map[string]*claim
	torn   map[string][]*tear
	tally  tally
	// steps are those that were played at the instant stepped.
	stepped time.Time
	steps   []step
	// arrivals are the last pods that were bound, by node.
	arrivals map[string]arrival
	// disturbed: requests of the controller may have failed.
	disturbed bool
	// violation is the first claim that did not hold, "" for none.
	violation string
}

// newWorld returns an empty cluster whose scheduler does not run yet.
func newWorld(ctx context.Context, k kit) *world {
	w := &world{
		ctx: ctx, kit: k, api: newAPI(), hosts: map[string]*host{}, teams: map[string]*team{}, uids: map[string]bool{},
		claims: map[string]*claim{}, torn: map[string][]*tear{}, arrivals: map[string]arrival{},
	}
	w.api.changed, w.api.sized = w.podChanged, w.sized
	w.api.lost = func(node string) bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		h := w.hosts[node]
		return h == nil || h.lost
	}
	return w
}

// play plays a history in a bubble of its own and returns the claim that did not hold, "" for none, with what happened.
// It must be called inside of synctest.Test.
func play(ctx context.Context, k kit, history []step) (violation string, log []string) {
	w := newWorld(ctx, k)
	defer func() { tallies.add(&w.tally) }()
	if err := w.start(); err != nil {
		return "start the scheduler: " + err.Error(), nil
	}
	defer func() { w.sched.stop() }()
	if err := w.startController(); err != nil {
		return "start the controller: " + err.Error(), nil
	}
	for _, s := range history {
		w.api.say("> %s", s)
		w.intervene(s)
		if err := verbs[s.verb](w, s); err != nil {
			return fmt.Sprintf("play %s: %v", s, err), w.api.log
		}
		if !s.rush {
			w.rest(pause)
		}
		if w.violation != "" {
			return w.violation, w.api.log
		}
	}
	w.busy()
	w.converge()
	w.busyAndWell()
	if w.violation == "" {
		w.finish()
	}
	return w.violation, w.api.log
}

// rest lets the world settle, a while pass, and settle again, and checks it both times.
func (w *world) rest(d time.Duration) {
	synctest.Wait()
	w.checkSettled()
	time.Sleep(d)
	synctest.Wait()
	w.checkSettled()
	w.api.core.ClearActions()
	w.api.dynamic.ClearActions()
}

// fail notes that a claim does not hold.
func (w *world) fail(format string, args ...any) {
	if w.violation == "" {
		w.violation = fmt.Sprintf(format, args...)
		w.api.say("! %s", w.violation)
	}
}

func (w *world) start() error {
	s, err := startScheduling(w.ctx, w.api, w.kit)
	if err != nil {
		return err
	}
	w.mu.Lock()
	w.sched = s
	w.mu.Unlock()
	time.Sleep(pause)
	synctest.Wait()
	return nil
}

// sorted returns the gangs and single pods by name.
func (w *world) sorted() []*team {
	teams := make([]*team, 0, len(w.teams))
	for _, name := range slices.Sorted(maps.Keys(w.teams)) {
		teams = append(teams, w.teams[name])
	}
	return teams
}

// teamOf returns the gang of a pod, or the single pod itself, nil for none.
func (w *world) teamOf(pod string) *team {
	if t := w.teams[pod]; t != nil {
		return t
	}
	if i := strings.LastIndex(pod, "-"); i > 0 {
		return w.teams[pod[:i]]
	}
	return nil
}

// create makes a member of a gang, unless it is there.
func (w *world) create(t *team, i int) error {
	if w.api.pod(t.member(i)) != nil {
		return nil
	}
	w.mu.Lock()
	if t.done[i] {
		w.mu.Unlock()
		return nil
	}
	pod := t.pod(i)
	w.uids[string(pod.UID)] = true
	if t.health.started {
		t.came = time.Now()
		if c := w.claims[t.name]; c != nil {
			c.excuse(memberCame)
		}
	}
	w.mu.Unlock()
	_, err := w.api.core.CoreV1().Pods(namespace).Create(w.ctx, pod, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) { // made again at the same instant
		return nil
	}
	return err
}

// removePod takes a pod away, as somebody outside of the scheduler does; now leaves it no time to end.
func (w *world) removePod(name string, now bool) {
	if w.api.pod(name) == nil {
		return
	}
	w.outside(name, "removed")
	options := metav1.DeleteOptions{}
	if now {
		options = *metav1.NewDeleteOptions(0)
	}
	_ = w.api.core.CoreV1().Pods(namespace).Delete(w.ctx, name, options)
}

// pods returns all pods.
func (w *world) pods() []*v1.Pod {
	object, err := w.api.core.Tracker().List(podResource, v1.SchemeGroupVersion.WithKind("Pod"), namespace)
	if err != nil {
		return nil
	}
	list := object.(*v1.PodList)
	pods := make([]*v1.Pod, len(list.Items))
	for i := range list.Items {
		pods[i] = &list.Items[i]
	}
	return pods
}
