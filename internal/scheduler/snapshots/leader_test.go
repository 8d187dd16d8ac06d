package snapshots

import (
	"testing"
	"time"

	coordination "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

// The holder of the lease leads, by the name of its host; others learn who it is, and do so again after a while.
func TestLeader(t *testing.T) {
	holder := "host-1_uuid"
	lease := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "lease"}, Spec: coordination.LeaseSpec{HolderIdentity: &holder}}
	client, now := fake.NewClientset(lease), time.Unix(1e9, 0)
	as := func(host, name string) *leader {
		return &leader{client: client.CoordinationV1(), lease: Lease{"ns", name}, self: host + "_", now: func() time.Time { return now }}
	}
	expect := func(what string, l *leader, leads bool, holder string) {
		t.Helper()
		got, by, err := l.leads(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if got != leads || by != holder {
			t.Errorf("%s: leads %v, the holder is %q; want %v, %q", what, got, by, leads, holder)
		}
	}
	follower := as("host-10", "lease")
	expect("the holder", as("host-1", "lease"), true, holder)
	expect("another host", follower, false, holder)
	expect("without a lease", as("host-1", "none"), false, "")
	expect("without leader election", nil, true, "")
	next := "host-10_uuid"
	lease.Spec.HolderIdentity = &next
	if _, err := client.CoordinationV1().Leases("ns").Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	expect("a moment later", follower, false, holder)
	expect("a host whose name begins that of the holder", as("host-1", "lease"), false, next)
	now = now.Add(leaseKept)
	expect("after a while", follower, true, next)
}
