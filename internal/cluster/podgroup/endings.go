package podgroup

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	core "github.com/tandem-gpu/tandem/pkg/gang"
)

// settling is how long a gang lacks members before the set asks the API server for those that are done. Controllers make
// members one by one, and a gang that is made within this time costs no request.
const settling = 2 * time.Second

// endings finds the members of gangs that are done: they succeeded, and nobody makes them again. The informer of pods does not
// have them, and it is a Job alone that knows of those that are deleted, and of those that are still to come.
type endings struct {
	client kubernetes.Interface
	// queue has the gangs to ask for.
	queue workqueue.TypedRateLimitingInterface[Ref]
}

// done are the members of a gang that are done.
type done struct {
	count int
	// left are the members that are not done, as far as their controllers say: those beyond the least number are done first.
	left int
	// loose: a maker may make members of several runs.
	loose bool
	// ordered is a StatefulSet that makes members in order, "" for none: it waits until the ones before are ready, and they wait for
	// their gang.
	ordered string
	// makers are the controllers of the members that existed at that time: others begin anew.
	makers []types.UID
}

// watchEndings answers for the gangs that lack members until ctx ends.
func (s *Set) watchEndings(ctx context.Context, client kubernetes.Interface) {
	s.endings = &endings{client: client, queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[Ref]())}
	go func() {
		<-ctx.Done()
		s.endings.queue.ShutDown()
	}()
	go func() {
		for s.askNext(ctx) {
		}
	}()
}

// lowers reports whether members that are done can lower the least number of a gang. If the scheduler's queue knows the
// gang, the queue alone decides when enough members exist.
func (s *Set) lowers(ref Ref) bool { return s.endings != nil && !s.Queues(ref.Source) }

// countDone lowers the least number of a gang that lacks members by those that are done, and asks for these anew. The caller
// holds the mutex.
func (s *Set) countDone(out *Gang, g *gang) {
	if !s.lowers(g.ref) || out.alive() >= out.MinCount {
		return
	}
	s.endings.queue.AddAfter(g.ref, settling)
	makers := makersOf(podsOf(living(g.members)))
	if !slices.Equal(g.done.makers, makers) {
		return
	}
	out.ordered = g.done.ordered
	if g.done.count == 0 {
		return
	}
	// Nobody says of pods without a controller, or of the steps of a workflow, to which run of a gang they belong: more of them than its
	// members are of two.
	if all := max(out.MinCount, slices.Max(append([]int{0}, out.Sizes...))); g.done.loose && out.alive()+g.done.count > all {
		return
	}
	out.Done = g.done.count
	// Members that are still to be made for the first time have no controller to ask.
	out.MinCount = max(core.Done{Succeeded: g.done.count, ToCome: g.done.left}.Least(out.MinCount), out.MinCount-g.done.count)
}

// makersOf returns the UIDs of the controllers of pods, "" for none, ascending.
func makersOf(members []*v1.Pod) []types.UID {
	makers := map[types.UID]bool{}
	for _, pod := range members {
		makers[controllerOf(pod).UID] = true
	}
	return slices.Sorted(maps.Keys(makers))
}

func controllerOf(pod *v1.Pod) metav1.OwnerReference {
	if owner := metav1.GetControllerOf(pod); owner != nil {
		return *owner
	}
	return metav1.OwnerReference{}
}

// askNext asks for the next gang of the queue, and returns false when the queue has been shut down.
func (s *Set) askNext(ctx context.Context) bool {
	ref, over := s.endings.queue.Get()
	if over {
		return false
	}
	defer s.endings.queue.Done(ref)
	pods := s.lacking(ref)
	if pods == nil {
		s.endings.queue.Forget(ref)
		return true
	}
	now := done{makers: makersOf(pods)}
	var err error
	if err = s.countEnded(ctx, ref, pods, &now); err == nil {
		now.ordered, err = s.orderedBy(ctx, pods)
	}
	switch {
	case apierrors.IsForbidden(err):
		klog.FromContext(ctx).Error(err, "Cannot count the members of a gang that are done: it waits for them", "gang", ref.String())
	case err != nil:
		s.endings.queue.AddRateLimited(ref)
		return true
	}
	s.endings.queue.Forget(ref)
	s.setDone(ref, &now)
	return true
}

