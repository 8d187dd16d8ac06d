// Package refusals evicts pods with a node that the agent of the node does not let start.
//
// The scheduler chooses devices, and the agent checks the assignment before each start of a container. When it does not fit, such as behind
// two active schedulers of one name, the kubelet asks again for ever, and the pod waits on its node with what it holds. The package evicts
// such a pod after a while, so that its owner makes another one, and says why. It evicts no pod of which a container has run, none whose owner could
// fail by that, such as a Job that takes no more failures, and none that nothing would make anew: it says what helps
// (docs/decisions/0054-starts-that-are-refused.md).
package refusals

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/events"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/controller/passes"
	tandem "github.com/tandem-gpu/tandem/internal/metrics"
)

const (
	// every is the time between two passes.
	every = 10 * time.Second
	// patience is how long an agent must refuse a pod. A shorter one evicts pods that a restarted agent would let start; with a longer one the pod
	// holds devices for nothing.
	patience = 2 * time.Minute
	// mostPatience bounds the doubled patience with the pods of an owner whose pods are refused again and again.
	mostPatience = time.Hour
)

// Options are what a Controller works with.
type Options struct {
	// Informers read pods; the caller starts them.
	Informers informers.SharedInformerFactory
	// Kube reads a pod and its Job before an eviction, and evicts the pod.
	Kube     kubernetes.Interface
	Recorder events.EventRecorder
	// Now is the clock; nil is the real one.
	Now func() time.Time
}

// Controller evicts pods whose start is refused.
type Controller struct {
	passes.Loop
	options   Options
	pods      corelisters.PodLister
	evictions *prometheus.CounterVec
	refused   map[types.UID]*refusal
	owners    map[types.UID]*owner
}

// refusal is a pod that its agent refuses, since when, when it was last found that it must stay, and whether an event says so.
type refusal struct {
	since, kept time.Time
	told        bool
}

// owner is in how many passes pods of an owner were evicted, and when in the last one.
type owner struct {
	evicted int
	last    time.Time
}

// New returns a controller that has not read anything.
func New(o Options) *Controller {
	pods := o.Informers.Core().V1().Pods()
	if o.Now == nil {
		o.Now = time.Now
	}
	f := tandem.Find(families, prefix+"evictions_total")
	c := &Controller{
		options: o, pods: pods.Lister(), refused: map[types.UID]*refusal{}, owners: map[types.UID]*owner{},
		evictions: prometheus.NewCounterVec(prometheus.CounterOpts{Name: f.Name, Help: f.Help}, f.Labels),
	}
	for _, result := range []string{resultEvicted, resultFailed} {
		c.evictions.WithLabelValues(result)
	}
	c.Loop = passes.Loop{Over: "pods whose start is refused", Every: every, Make: c.Pass, CountFailure: func() {}, Synced: []cache.InformerSynced{pods.Informer().HasSynced}}
	return c
}

// Collectors returns the collectors of the metrics.
func (c *Controller) Collectors() []prometheus.Collector { return []prometheus.Collector{c.evictions} }

// Pass evicts the pods whose start has been refused for long enough.
func (c *Controller) Pass(ctx context.Context) error {
	pods, err := c.pods.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	now, refused, evicted, known := c.options.Now(), map[types.UID]*refusal{}, map[types.UID]bool{}, jobs{}
	var errs []error
	for _, p := range pods {
		why, ran := refusedStart(p)
		if why == "" {
			continue
		}
		r := c.refused[p.UID]
		if r == nil {
			r = &refusal{since: now}
		}
		refused[p.UID] = r
		by := metav1.GetControllerOfNoCopy(p)
		switch refusing := now.Sub(r.since); {
		case refusing < c.patienceWith(by) || now.Sub(r.kept) < patience:
		case by == nil:
			c.tell(p, r, refusing, why, "nothing would make it anew: delete it, and create it again")
		case ran:
			c.tell(p, r, refusing, why, "a container of it has run: delete it, and create it again where nothing else does")
		default:
			is, stays, err := c.evict(ctx, known, p, refusing, why, by)
			evicted[by.UID] = evicted[by.UID] || is
			if stays != "" {
				r.kept = now
				c.tell(p, r, refusing, why, stays)
			}
			errs = append(errs, err)
		}
	}
	c.refused = refused
	for uid, is := range evicted { // what came at once has one cause
		if is {
			c.note(uid, now)
		}
	}
	for uid, o := range c.owners {
		if now.Sub(o.last) > 2*mostPatience {
			delete(c.owners, uid)
		}
	}
	return errors.Join(errs...)
}

