package gpugang

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// A half-bound member that the API server can mark no more is deleted, which it says once the budgets agreed. One that a budget
// keeps, or a policy, stays, and an event says that it is evicted only once it is.
func TestReleaseOfWhatCannotBeMarked(t *testing.T) {
	kind := schema.GroupKind{Kind: "Pod"}
	for name, test := range map[string]struct {
		refusal error
		left    int
	}{
		"too long": {apierrors.NewInvalid(kind, "p", field.ErrorList{field.TooLong(field.NewPath("metadata", "annotations"), "", 256<<10)}), 0},
		"budget":   {apierrors.NewTooManyRequests("the budget allows none", 1), 1},
		"policy":   {apierrors.NewInvalid(kind, "p", nil), 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t, 1, 1)
				c.RefuseBinds(func(pod string) error {
					if pod == "train-1" {
						return apierrors.NewForbidden(v1.Resource("pods/binding"), pod, errors.New("by a test"))
					}
					return nil
				})
				c.Create(members("train", 2, 2, 10)...)
				c.AwaitBound("train", 1)
				c.mu.Lock()
				c.refuseEviction = test.refusal
				c.mu.Unlock()
				c.Clock.Pass(6 * time.Minute)
				if test.left > 0 {
					c.Await("the member is asked to go", func() bool { return c.evictions.Load() > 1 })
					if got := len(c.Bound("train")); got != test.left {
						t.Errorf("%d members are bound, want %d", got, test.left)
					}
					if got := c.eventsOf("GangReleased"); len(got) > 0 {
						t.Errorf("said %q of a member that stays", got)
					}
					c.mu.Lock()
					c.refuseEviction = nil
					c.mu.Unlock()
				}
				c.AwaitBound("train", 0)
				if got := c.eventsOf("GangReleased"); len(got) != 1 || !strings.HasPrefix(got[0], "train-0: gang default/train had fewer than 2 of its members bound") {
					t.Errorf("said %q", got)
				}
			})
		})
	}
}