// lacking returns the living members of a gang that lacks members, nil for other gangs.
func (s *Set) lacking(ref Ref) []*v1.Pod {
	s.mu.Lock()
	defer s.mu.Unlock()
	g := s.gangs[ref]
	if g == nil {
		return nil
	}
	if !g.built {
		g.gang, g.problem = s.build(g)
		g.built = true
	}
	if g.gang.alive() >= g.gang.MinCount+g.gang.Done {
		return nil
	}
	return podsOf(living(g.members))
}

func podsOf(members []*member) []*v1.Pod {
	pods := make([]*v1.Pod, len(members))
	for i, m := range members {
		pods[i] = m.pod
	}
	return pods
}

// setDone notes which members of a gang are done.
func (s *Set) setDone(ref Ref, now *done) {
	if now.count == 0 && now.ordered == "" {
		*now = done{}
	}
	s.mu.Lock()
	g := s.gangs[ref]
	changed := g != nil && (g.done.count != now.count || g.done.left != now.left || g.done.loose != now.loose || g.done.ordered != now.ordered || !slices.Equal(g.done.makers, now.makers))
	if changed {
		g.done, g.built = *now, false
	}
	s.mu.Unlock()
	if changed {
		s.notify([]Ref{ref})
	}
}

// orderedBy returns the StatefulSet that makes pods in order, "" for none.
func (s *Set) orderedBy(ctx context.Context, pods []*v1.Pod) (string, error) {
	asked := map[types.UID]bool{}
	for _, pod := range pods {
		owner := controllerOf(pod)
		if owner.Kind != "StatefulSet" || owner.APIVersion != appsv1.SchemeGroupVersion.String() || asked[owner.UID] {
			continue
		}
		asked[owner.UID] = true
		set, err := s.endings.client.AppsV1().StatefulSets(pod.Namespace).Get(ctx, owner.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			continue
		case err != nil:
			return "", fmt.Errorf("read the StatefulSet of a gang: %w", err)
		case set.UID == owner.UID && set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement:
			return set.Name, nil
		}
	}
	return "", nil
}

// countEnded counts the members of a gang that are done, of the same run as its living members, and those that are not.
func (s *Set) countEnded(ctx context.Context, ref Ref, living []*v1.Pod, now *done) error {
	succeeded, err := s.succeeded(ctx, ref)
	if err != nil {
		return err
	}
	runs := map[string]bool{}
	jobs, ended := map[metav1.OwnerReference]bool{}, map[metav1.OwnerReference]int{}
	for _, pod := range living {
		runs[runOf(pod)] = true
		owner := controllerOf(pod)
		if isJob(owner) {
			jobs[key(owner)] = true
			continue
		}
		now.left++
		now.loose = now.loose || !strings.HasPrefix(owner.APIVersion, "kubeflow.org/") // their jobs make each member once
	}
	for _, pod := range succeeded {
		if runs[runOf(pod)] {
			owner := controllerOf(pod)
			ended[key(owner)]++
			if isJob(owner) {
				jobs[key(owner)] = true
			}
		}
	}
	for owner := range jobs {
		count, left, err := s.doneOf(ctx, ref.Namespace, owner, ended[owner])
		if err != nil {
			return err
		}
		now.count += count
		now.left += left
		delete(ended, owner)
	}
	for _, n := range ended {
		now.count += n
	}
	return nil
}

// key returns what distinguishes an owner.
func key(owner metav1.OwnerReference) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: owner.APIVersion, Kind: owner.Kind, Name: owner.Name, UID: owner.UID}
}

