// Package served finds out which resources an API server has, at start and from then on.
//
// A read of a resource that the API server lacks never succeeds, and an informer for it waits for ever without a
// message. So a program that can do without a resource queries the API server first.
package served

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
)

// Set says of each resource of a query whether the API server has it.
type Set map[schema.GroupVersionResource]bool

// Ask finds out which of some resources an API server has: one request for each version of a group.
func Ask(ctx context.Context, client discovery.DiscoveryInterface, resources ...schema.GroupVersionResource) (Set, error) {
	asked := discovery.ToDiscoveryInterfaceWithContext(client)
	lists, set := map[schema.GroupVersion][]metav1.APIResource{}, Set{}
	for _, r := range resources {
		version := r.GroupVersion()
		if _, known := lists[version]; !known {
			list, err := asked.ServerResourcesForGroupVersionWithContext(ctx, version.String())
			switch {
			case apierrors.IsNotFound(err):
				lists[version] = nil
			case err != nil:
				return nil, fmt.Errorf("discover %s of %s: %w", r.Resource, version, err)
			default:
				lists[version] = list.APIResources
			}
		}
		set[r] = slices.ContainsFunc(lists[version], func(found metav1.APIResource) bool { return found.Name == r.Resource })
	}
	return set, nil
}

// Patience bounds the retries for an API server that does not answer.
type Patience struct {
	// Within bounds the time from the first question to the last.
	Within time.Duration
	// First is the pause after the first question; each later one is twice as long, up to Most.
	First, Most time.Duration
	// Note is called by Await with the error of each failed request and the pause that follows it, 0 after the last;
	// nil for no call.
	Note func(err error, pause time.Duration)
}

// Await retries until the API server answers, and gives up in the end: the error is that of the last request.
func Await(ctx context.Context, client discovery.DiscoveryInterface, p Patience, resources ...schema.GroupVersionResource) (Set, error) {
	started, pause := time.Now(), p.First
	for asked := 1; ; asked++ {
		set, err := Ask(ctx, client, resources...)
		if err == nil {
			return set, nil
		}
		last := time.Since(started)+pause > p.Within
		if last {
			pause = 0
		}
		if p.Note != nil {
			p.Note(err, pause)
		}
		if last {
			return nil, fmt.Errorf("ask the API server %d times within %v: %w", asked, p.Within, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("ask the API server: %w", ctx.Err())
		case <-time.After(pause):
		}
		pause = min(2*pause, p.Most)
	}
}

const (
	// jitter is the largest part by which a pause is longer than given, so that the replicas of a scheduler do not send
	// their requests at the same time.
	jitter = 0.2
	// missed is how many requests in a row must find that a resource is gone. During an upgrade of the API server, some
	// replicas have it and some do not.
	missed = 4
)

// Changed waits until an API server has a resource that it did not have before, or has lost one for four requests in a
// row. It returns the resources of that time. Changed sends a request after every pause, up to a fifth longer; a failed
// request counts for nothing, and the next one follows after the next pause. Changed returns false when ctx ends.
func Changed(ctx context.Context, client discovery.DiscoveryInterface, before Set, pause time.Duration) (Set, bool) {
	resources := slices.SortedFunc(maps.Keys(before), func(a, b schema.GroupVersionResource) int {
		return slices.Compare([]string{a.Group, a.Version, a.Resource}, []string{b.Group, b.Version, b.Resource})
	})
	gone := map[schema.GroupVersionResource]int{}
	for {
		select {
		case <-ctx.Done():
			return nil, false
		case <-time.After(wait.Jitter(pause, jitter)):
		}
		now, err := Ask(ctx, client, resources...)
		if err != nil {
			continue
		}
		for _, r := range resources {
			switch {
			case now[r] == before[r]:
				gone[r] = 0
				continue
			case before[r]:
				gone[r]++
			}
			if now[r] || gone[r] >= missed {
				return now, true
			}
		}
	}
}
