// Package served finds out which resources an API server has, at start and from then on.
//
// What a program reads of a resource that is not served never comes, and an informer for it waits for ever without a word: so
// whoever can do without a resource asks first.
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

// Set says of each resource that was asked for whether the API server has it.
type Set map[schema.GroupVersionResource]bool

// Ask asks an API server which of some resources it has: one question for each version of a group.
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

// Patience says how long an API server that does not answer is asked again.
type Patience struct {
	// Within bounds the time from the first question to the last.
	Within time.Duration
	// First is the pause after the first question; each later one is twice as long, up to Most.
	First, Most time.Duration
	// Note is called with each question that failed and the pause that follows it, 0 after the last; nil for nobody.
	Note func(err error, pause time.Duration)
}

// Await asks until the API server answers, and gives up in the end: the error is that of the last question.
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
	// jitter is the largest part by which the pause between two questions is longer than said: replicas of a scheduler do not
	// ask in step.
	jitter = 0.2
	// missed is how many questions in a row must find that a resource is gone: while replicas of the API server are upgraded
	// one after the other, some have it and some do not.
	missed = 4
)

// Changed waits until an API server has a resource that it did not have before, or for four questions in a row no longer has
// one that it had, and returns what it has then. It asks after every pause, up to a fifth longer; a question that fails is asked
// again after the next and counts for nothing. It returns false when ctx ends.
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
