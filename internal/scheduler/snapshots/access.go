package snapshots

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/client-go/util/workqueue"
)

// Authorizer says what a caller may do. That of kube-scheduler asks the API server by SubjectAccessReviews, and keeps the
// answers for ten seconds.
type Authorizer interface {
	Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error)
}

// askAtOnce bounds the SubjectAccessReviews under way for one request. More answers a caller sooner who may see few of many
// namespaces, and is more load for the API server.
const askAtOnce = 16

// visible returns those of the namespaces in which a caller may list pods, in order, and whether it may in all of the cluster.
// It asks about the cluster first, so that most administrators cost one question.
func visible(ctx context.Context, who user.Info, asks Authorizer, namespaces []string) (sees []string, all bool, err error) {
	if all, err = mayList(ctx, who, asks, ""); err != nil || all {
		return nil, all, err
	}
	var mu sync.Mutex
	workqueue.ParallelizeUntil(ctx, askAtOnce, len(namespaces), func(i int) {
		may, failure := false, error(nil)
		if namespaces[i] != "" { // would be a question about all
			may, failure = mayList(ctx, who, asks, namespaces[i])
		}
		mu.Lock()
		defer mu.Unlock()
		if failure != nil {
			err = failure
		}
		if may {
			sees = append(sees, namespaces[i])
		}
	})
	if ctx.Err() != nil {
		err = ctx.Err() // some were not asked
	}
	slices.Sort(sees)
	return sees, false, err
}

func mayList(ctx context.Context, who user.Info, asks Authorizer, namespace string) (bool, error) {
	decision, _, err := asks.Authorize(ctx, authorizer.AttributesRecord{
		User: who, Verb: "list", Namespace: namespace, APIVersion: "v1", Resource: "pods", ResourceRequest: true,
	})
	if decision == authorizer.DecisionAllow {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("ask whether the caller may list pods: %w", err)
	}
	return false, nil
}
