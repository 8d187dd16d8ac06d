package snapshots

import (
	"context"
	"slices"
	"sync"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/util/workqueue"

	"github.com/tandem-gpu/tandem/internal/cluster/guarded"
)

// askAtOnce bounds the SubjectAccessReviews under way for one request. More answers a caller sooner who may see few of many
// namespaces, and is more load for the API server.
const askAtOnce = 16

// visible returns those of the namespaces in which a caller may list pods, in order, and whether it may in all of the cluster.
// It asks about the cluster first, so that most administrators cost one question.
func visible(ctx context.Context, who user.Info, asks guarded.Authorizer, namespaces []string) (sees []string, all bool, err error) {
	if all, err = guarded.MayList(ctx, who, asks, ""); err != nil || all {
		return nil, all, err
	}
	var mu sync.Mutex
	workqueue.ParallelizeUntil(ctx, askAtOnce, len(namespaces), func(i int) {
		may, failure := false, error(nil)
		if namespaces[i] != "" { // would be a question about all
			may, failure = guarded.MayList(ctx, who, asks, namespaces[i])
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
