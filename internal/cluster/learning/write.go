package learning

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/interference"
)

const (
	// rested is how long a workload must be unobserved before its WorkloadProfile may be replaced by another. A shorter
	// time replaces profiles that pods still use.
	rested = time.Hour
	// longestPause bounds the pause after writes that failed in a row. A longer pause spares the API server and delays
	// the writes.
	longestPause = 5 * time.Minute
	// requestTimeout bounds one request. A longer timeout delays the other writes where the API server does not answer.
	requestTimeout = 10 * time.Second
)

// changed queues a workload whose status is out of date. If that only has to name illegal values, it comes after what was learned: users write
// as many such profiles as they like.
func (l *Learner) changed(w *workload) {
	l.dirty[w.number] = true
	if l.options.Client == nil || w.queued && !w.late || w.refused || w.profile == nil && w.key == nil {
		return
	}
	switch {
	case l.isNews(w):
		w.queued, w.late = true, false
		l.queue = append(l.queue, w.number)
	case w.unsaid && !w.queued:
		w.queued, w.late = true, true
		l.lateQueue = append(l.lateQueue, w.number)
	}
}

// isNews reports whether the learner knows more of a workload than its status says.
func (l *Learner) isNews(w *workload) bool {
	for _, r := range w.records {
		k := l.learned(w, r)
		if !k.Known.SM && !k.Known.Bandwidth && k.Traits.CoRuns == 0 {
			continue
		}
		now := briefly(r.gpu, &k)
		i := slices.IndexFunc(w.written, func(b brief) bool { return b.gpu == r.gpu })
		if i < 0 || w.written[i].isNews(&now) {
			return true
		}
	}
	return false
}

// writing writes statuses until ctx ends.
func (l *Learner) writing(ctx context.Context) {
	tick := time.NewTicker(time.Duration(float64(time.Second) / l.options.WritesPerSecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			l.write(ctx)
		}
	}
}

// task is a status to write.
type task struct {
	number          interference.Workload
	namespace, name string
	exists          bool
	key             *workloads.WorkloadKey
	learned         []workloads.Learned
	briefs          []brief
}

// write writes the status of the workload that has waited longest, and makes or deletes WorkloadProfiles as needed. The
// result says whether there was work.
func (l *Learner) write(ctx context.Context) bool {
	if path, ok := l.surplus(); ok {
		namespace, name, _ := strings.Cut(path, "/")
		err := l.delete(ctx, namespace, name)
		if err == nil {
			l.ProfileGone(namespace, name)
		}
		l.wrote(ctx, resultDeleted, path, err)
		return true
	}
	t, ok := l.take()
	if !ok {
		return false
	}
	result, err := l.store(ctx, &t)
	l.mu.Lock()
	w := l.workloads[t.number]
	switch {
	case w == nil:
	case err == nil:
		w.written, w.wrote, w.unsaid = t.briefs, true, false
	case !w.queued && !w.refused && w.unsaid && !l.isNews(w):
		l.changed(w)
	case !w.queued && !w.refused:
		w.queued = true
		l.queue = append(l.queue, t.number)
	}
	l.mu.Unlock()
	l.wrote(ctx, result, t.namespace+"/"+t.name, err)
	return true
}

// take removes the workload that has waited longest from the queue; none while writes pause.
func (l *Learner) take() (task, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.options.Clock().Before(l.pause) {
		return task{}, false
	}
	for len(l.queue)+len(l.lateQueue) > 0 {
		from := &l.queue
		if len(*from) == 0 {
			from = &l.lateQueue
		}
		w := l.workloads[(*from)[0]]
		*from = (*from)[1:]
		if w == nil || !w.queued || w.late != (from == &l.lateQueue) {
			continue
		}
		w.queued, w.late = false, false
		if w.profile == nil && (w.key == nil || !l.hasRoom()) {
			continue
		}
		t := task{number: w.number, exists: w.profile != nil, key: w.key, learned: l.allLearned(w)}
		t.namespace, t.name, _ = strings.Cut(w.name, "/")
		for i, r := range w.records {
			t.briefs = append(t.briefs, briefly(r.gpu, &t.learned[i]))
		}
		return t, true
	}
	return task{}, false
}

// hasRoom reports whether the learner may make another WorkloadProfile: it has fewer than the limit, or may delete one.
func (l *Learner) hasRoom() bool {
	if l.made < l.options.MaxProfiles || l.oldest() != nil {
		return true
	}
	l.counts.drop(dropFull)
	return false
}

