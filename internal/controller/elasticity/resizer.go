package elasticity

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// may says whether the controller may change the size of a gang, in the way that its user chose. An error is of a request: the gang keeps its
// size.
func (p *pass) may(ctx context.Context, g *elasticGang) (verdict, error) {
	if g.paused { // its owner is not even read
		return pausedVerdict(), nil
	}
	if g.SizeFields {
		return p.mayWrite(ctx, g)
	}
	return p.mayHold(g), nil
}

// mayHold is for a gang whose owner stays as it is: the scheduler holds back the members that are too many, and those that run are evicted.
func (p *pass) mayHold(g *elasticGang) verdict {
	v := p.listers.resizable(g)
	if !v.yes {
		return v
	}
	if owner := metav1.GetControllerOf(g.all[0]); owner != nil {
		if pod := p.completions.of(owner.UID); pod != "" {
			return verdict{reason: reasonWorkerCompleted, message: fmt.Sprintf("pod %s ended with exit code 0 when it was evicted, so its Job counts it as "+
				"completed and does not make it anew: let the program end with another code after SIGTERM", pod)}
		}
	}
	if c := completedBefore(g); c != nil {
		return verdict{reason: c.Reason, message: c.Message}
	}
	return v
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
