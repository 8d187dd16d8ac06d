package elasticity

import (
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// completions are the members that ended with exit code 0 when they were told to leave, by the object that made them. Such a pod is
// gone within a second or two, so that most passes do not see it.
type completions struct {
	mu      sync.Mutex
	byOwner map[types.UID]completion
	now     func() time.Time
}

// completion is the first such member of an owner, and when it was seen.
type completion struct {
	pod string
	at  time.Time
}

// handler watches pods.
func (c *completions) handler() cache.ResourceEventHandlerFuncs {
	return cache.ResourceEventHandlerFuncs{UpdateFunc: func(_, now any) { c.see(now) }, DeleteFunc: c.see}
}

// see takes in a pod that changed or is gone.
func (c *completions) see(object any) {
	if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = gone.Obj
	}
	pod, ok := object.(*v1.Pod)
	if !ok || pod.Status.Phase != v1.PodSucceeded || pod.Annotations[v1alpha1.AnnotationLeaving] == "" {
		return
	}
	owner := metav1.GetControllerOf(pod)
	if owner == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.byOwner[owner.UID]; known {
		return
	}
	if c.byOwner == nil {
		c.byOwner = map[types.UID]completion{}
	}
	c.byOwner[owner.UID] = completion{pod.Name, c.now()}
}

// of returns the name of such a member of an owner, "" for none.
func (c *completions) of(owner types.UID) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.byOwner[owner].pod
}

// forget drops what is known of owners that have had no pods for long: a Job may be about to make them anew.
func (c *completions) forget(pods []*v1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.byOwner) == 0 {
		return
	}
	owners := map[types.UID]bool{}
	for _, pod := range pods {
		if owner := metav1.GetControllerOf(pod); owner != nil {
			owners[owner.UID] = true
		}
	}
	for uid, x := range c.byOwner {
		if !owners[uid] && c.now().Sub(x.at) >= forgetAfter {
			delete(c.byOwner, uid)
		}
	}
}