func isJob(owner metav1.OwnerReference) bool {
	return owner.Kind == "Job" && owner.APIVersion == batchv1.SchemeGroupVersion.String()
}

// A JobSet makes its Jobs anew when it restarts.
const (
	jobSetUID     = "jobset.sigs.k8s.io/jobset-uid"
	jobSetAttempt = "jobset.sigs.k8s.io/restart-attempt"
)

// runOf returns the run of a gang to which a pod belongs: that of its JobSet, else of its controller.
func runOf(pod *v1.Pod) string {
	if set := pod.Labels[jobSetUID]; set != "" {
		return set + "/" + pod.Labels[jobSetAttempt]
	}
	return string(controllerOf(pod).UID)
}

// succeeded returns the members of a gang that have succeeded and still exist.
func (s *Set) succeeded(ctx context.Context, ref Ref) ([]*v1.Pod, error) {
	o := metav1.ListOptions{FieldSelector: "status.phase=" + string(v1.PodSucceeded)}
	switch ref.Source {
	case Label:
		o.LabelSelector = labels.Set{v1alpha1.LabelGang: ref.Name}.String()
	case XK8s:
		o.LabelSelector = labels.Set{membership.LabelPodGroup: ref.Name}.String()
	}
	list, err := s.endings.client.CoreV1().Pods(ref.Namespace).List(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("list the members of gang %s that have ended: %w", ref, err)
	}
	var pods []*v1.Pod
	for i := range list.Items {
		pod := &list.Items[i]
		if of, is := s.Of(pod); is && of == ref && pod.Status.Phase == v1.PodSucceeded && pod.DeletionTimestamp == nil {
			pods = append(pods, pod)
		}
	}
	return pods, nil
}

// doneOf returns how many of the pods that a Job runs side by side are done, and how many are not. ended is how many of its pods have
// succeeded and still exist.
func (s *Set) doneOf(ctx context.Context, namespace string, owner metav1.OwnerReference, ended int) (count, left int, err error) {
	job, err := s.endings.client.BatchV1().Jobs(namespace).Get(ctx, owner.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err), err == nil && job.UID != owner.UID:
		return ended, 0, nil
	case err != nil:
		return 0, 0, fmt.Errorf("read the Job of a gang: %w", err)
	}
	return doneOfJob(job, ended)
}

// doneOfJob returns how many of the pods that a Job runs side by side are done, in whose place no pods come, and how many are not. A Job
// without completions makes no pods once one has succeeded.
func doneOfJob(job *batchv1.Job, ended int) (count, left int, err error) {
	beside := 1
	if p := job.Spec.Parallelism; p != nil {
		beside = int(*p)
	}
	ended = max(ended, int(job.Status.Succeeded))
	if job.Spec.Completions == nil {
		return min(ended, beside), beside - min(ended, beside), nil
	}
	failed, err := indexes(job.Status.FailedIndexes)
	if err != nil {
		return 0, 0, fmt.Errorf("job %s/%s: status.failedIndexes: %w", job.Namespace, job.Name, err)
	}
	all := int(*job.Spec.Completions)
	beside = min(beside, all)
	left = min(beside, max(0, all-ended-failed))
	return beside - left, left, nil
}

// indexes counts the indexes in a list such as 1,3-5; nil has none.
func indexes(list *string) (count int, err error) {
	if list == nil || *list == "" {
		return 0, nil
	}
	for interval := range strings.SplitSeq(*list, ",") {
		from, to, isRange := strings.Cut(interval, "-")
		first, errFirst := strconv.Atoi(from)
		last, errLast := first, error(nil)
		if isRange {
			last, errLast = strconv.Atoi(to)
		}
		if err := errors.Join(errFirst, errLast); err != nil {
			return 0, err
		}
		count += max(0, last-first+1)
	}
	return count, nil
}
