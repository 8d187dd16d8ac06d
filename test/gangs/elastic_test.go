package gangs

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// TestElasticHistories plays random histories of scheduler and controller: gangs by label and by the PodGroup of the scheduler
// plugins, of which many are elastic.
func TestElasticHistories(t *testing.T) { playMany(t, elastic(false)) }

// TestNativeElasticHistories plays random histories of scheduler and controller with the PodGroup of Kubernetes.
func TestNativeElasticHistories(t *testing.T) {
	withNativeGroups(t)
	playMany(t, elastic(true))
}

// elastic returns the kit with the plugins of production and the controller.
func elastic(native bool) kit {
	k := production(native)
	k.elastic = true
	return k
}

// followed is how long after a change of a target members may still be placed by its earlier number: a bind may be on its way.
const followed = bindTimeout + lateBy + 3*time.Second

// targeted is a number of members that the target of a gang got at an instant, 0 for none.
type targeted struct {
	at      time.Time
	workers int
}

// job returns the Job that makes the members of an elastic gang. It does not count evictions as failures.
func (t *team) job() *batchv1.Job {
	most := int32(t.members)
	uid := types.UID("job-" + t.name)
	if t.jobsMade > 0 {
		uid += types.UID(fmt.Sprint("-", t.jobsMade))
	}
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: t.name, UID: uid}, Status: batchv1.JobStatus{Succeeded: int32(len(t.done))}, Spec: batchv1.JobSpec{
		Parallelism: &most, Completions: &most,
		PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action:          batchv1.PodFailurePolicyActionIgnore,
			OnPodConditions: []batchv1.PodFailurePolicyOnPodConditionsPattern{{Type: v1.DisruptionTarget, Status: v1.ConditionTrue}},
		}}},
	}}
}

