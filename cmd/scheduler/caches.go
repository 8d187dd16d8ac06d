package main

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
)

// caches watches the caches that the stock scheduler reads, and logs for which the scheduler waits and why. It ends the
// scheduler when the API server goes on to refuse one: upstream waits for ever, without a message.
type caches struct {
	// look is the pause between two looks, say the time from the start of the caches to the first word, and from one to the next.
	look, say time.Duration
	// bound is how long the API server may refuse a resource before the scheduler ends. An administrator upgrades the
	// replicas of an API server one after the other, or applies a role, in less time.
	bound time.Duration
	// end ends the scheduler.
	end  func(error)
	once sync.Once
}

func newCaches(end func(error)) *caches {
	return &caches{look: time.Second, say: 5 * time.Second, bound: 2 * time.Minute, end: end}
}

// with has the caches of the scheduler watched that makes a plugin.
func (c *caches) with(factory frameworkruntime.PluginFactory) frameworkruntime.PluginFactory {
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		plugin, err := factory(ctx, args, handle)
		if err == nil && handle.KubeConfig() != nil {
			c.once.Do(func() { err = c.watch(ctx, handle) })
		}
		return plugin, err
	}
}

func (c *caches) watch(ctx context.Context, handle fwk.Handle) error {
	client, err := dynamic.NewForConfig(handle.KubeConfig())
	if err != nil {
		return fmt.Errorf("watch the scheduler's caches: %w", err)
	}
	go c.run(ctx, handle.SharedInformerFactory(), client)
	return nil
}

// run looks until the caches are full or ctx ends.
func (c *caches) run(ctx context.Context, factory informers.SharedInformerFactory, client dynamic.Interface) {
	tick := time.NewTicker(c.look)
	defer tick.Stop()
	var said time.Time
	refused := map[schema.GroupVersionResource]time.Time{} // since when
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		waiting, started := unfilled(factory)
		switch {
		case !started:
			continue
		case len(waiting) == 0:
			return
		case said.IsZero():
			said = time.Now()
		}
		if time.Since(said) < c.say {
			continue
		}
		said = time.Now()
		if err := c.tell(ctx, client, waiting, refused); err != nil {
			c.end(err)
			return
		}
	}
}

// unfilled returns the resources whose caches still wait for their first list, and whether any cache has started.
func unfilled(factory informers.SharedInformerFactory) (waiting []schema.GroupVersionResource, started bool) {
	now, stop := context.WithCancel(context.Background())
	stop() // only the first answer counts
	synced := factory.WaitForCacheSync(now.Done())
	for kind, filled := range synced {
		if !filled {
			waiting = append(waiting, resourceOf(kind))
		}
	}
	slices.SortFunc(waiting, func(a, b schema.GroupVersionResource) int { return strings.Compare(a.String(), b.String()) })
	return waiting, len(synced) > 0
}

// resourceOf returns the resource of an API type, by its Go name where it is none of Kubernetes'.
func resourceOf(kind reflect.Type) schema.GroupVersionResource {
	if object, ok := reflect.New(kind.Elem()).Interface().(runtime.Object); ok {
		if kinds, _, err := scheme.Scheme.ObjectKinds(object); err == nil && len(kinds) > 0 {
			resource, _ := meta.UnsafeGuessKindToResource(kinds[0])
			return resource
		}
	}
	return schema.GroupVersionResource{Resource: kind.String()}
}

// tell logs for what the scheduler waits, and why, by the answer to one request. The error says what the API server has
// refused for longer than the bound.
func (c *caches) tell(ctx context.Context, client dynamic.Interface, waiting []schema.GroupVersionResource, refused map[schema.GroupVersionResource]time.Time) error {
	maps.DeleteFunc(refused, func(r schema.GroupVersionResource, _ time.Time) bool { return !slices.Contains(waiting, r) })
	for _, r := range waiting {
		why := ask(ctx, client, r)
		klog.InfoS("Waiting for the objects of a resource before any pod is scheduled", "resource", r.Resource, "version", r.GroupVersion().String(), "why", words(why))
		if !apierrors.IsNotFound(why) && !apierrors.IsForbidden(why) {
			delete(refused, r)
			continue
		}
		if refused[r].IsZero() {
			refused[r] = time.Now()
		}
		if waited := time.Since(refused[r]); waited >= c.bound {
			return fmt.Errorf("the scheduler waited %v for %s of %s: %s", waited.Round(time.Second), r.Resource, r.GroupVersion(), words(why))
		}
	}
	return nil
}

// ask makes the first request of a cache, for one object.
func ask(ctx context.Context, client dynamic.Interface, r schema.GroupVersionResource) error {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	_, err := client.Resource(r).List(ctx, metav1.ListOptions{Limit: 1})
	return err
}

// words says why a cache is empty.
func words(why error) string {
	switch {
	case why == nil:
		return "the API server serves them; they are being read"
	case apierrors.IsNotFound(why):
		return "the API server does not serve them: serve them, or switch off the feature gate of this scheduler that reads them"
	}
	return why.Error()
}