// oldest returns the workload with a WorkloadProfile of the learner and the oldest observation, nil where all
// observations are recent.
func (l *Learner) oldest() *workload {
	var oldest *workload
	for _, w := range l.workloads {
		if w.made && (oldest == nil || cmp.Or(cmp.Compare(w.seen, oldest.seen), strings.Compare(w.name, oldest.name)) < 0) {
			oldest = w
		}
	}
	if oldest == nil || l.options.Clock().Sub(time.Unix(oldest.seen, 0)) < rested {
		return nil
	}
	return oldest
}

// surplus returns the WorkloadProfile to delete where there are more than the limit.
func (l *Learner) surplus() (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.made <= l.options.MaxProfiles || l.options.Clock().Before(l.pause) {
		return "", false
	}
	w := l.oldest()
	if w == nil {
		return "", false
	}
	return w.name, true
}

// store writes one status. The request comes after a read of the object: a user may have made, changed or deleted it.
func (l *Learner) store(ctx context.Context, t *task) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	client := l.options.Client.Resource(v1alpha1.WorkloadProfiles).Namespace(t.namespace)
	result := resultWritten
	var found *unstructured.Unstructured
	var err error
	if t.exists {
		found, err = client.Get(ctx, t.name, metav1.GetOptions{})
	} else {
		found, err = l.create(ctx, t)
		result = resultMade
	}
	if err != nil {
		return resultFailed, err
	}
	p := &v1alpha1.WorkloadProfile{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(found.Object, p); err != nil {
		return resultFailed, fmt.Errorf("read WorkloadProfile: %w", err)
	}
	p.Status = workloads.LearnedStatus(p.Status, t.learned)
	if p.Status.Workload == nil && t.key != nil && p.Labels[v1alpha1.LabelLearned] == "true" {
		if made, err := workloads.LearnedProfile(*t.key); err == nil {
			p.Status.Workload = made.Status.Workload
		}
	}
	meta.SetStatusCondition(&p.Status.Conditions, workloads.ReadProfile(p).Condition(p.Generation))
	object, err := unstructuredOf(p)
	if err != nil {
		return resultFailed, err
	}
	if _, err := client.UpdateStatus(ctx, object, metav1.UpdateOptions{}); err != nil {
		return resultFailed, err
	}
	return result, nil
}

// create makes a WorkloadProfile, and returns the existing one.
func (l *Learner) create(ctx context.Context, t *task) (*unstructured.Unstructured, error) {
	made, err := workloads.LearnedProfile(*t.key)
	if err != nil {
		l.refuse(t.number)
		return nil, err
	}
	object, err := unstructuredOf(made)
	if err != nil {
		return nil, err
	}
	client := l.options.Client.Resource(v1alpha1.WorkloadProfiles).Namespace(t.namespace)
	found, err := client.Create(ctx, object, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return client.Get(ctx, t.name, metav1.GetOptions{})
	}
	return found, err
}

// refuse records that no WorkloadProfile can hold a workload.
func (l *Learner) refuse(number interference.Workload) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.counts.drop(dropUnwritable)
	if w := l.workloads[number]; w != nil {
		w.refused = true
	}
}

func (l *Learner) delete(ctx context.Context, namespace, name string) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	err := l.options.Client.Resource(v1alpha1.WorkloadProfiles).Namespace(namespace).Delete(ctx, name, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// wrote counts a write. After each failure in a row it doubles the pause until the next write.
func (l *Learner) wrote(ctx context.Context, result, path string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil:
		l.counts.write(result)
		l.strikes = 0
		return
	case ctx.Err() != nil:
		return
	}
	l.counts.write(resultFailed)
	l.strikes++
	l.pause = l.options.Clock().Add(min(longestPause, time.Second<<min(l.strikes, 16)))
	klog.FromContext(ctx).V(1).Info("Writing a WorkloadProfile failed", "profile", path, "failures", l.strikes, "err", err)
}

func unstructuredOf(p *v1alpha1.WorkloadProfile) (*unstructured.Unstructured, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(p)
	if err != nil {
		return nil, fmt.Errorf("write WorkloadProfile: %w", err)
	}
	u := &unstructured.Unstructured{Object: object}
	u.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("WorkloadProfile"))
	return u, nil
}