// employ makes the Job of a gang, and the profile of an elastic one where it has one.
func (w *world) employ(t *team) error {
	if t.elastic == "" && !t.ofJob {
		return nil
	}
	if t.agile {
		profile := &v1alpha1.WorkloadProfile{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: t.name}}
		profile.Spec.Scaling = &v1alpha1.ProfileScaling{ResizeTime: &metav1.Duration{}}
		u := unstructuredOf(profile, v1alpha1.GroupVersion.WithKind("WorkloadProfile"))
		if _, err := w.api.dynamic.Resource(v1alpha1.WorkloadProfiles).Namespace(namespace).Create(w.ctx, u, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	_, err := w.api.core.BatchV1().Jobs(namespace).Create(w.ctx, t.job(), metav1.CreateOptions{})
	return err
}

// startController starts the controller where the history has one.
func (w *world) startController() error {
	switch {
	case !w.kit.elastic:
		return nil
	case w.kit.control != nil:
		return w.kit.control(w)
	}
	return w.startControl()
}

// crash has the controller die, now or with one of its next requests.
func (w *world) crash(s step) error {
	w.mu.Lock()
	c := w.control
	w.mu.Unlock()
	if c == nil {
		return nil
	}
	w.disturbed = true
	c.back.Store(int64(max(time.Second, s.span("for"))))
	c.answered.Store(s.number("answered", 0) > 0)
	if after := s.number("after", 0); after > 0 {
		c.left.Store(int64(after))
		return nil
	}
	c.die()
	return nil
}

// edit writes a number into the target of a gang, as a user does who may, or removes the target.
func (w *world) edit(s step) error {
	t, target := w.teams[s.name], w.api.targetOf(s.name)
	if t == nil || target == nil {
		return nil
	}
	client := w.api.dynamic.Resource(v1alpha1.ElasticTargets).Namespace(namespace)
	workers := s.number("workers", 0)
	if workers == 0 {
		return client.Delete(w.ctx, s.name, metav1.DeleteOptions{})
	}
	target.Spec.Workers = min(max(int32(workers), target.Spec.Min), target.Spec.Max)
	_, err := client.Update(w.ctx, unstructuredOf(target, v1alpha1.GroupVersion.WithKind("ElasticTarget")), metav1.UpdateOptions{})
	return err
}

// sized takes in that the target of a gang got another number.
func (w *world) sized(gang string, workers int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.teams[gang]
	if t == nil || len(t.targets) > 0 && t.targets[len(t.targets)-1].workers == workers {
		return
	}
	w.api.say("target of %s: %d", gang, workers)
	if len(t.targets) > 0 && workers > 0 {
		w.tally.moves++
	}
	t.targets = append(t.targets, targeted{at: time.Now(), workers: workers})
}

// allowed returns the largest number of members that the scheduler may go by at an instant.
func (t *team) allowed(now time.Time) int {
	most := t.min
	for i, x := range t.targets {
		if i+1 == len(t.targets) || now.Sub(t.targets[i+1].at) < followed {
			most = max(most, x.workers)
		}
	}
	return most
}

// checkHeld checks that a member that is bound is not one that the target of its gang holds back. The caller holds the mutex.
func (w *world) checkHeld(t *team, pod *v1.Pod) {
	if t.elastic == "" {
		return
	}
	if most := t.allowed(time.Now()); t.index(pod.Name) >= most && !w.api.isLate(pod.UID) {
		w.fail("member %s is bound, and the target of its gang allows members below %d", pod.Name, most)
	}
}

// index returns the number of a member.
func (t *team) index(member string) int {
	for i := range t.members {
		if t.member(i) == member {
			return i
		}
	}
	return -1
}

// checkLeaver checks an eviction that the controller asks for: the gang keeps as many members as its target says, and the last
// ones leave, each after a notice.
func (w *world) checkLeaver(e *policyv1.Eviction) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t, pod, now := w.teamOf(e.Name), w.api.pod(e.Name), time.Now()
	if pod == nil || e.DeleteOptions == nil || e.DeleteOptions.Preconditions == nil || *e.DeleteOptions.Preconditions.UID != pod.UID {
		return // it is another pod by now, and the API server refuses
	}
	w.tally.left++
	if t == nil || t.elastic == "" {
		w.fail("the controller evicts pod %s, which is of no elastic gang", e.Name)
		return
	}
	if w.stepped.Equal(now) || t.ended.endsAt(now) > 0 || w.tearAt(t, now) != nil {
		return // the controller may not have heard of it
	}
	target := w.api.targetOf(t.name)
	if target == nil {
		w.fail("the controller evicts pod %s of a gang without a target", e.Name)
		return
	}
	running, above := 0, 0
	for i := range t.members {
		other := w.api.pod(t.member(i))
		if other == nil || other.Spec.NodeName == "" || other.DeletionTimestamp != nil {
			continue
		}
		running++
		// The controller may know of a member that has its node since this moment, or not yet.
		if i >= t.index(e.Name) && !other.Status.StartTime.Equal(new(moment())) {
			above++
		}
	}
	if surplus := running - max(t.min, int(target.Spec.Workers)); above > surplus {
		w.fail("the controller evicts pod %s although only the last %d of %d members are too many", e.Name, surplus, running)
	}
	if _, told := pod.Annotations[v1alpha1.AnnotationLeaving]; !told && !w.disturbed {
		w.fail("the controller evicts pod %s without a notice", e.Name)
	}
}

// jobGoesOn does what a Job does when a pod of it is gone: one that ended by itself ends the Job, and another one is made again.
func (w *world) jobGoesOn(t *team, pod *v1.Pod, what string) {
	if t.elastic == "" || what != "gone" || preempted(pod) {
		return // evicted has those made again that were preempted
	}
	if h := w.hosts[pod.Spec.NodeName]; pod.DeletionTimestamp != nil || h == nil || h.lost {
		w.remake(t, pod)
		return
	}
	time.AfterFunc(remade, func() { w.complete(t) })
}

// complete ends the Job of an elastic gang.
func (w *world) complete(t *team) {
	if w.ctx.Err() != nil {
		return
	}
	t.arrived.Store(0)
	for i := range t.members {
		w.removePod(t.member(i), false)
	}
}

// Spans of the end of a history with a controller.
const (
	// steady is how long nothing must change: longer than the time after which a target goes back.
	steady = admitWithin + 30*time.Second
	// converged bounds the time until then: the controller makes few changes an hour.
	converged = 40 * time.Minute
)

