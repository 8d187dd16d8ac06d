package gangs

import (
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// verbs of histories. The object that one names may be gone: then the verb does nothing, so that a history stays one
// without some of its steps.
var verbs map[string]func(*world, step) error

func init() { //nolint:gochecknoinits // parse reads the table, and the table's functions play what was parsed
	verbs = map[string]func(*world, step) error{
		// node NAME gpus=4 island=2 rack=r1 cpus=64: the node is there, as new or again.
		"node": (*world).node,
		// lose NODE: it is gone with its pods, which are collected after a while.
		"lose": (*world).lose,
		// sick NODE device=1, well NODE device=1
		"sick": func(w *world, s step) error { return w.ail(s, true) },
		"well": func(w *world, s step) error { return w.ail(s, false) },
		// unready NODE, ready NODE: the agent on it.
		"unready": func(w *world, s step) error { return w.attend(s, true) },
		"ready":   func(w *world, s step) error { return w.attend(s, false) },
		// drain NODE every=1s: it is cordoned, and its pods are evicted one by one, as kubectl drain does. uncordon NODE
		"drain":    (*world).drain,
		"uncordon": (*world).uncordon,
		// gang NAME source=label members=4 min=3 slots=5 cpus=0 priority=0 required=rack preferred=hostname runs=30s ends=30s
		// later=1 launcher=1 uneven=1 again=1 job=1 elastic=2-4 agile=1: all members but the later ones arrive.
		"gang": (*world).gang,
		// pod NAME slots=5 cpus=0 priority=0 runs=30s ends=30s again=1
		"pod": (*world).pod,
		// arrive GANG count=1: members that were to come later.
		"arrive": (*world).arrive,
		// recreate GANG: members that are gone come again, as a Job has them.
		"recreate": (*world).recreate,
		// succeed GANG count=1: members of a Job are done, once the gang has started.
		"succeed": (*world).succeed,
		// fail GANG: all members that exist fail at once.
		"fail": (*world).failAll,
		// delete POD, deletegang GANG, with its PodGroup.
		"delete":     func(w *world, s step) error { w.removePod(s.name, false); return nil },
		"deletegang": (*world).deleteGang,
		// ungroup GANG, regroup GANG min=2: its PodGroup is gone, or there with another number.
		"ungroup": (*world).ungroup,
		"regroup": (*world).regroup,
		// fault GANG|POD what=bind kind=refuse count=1, heal
		"fault": (*world).fault,
		"heal":  func(w *world, _ step) error { w.api.heal(); return nil },
		// restart: the scheduler, which forgets all.
		"restart": func(w *world, _ step) error { return w.restart() },
		// crash after=3 answered=1 for=20s: the controller dies with its third request to write from now on, which is carried out, and is
		// back after a while; at once without a number.
		"crash": (*world).crash,
		// edit GANG workers=4: a user writes another number into its ElasticTarget; without a number he removes it.
		"edit": (*world).edit,
		// clock for=10s
		"clock": func(w *world, s step) error { w.rest(s.span("for")); return nil },
	}
}

func (w *world) node(s step) error {
	w.mu.Lock()
	h := w.hosts[s.name]
	known := h != nil && !h.lost
	if h == nil {
		h = &host{name: s.name, gpus: s.number("gpus", 1), island: s.number("island", 0), rack: s.options["rack"], cpus: s.number("cpus", 64)}
		w.hosts[s.name] = h
	}
	if !known {
		h.turned = time.Now()
	}
	cordoned := known && h.cordoned
	h.lost, h.unready, h.cordoned, h.sick = false, false, false, map[int]bool{}
	w.mu.Unlock()
	if cordoned {
		if err := w.cordon(h, false); err != nil {
			return err
		}
	}
	if known {
		return w.tell(h)
	}
	if _, err := w.api.core.CoreV1().Nodes().Create(w.ctx, h.node(), metav1.CreateOptions{}); err != nil {
		return err
	}
	u := unstructuredOf(h.gpuNode(), v1alpha1.GroupVersion.WithKind("GPUNode"))
	_, err := w.api.dynamic.Resource(v1alpha1.GPUNodes).Create(w.ctx, u, metav1.CreateOptions{})
	return err
}

// tell publishes the GPUNode.
func (w *world) tell(h *host) error {
	u := unstructuredOf(h.gpuNode(), v1alpha1.GroupVersion.WithKind("GPUNode"))
	_, err := w.api.dynamic.Resource(v1alpha1.GPUNodes).Update(w.ctx, u, metav1.UpdateOptions{})
	return err
}

func (w *world) lose(s step) error {
	w.mu.Lock()
	h := w.hosts[s.name]
	gone := h == nil || h.lost
	if !gone {
		h.lost, h.wasLost, h.turned = true, true, time.Now()
	}
	w.mu.Unlock()
	if gone {
		return nil
	}
	for _, pod := range w.pods() {
		if pod.Spec.NodeName == s.name {
			time.AfterFunc(collectedAfter, func() { w.api.end(pod.Name, pod.UID, "collected") })
		}
	}
	if err := w.api.core.CoreV1().Nodes().Delete(w.ctx, s.name, metav1.DeleteOptions{}); err != nil {
		return err
	}
	return w.api.dynamic.Resource(v1alpha1.GPUNodes).Delete(w.ctx, s.name, metav1.DeleteOptions{})
}

func (w *world) ail(s step, sick bool) error {
	h := w.hosts[s.name]
	if h == nil || h.lost {
		return nil
	}
	h.sick[s.number("device", 0)] = sick
	return w.tell(h)
}

func (w *world) attend(s step, unready bool) error {
	h := w.hosts[s.name]
	if h == nil || h.lost {
		return nil
	}
	h.unready = unready
	return w.tell(h)
}

func (w *world) gang(s step) error {
	if w.teams[s.name] != nil {
		return nil
	}
	t := &team{
		name: s.name, source: s.options["source"], members: s.number("members", 1), slots: s.number("slots", 0), cpus: s.number("cpus", 0),
		priority: s.number("priority", 0), required: levels(s.list("required")), preferred: levels(s.list("preferred")),
		runs: s.span("runs"), ends: s.span("ends"), launcher: s.number("launcher", 0) > 0, uneven: s.number("uneven", 0) > 0, again: s.number("again", 0) > 0,
		elastic: s.options["elastic"], agile: s.number("agile", 0) > 0, ofJob: s.number("job", 0) > 0 && s.options["elastic"] == "", created: time.Now(),
	}
	t.min = s.number("min", t.members)
	w.mu.Lock()
	w.teams[s.name] = t
	w.mu.Unlock()
	if err := w.employ(t); err != nil {
		return err
	}
	if err := w.group(t); err != nil {
		return err
	}
	t.arrived.Store(int32(t.members - s.number("later", 0)))
	return w.recreate(s)
}

func (w *world) pod(s step) error {
	if s.options == nil {
		s.options = map[string]string{}
	}
	s.options["members"], s.options["min"] = "1", "1"
	return w.gang(s)
}

func (w *world) arrive(s step) error {
	if t := w.teams[s.name]; t != nil {
		t.arrived.Store(min(int32(t.members), t.arrived.Load()+int32(s.number("count", 1))))
	}
	return w.recreate(s)
}

func (w *world) recreate(s step) error {
	t := w.teams[s.name]
	if t == nil {
		return nil
	}
	for i := range int(t.arrived.Load()) {
		if err := w.create(t, i); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) deleteGang(s step) error {
	t := w.teams[s.name]
	if t == nil {
		return nil
	}
	for i := range t.members {
		w.removePod(t.member(i), false)
	}
	t.arrived.Store(0)
	if t.ofJob { // the next members are of another Job
		if err := w.api.core.BatchV1().Jobs(namespace).Delete(w.ctx, t.name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		w.mu.Lock()
		t.done = nil
		t.jobsMade++
		w.mu.Unlock()
		if err := w.employ(t); err != nil {
			return err
		}
	}
	return w.ungroup(s)
}

func (w *world) failAll(s step) error {
	if t := w.teams[s.name]; t != nil {
		for i := range t.members {
			w.removePod(t.member(i), true)
		}
	}
	return nil
}

func (w *world) succeed(s step) error {
	t := w.teams[s.name]
	if t == nil || !t.ofJob {
		return nil
	}
	left := s.number("count", 1)
	for i := range t.members {
		pod := w.api.pod(t.member(i))
		w.mu.Lock()
		succeeds := left > 0 && t.health.started && pod != nil && pod.Spec.NodeName != "" && pod.DeletionTimestamp == nil
		if succeeds {
			if left--; t.done == nil {
				t.done = map[int]bool{}
			}
			t.done[i] = true
			t.came = time.Now()
		}
		job := t.job()
		w.mu.Unlock()
		if !succeeds {
			continue
		}
		if _, err := w.api.core.BatchV1().Jobs(namespace).UpdateStatus(w.ctx, job, metav1.UpdateOptions{}); err != nil {
			return err
		}
		w.api.end(pod.Name, pod.UID, "succeeded")
	}
	return nil
}

// group makes the gang's PodGroup, or brings it up to date.
func (w *world) group(t *team) error {
	t.grouped = true
	switch t.source {
	case "xk8s":
		return w.groupDynamic(t)
	case "native":
		return w.groupNative(t)
	}
	return nil
}

func (w *world) groupDynamic(t *team) error {
	client := w.api.dynamic.Resource(xk8sGroups).Namespace(namespace)
	_, err := client.Create(w.ctx, t.xk8sGroup(), metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = client.Update(w.ctx, t.xk8sGroup(), metav1.UpdateOptions{})
	}
	return err
}

// groupNative writes the PodGroup for both clients: the scheduler reads it with the one, the plugin with the other.
func (w *world) groupNative(t *team) error {
	g := t.nativeGroup()
	u := unstructuredOf(g, nativeGroups.GroupVersion().WithKind("PodGroup"))
	typed := w.api.core.SchedulingV1beta1().PodGroups(namespace)
	client := w.api.dynamic.Resource(nativeGroups).Namespace(namespace)
	_, err := typed.Create(w.ctx, g, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		if _, err = typed.Update(w.ctx, g, metav1.UpdateOptions{}); err == nil {
			_, err = client.Update(w.ctx, u, metav1.UpdateOptions{})
		}
		return err
	}
	if err == nil {
		_, err = client.Create(w.ctx, u, metav1.CreateOptions{})
	}
	return err
}

func (w *world) ungroup(s step) error {
	t := w.teams[s.name]
	if t == nil || !t.grouped {
		return nil
	}
	w.outside(t.member(0), "lost its PodGroup")
	t.grouped = false
	switch t.source {
	case "xk8s":
		return w.api.dynamic.Resource(xk8sGroups).Namespace(namespace).Delete(w.ctx, t.name, metav1.DeleteOptions{})
	case "native":
		if err := w.api.core.SchedulingV1beta1().PodGroups(namespace).Delete(w.ctx, t.name, metav1.DeleteOptions{}); err != nil {
			return err
		}
		return w.api.dynamic.Resource(nativeGroups).Namespace(namespace).Delete(w.ctx, t.name, metav1.DeleteOptions{})
	}
	return nil
}

func (w *world) regroup(s step) error {
	t := w.teams[s.name]
	if t == nil || t.source == "label" || t.source == "" || t.elastic != "" {
		return nil
	}
	w.outside(t.member(0), "has another PodGroup")
	w.mu.Lock()
	t.before = least{at: time.Now(), count: t.leastAt(time.Now())}
	t.min = min(t.members, s.number("min", t.min))
	w.mu.Unlock()
	return w.group(t)
}

func (w *world) fault(s step) error {
	w.disturbed = w.disturbed || s.options["what"] == controlFault
	f := fault{what: bindFault, kind: s.options["kind"], target: s.name, left: s.number("count", 1)}
	if s.options["what"] != "" {
		f.what = s.options["what"]
	}
	w.api.order(f)
	return nil
}

// restart ends the scheduler and starts one that knows nothing but the API. A bind of the old one that is still to come
// happens before: an API server ends the requests of a client that is gone.
func (w *world) restart() error {
	w.sched.stop()
	w.api.settle()
	w.mu.Lock()
	for _, t := range w.teams {
		t.health.excuse("the scheduler restarted")
		if w.allBound(t) {
			t.health.exempt = "a member is gone, and the scheduler that knew whether it had run"
		}
	}
	w.mu.Unlock()
	return w.start()
}

// allBound reports whether no member waits.
func (w *world) allBound(t *team) bool {
	for i := range t.members {
		if pod := w.api.pod(t.member(i)); pod != nil && pod.Spec.NodeName == "" {
			return false
		}
	}
	return true
}

// levels returns the keys of levels by their short names.
func levels(names []string) []string {
	keys := map[string]string{"rack": rackLabel, "hostname": v1.LabelHostname, "nvlink": v1alpha1.TopologyNVLink}
	var all []string
	for _, name := range names {
		if key, ok := keys[name]; ok {
			name = key
		}
		all = append(all, name)
	}
	return all
}
