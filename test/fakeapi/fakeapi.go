// Package fakeapi is client-go's clientset in memory with four things that an API server does and schedulers depend on.
//
// Every change of an object gives it a new resourceVersion: the scheduler's queue takes an update without one for none,
// and a pod that it lost would never come back. An update without a difference is no change, and causes no event. The
// objects of a watcher belong to the watcher: client-go's fake hands out its own objects where they are older than the
// watch, and informers trim theirs. And a watcher may be slow: client-go's fake panics when one is a hundred events
// behind.
package fakeapi

import (
	"strconv"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// Clientset is a clientset in memory.
type Clientset struct {
	*fake.Clientset
	tracker *tracker
}

// NewClientset returns a clientset without objects.
func NewClientset() *Clientset {
	c := &Clientset{Clientset: fake.NewClientset()}
	c.tracker = &tracker{ObjectTracker: c.Clientset.Tracker(), feeds: map[*feed]bool{}}
	c.PrependReactor("*", "*", clienttesting.ObjectReaction(c.tracker))
	c.PrependWatchReactor("*", c.watch)
	return c
}

// Tracker returns the objects. Reactors change them there, and not in those of the clientset within.
func (c *Clientset) Tracker() clienttesting.ObjectTracker { return c.tracker }

func (c *Clientset) watch(action clienttesting.Action) (bool, watch.Interface, error) {
	var options metav1.ListOptions
	if w, ok := action.(clienttesting.WatchActionImpl); ok {
		options = w.ListOptions
	}
	w, err := c.tracker.Watch(action.GetResource(), action.GetNamespace(), options)
	if err != nil {
		return true, nil, err
	}
	return true, c.tracker.follow(w), nil
}

// tracker gives objects their resourceVersions, and watchers their time.
type tracker struct {
	clienttesting.ObjectTracker
	last atomic.Int64

	mu    sync.Mutex
	feeds map[*feed]bool
}

// Add adds an object, not a list.
func (t *tracker) Add(object runtime.Object) error {
	object = object.DeepCopyObject()
	if err := t.stamp(object); err != nil {
		return err
	}
	defer t.settle()
	return t.ObjectTracker.Add(object)
}

// Create adds an object to a namespace.
func (t *tracker) Create(gvr schema.GroupVersionResource, object runtime.Object, namespace string, options ...metav1.CreateOptions) error {
	object = object.DeepCopyObject()
	if err := t.stamp(object); err != nil {
		return err
	}
	defer t.settle()
	return t.ObjectTracker.Create(gvr, object, namespace, options...)
}

// Update puts an object in the place of the one with its name.
func (t *tracker) Update(gvr schema.GroupVersionResource, object runtime.Object, namespace string, options ...metav1.UpdateOptions) error {
	if t.same(gvr, object, namespace) {
		return nil
	}
	object = object.DeepCopyObject()
	if err := t.stamp(object); err != nil {
		return err
	}
	defer t.settle()
	return t.ObjectTracker.Update(gvr, object, namespace, options...)
}

// Patch puts a patched object, which is then the answer to the client, in the place of the one with its name.
func (t *tracker) Patch(gvr schema.GroupVersionResource, object runtime.Object, namespace string, options ...metav1.PatchOptions) error {
	if t.same(gvr, object, namespace) {
		return nil
	}
	if err := t.stamp(object); err != nil {
		return err
	}
	defer t.settle()
	return t.ObjectTracker.Patch(gvr, object, namespace, options...)
}

// Delete removes an object.
func (t *tracker) Delete(gvr schema.GroupVersionResource, namespace, name string, options ...metav1.DeleteOptions) error {
	defer t.settle()
	return t.ObjectTracker.Delete(gvr, namespace, name, options...)
}

// stamp gives an object the next resourceVersion.
func (t *tracker) stamp(object runtime.Object) error {
	m, err := meta.Accessor(object)
	if err != nil {
		return err
	}
	m.SetResourceVersion(strconv.FormatInt(t.last.Add(1), 10))
	return nil
}

// same reports whether an object is there in the same form, but for its resourceVersion.
func (t *tracker) same(gvr schema.GroupVersionResource, object runtime.Object, namespace string) bool {
	m, err := meta.Accessor(object)
	if err != nil {
		return false
	}
	old, err := t.Get(gvr, namespace, m.GetName())
	if err != nil {
		return false
	}
	was, err := meta.Accessor(old)
	if err != nil {
		return false
	}
	was.SetResourceVersion(m.GetResourceVersion()) // of a copy
	was.SetManagedFields(m.GetManagedFields())     // which have a time
	return equality.Semantic.DeepEqual(old, object)
}
