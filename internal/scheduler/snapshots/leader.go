package snapshots

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// Lease names the lease whose holder schedules.
type Lease struct{ Namespace, Name string }

// leaseKept is how long the holder of the lease counts as known. Longer serves the state of a scheduler that schedules no more;
// shorter asks the API server more often while somebody polls.
const leaseKept = 2 * time.Second

// leader knows which scheduler schedules.
type leader struct {
	client coordinationv1.LeasesGetter
	lease  Lease
	// self is how the holder's identity begins where it is this scheduler: kube-scheduler joins its host's name and a random UUID.
	self string
	now  func() time.Time

	mu     sync.Mutex
	holder string
	until  time.Time
}

func newLeader(client coordinationv1.LeasesGetter, lease Lease) (*leader, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("find out the name of this host: %w", err)
	}
	return &leader{client: client, lease: lease, self: host + "_", now: time.Now}, nil
}

// leads reports whether this scheduler schedules; otherwise it returns the identity of the one that does, "" for none.
func (l *leader) leads(ctx context.Context) (bool, string, error) {
	if l == nil { // without leader election
		return true, "", nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.now().Before(l.until) {
		lease, err := l.client.Leases(l.lease.Namespace).Get(ctx, l.lease.Name, metav1.GetOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			return false, "", fmt.Errorf("find out who schedules: %w", err)
		}
		l.holder = ""
		if err == nil && lease.Spec.HolderIdentity != nil {
			l.holder = *lease.Spec.HolderIdentity
		}
		l.until = l.now().Add(leaseKept)
	}
	return strings.HasPrefix(l.holder, l.self), l.holder, nil
}