// converge ends all faults, and waits until targets and members agree and nothing changes any more.
func (w *world) converge() {
	elastic := slices.DeleteFunc(w.sorted(), func(t *team) bool { return t.elastic == "" })
	if !w.kit.elastic || len(elastic) == 0 {
		return
	}
	w.api.say("> the targets settle: all is well")
	w.api.heal()
	w.disturbed = true // what was begun before may end after it
	w.mu.Lock()
	if w.control != nil {
		w.control.left.Store(0)
	}
	w.mu.Unlock()
	w.allWell()
	last, since := "", time.Now()
	for began := time.Now(); time.Since(began) < converged && w.violation == ""; w.rest(passEvery) {
		now, open := w.sizes(elastic)
		if now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < steady {
			continue
		}
		if open != "" {
			w.fail("nothing changes, and %s", open)
		}
		return
	}
	if w.violation == "" {
		w.fail("the sizes of gangs still change %v after all was well: %s", converged, last)
	}
}

// allWell brings all nodes, members and PodGroups.
func (w *world) allWell() {
	for name := range w.hosts {
		w.must(w.node(step{name: name}))
	}
	for _, t := range w.sorted() {
		if t.arrived.Load() == 0 {
			continue // deleted, or completed
		}
		if !t.grouped {
			w.must(w.group(t))
		}
		arrive := step{verb: "arrive", name: t.name, options: map[string]string{"count": fmt.Sprint(t.members)}}
		w.intervene(arrive)
		w.must(w.arrive(arrive))
	}
}

// sizes returns the sizes and targets of elastic gangs, and what does not agree, "" for nothing.
func (w *world) sizes(elastic []*team) (all, open string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var sizes, wrong []string
	for _, t := range elastic {
		c, target := w.count(t), w.api.targetOf(t.name)
		if c.exists == 0 {
			continue
		}
		workers := 0
		if target != nil {
			workers = int(target.Spec.Workers)
		}
		sizes = append(sizes, fmt.Sprintf("%s: %v, target %d", t.name, c, workers))
		if why := w.disagree(t, c, target); why != "" {
			wrong = append(wrong, why)
		}
	}
	return strings.Join(sizes, "; "), strings.Join(wrong, "; ")
}

// disagree says what of a gang does not agree with its target, "" for nothing. Gangs that nobody can place, or that wait, agree.
func (w *world) disagree(t *team, c count, target *v1alpha1.ElasticTarget) string {
	running := c.bound - c.ending
	switch {
	case t.malformed() || t.launcher:
		return ""
	case target == nil:
		return fmt.Sprintf("gang %s has no target", t.name)
	case running < t.min:
		return ""
	case running != int(target.Spec.Workers):
		return fmt.Sprintf("gang %s runs with %d members, and its target is %d: %s, %v", t.name, running, target.Spec.Workers, target.Status.Message, target.Status.Scheduler)
	case int(target.Status.Workers) != running || !meta.IsStatusConditionTrue(target.Status.Conditions, v1alpha1.ConditionAdmitted):
		return fmt.Sprintf("gang %s runs with %d members, and the status of its target says %d: %v", t.name, running, target.Status.Workers, target.Status.Conditions)
	}
	for i := range t.members {
		pod := w.api.pod(t.member(i))
		if pod == nil || pod.Spec.NodeName == "" {
			continue
		}
		if at, told := pod.Annotations[v1alpha1.AnnotationLeaving]; told {
			return fmt.Sprintf("member %s stays, and is told to leave at %s", pod.Name, at)
		}
	}
	return ""
}

// checkForgotten checks that no targets are left of gangs that have ended.
func (w *world) checkForgotten() {
	if !w.kit.elastic || w.kit.control != nil {
		return
	}
	w.rest(11 * time.Minute)
	w.rest(passEvery)
	list, err := w.api.dynamic.Tracker().List(v1alpha1.ElasticTargets, v1alpha1.GroupVersion.WithKind("ElasticTarget"), namespace)
	if err != nil {
		w.fail("read the targets: %v", err)
		return
	}
	for _, u := range list.(*unstructured.UnstructuredList).Items {
		w.fail("the target of gang %s is still there, and the gang is gone", u.GetName())
	}
}