// refusedStart is kube.RefusedStart for a pod that has an assignment and is not on its way out.
func refusedStart(p *v1.Pod) (why string, ran bool) {
	if p.DeletionTimestamp != nil || !kube.WantsVGPU(p) {
		return "", false
	}
	if _, err := kube.AssignmentOf(p); errors.Is(err, kube.ErrNoAssignment) {
		return "", false // another scheduler bound it, and would do so again
	}
	return kube.RefusedStart(p)
}

// patienceWith is how long a pod of an owner must be refused: twice as long after each pass with evictions.
func (c *Controller) patienceWith(by *metav1.OwnerReference) time.Duration {
	if by == nil || c.owners[by.UID] == nil {
		return patience
	}
	return min(patience<<min(c.owners[by.UID].evicted, 10), mostPatience)
}

// note notes that pods of an owner were evicted in a pass.
func (c *Controller) note(uid types.UID, now time.Time) {
	o := c.owners[uid]
	if o == nil {
		o = &owner{}
		c.owners[uid] = o
	}
	o.evicted, o.last = o.evicted+1, now
}

// tell says once why a pod that stays does not start, and what helps.
func (c *Controller) tell(p *v1.Pod, r *refusal, since time.Duration, why, stays string) {
	if r.told {
		return
	}
	r.told = true
	c.options.Recorder.Eventf(reference(p), nil, v1.EventTypeWarning, "StartRefused", "Wait",
		"the agent of node %s has refused to start it for %v: %s; it is not evicted, since %s", p.Spec.NodeName, since.Round(time.Second), why, stays)
}

// evict evicts a pod that is still refused and has not run, and reports whether it did. It says why a pod has to stay.
func (c *Controller) evict(ctx context.Context, known jobs, p *v1.Pod, since time.Duration, why string, by *metav1.OwnerReference) (evicted bool, stays string, err error) {
	now, err := c.options.Kube.CoreV1().Pods(p.Namespace).Get(ctx, p.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && now.UID != p.UID {
		return false, "", nil
	}
	if err != nil {
		return false, "", fmt.Errorf("read pod %s again: %w", kube.PathOf(p), err)
	}
	if still, ran := refusedStart(now); still == "" || ran {
		return false, "", nil // the informer shows it soon
	}
	if stays, err = c.keeps(ctx, known, now, by); stays != "" || err != nil {
		return false, stays, err
	}
	err = c.options.Kube.PolicyV1().Evictions(p.Namespace).Evict(ctx, &policyv1.Eviction{
		ObjectMeta:    metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name},
		DeleteOptions: &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &now.UID, ResourceVersion: &now.ResourceVersion}},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, "", nil
	}
	if apierrors.IsForbidden(err) { // in the namespaces of Kubernetes and of Tandem, or without the right to evict
		c.evictions.WithLabelValues(resultFailed).Inc()
		return false, fmt.Sprintf("the API server refuses that (%v): delete it, and create it again where nothing else does", err), nil
	}
	if err != nil {
		c.evictions.WithLabelValues(resultFailed).Inc()
		return false, "", fmt.Errorf("evict pod %s: %w", kube.PathOf(p), err)
	}
	if j := known[by.UID]; j != nil {
		j.room--
	}
	c.evictions.WithLabelValues(resultEvicted).Inc()
	c.options.Recorder.Eventf(reference(p), nil, v1.EventTypeWarning, "StartRefused", "Evict",
		"the agent of node %s has refused to start it for %v: %s; it is evicted, so that its %s makes another one: where this happens again, look whether two schedulers of one name are active (kubectl tandem doctor)",
		p.Spec.NodeName, since.Round(time.Second), why, by.Kind)
	return true, "", nil
}

func reference(p *v1.Pod) *v1.ObjectReference {
	return &v1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: p.Namespace, Name: p.Name, UID: p.UID}
}
