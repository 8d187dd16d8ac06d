package elasticity

import (
	"context"
	"errors"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// resizer is a way to bring a gang to its size.
type resizer interface {
	// may says whether the controller may change the size of a gang. An error is of a request: the gang keeps its size.
	may(ctx context.Context, g *elasticGang) (verdict, error)
	// prepare is asked before a target changes. It corrects a decision that cannot be carried out.
	prepare(ctx context.Context, d *decision) error
	// resize brings the members to the size of a decision, as far as that goes now.
	resize(ctx context.Context, d *decision) error
}

// wayOf returns the way that the user of a gang chose.
func (p *pass) wayOf(g *elasticGang) resizer {
	if g.SizeFields {
		return sizeFields{p}
	}
	return heldMembers{p}
}

// heldMembers leaves the object that makes the members as it is: the scheduler holds back those that are too many, and those that
// run are evicted.
type heldMembers struct{ *pass }

func (h heldMembers) may(_ context.Context, g *elasticGang) (verdict, error) {
	v := h.listers.resizable(g)
	if !v.yes {
		return v, nil
	}
	if owner := metav1.GetControllerOf(g.all[0]); owner != nil {
		if pod := h.completions.of(owner.UID); pod != "" {
			return verdict{reason: reasonWorkerCompleted, message: fmt.Sprintf("pod %s ended with exit code 0 when it was evicted, so its Job counts it as "+
				"completed and does not make it anew: let the program end with another code after SIGTERM", pod)}, nil
		}
	}
	if c := completedBefore(g); c != nil {
		return verdict{reason: c.Reason, message: c.Message}, nil
	}
	return v, nil
}

// completedBefore returns the condition by which an earlier process said that a worker completed, nil for none. It is of this gang if a member is
// older than it.
func completedBefore(g *elasticGang) *metav1.Condition {
	if g.target == nil {
		return nil
	}
	c := meta.FindStatusCondition(g.target.Status.Conditions, v1alpha1.ConditionResizable)
	if c == nil || c.Reason != reasonWorkerCompleted || !slices.ContainsFunc(g.all, func(pod *v1.Pod) bool { return !pod.CreationTimestamp.After(c.LastTransitionTime.Time) }) {
		return nil
	}
	return c
}

func (heldMembers) prepare(context.Context, *decision) error { return nil }

// resize tells the surplus members when they are evicted, and evicts those whose time has come.
func (h heldMembers) resize(ctx context.Context, d *decision) error {
	var leave []*v1.Pod
	if d.resizable.yes {
		leave = d.surplus(d.workers)
	}
	due, err := h.notify(ctx, d, leave)
	errs := []error{err}
	kept := ""
	for _, pod := range due {
		err := h.evict(ctx, pod)
		errs = append(errs, err)
		if why := budgetIn(err); why != "" && kept == "" {
			kept = fmt.Sprintf("pod %s must leave, and stays: %s", pod.Name, why)
		}
	}
	h.tellBudget(d, kept, len(leave) > 0)
	return errors.Join(errs...)
}
