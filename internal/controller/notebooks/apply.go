package notebooks

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/tandem-gpu/tandem/internal/cluster/parking"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/notebook"
)

// Reasons of events.
const (
	reasonInvalid     = "NotebookInvalid"
	reasonUnreachable = "NotebookUnreachable"
	reasonWarned      = "NotebookIdle"
	reasonParked      = "NotebookParked"
	reasonCulled      = "NotebookCulled"
)

// fieldManager is the controller's name towards the API server.
const fieldManager = "tandem-controller"

// tellLost tells once that a notebook has not answered for several looks.
func (c *Controller) tellLost(v *visit) {
	m := v.memory
	result := lookAnswered
	switch {
	case v.lost != nil:
		m.lost++
		if result = v.lost.result; result == lookMissing {
			result = lookMalformed
		}
		if m.lost == lostLooks {
			c.event(v, v1.EventTypeWarning, reasonUnreachable, "Look", v.lost.message+". It is unknown what works in the notebook, so that it is not parked")
		}
	case v.seen.Phase == notebook.PhaseServing:
		m.lost, m.said = 0, ""
	default:
		m.lost, m.said = 0, ""
		return // nobody was asked
	}
	c.metrics.looks.WithLabelValues(result).Inc()
}

// apply carries out a plan.
func (c *Controller) apply(ctx context.Context, v *visit) error {
	if v.plan.Warn {
		c.metrics.warnings.Inc()
		c.event(v, v1.EventTypeWarning, reasonWarned, "Warn", c.warning(v))
	}
	if v.plan.Park {
		return c.park(ctx, v)
	}
	return c.show(ctx, v)
}

// warning is what the owner is told before the end.
func (c *Controller) warning(v *visit) string {
	ends := c.now().Add(v.plan.ParksIn).UTC().Format(time.RFC3339)
	if v.seen.Phase == notebook.PhaseStarting {
		what := "its pod has not started"
		if v.pod != nil && parking.Crashes(v.pod) {
			what = "its container has ended each time that it started"
		}
		return fmt.Sprintf("%s for %v. At %s it is scaled to zero unless the pod starts before", what, v.plan.IdleFor.Round(time.Second), ends)
	}
	return fmt.Sprintf("no kernel, terminal or GPU has worked for %v. At %s the pod ends, and what its kernels have in memory is lost, unless something works before; "+
		"files of volumes stay", v.plan.IdleFor.Round(time.Second), ends)
}

// park scales the workload to zero.
func (c *Controller) park(ctx context.Context, v *visit) error {
	err := parking.Park(ctx, c.options.Kube, v.Workload, fieldManager)
	c.metrics.parked(err)
	if err != nil {
		return utilerrors.FilterOut(err, parking.IsStale) // the next pass looks at what the size is now
	}
	v.memory.replicas.Wrote(v.Replicas, 0, c.now())
	reason, note := reasonParked, "scaled to zero after %v without work. A page that is opened through the activator brings it back"
	if !v.declared.Wakes {
		reason, note = reasonCulled, "scaled to zero after %v without work. It stays there until its owner scales it"
	}
	c.event(v, v1.EventTypeNormal, reason, "Park", fmt.Sprintf(note, v.plan.IdleFor.Round(time.Second)))
	v.plan.State = notebook.Parked
	return nil
}

// shown is what a pod shows of its note. A time that is malformed is none.
func shown(p *v1.Pod) notebook.Note {
	read := func(key string) time.Time {
		at, err := time.Parse(time.RFC3339, p.Annotations[key])
		if err != nil {
			return time.Time{}
		}
		return at
	}
	return notebook.Note{IdleSince: read(v1alpha1.AnnotationNotebookIdleSince), ParksAt: read(v1alpha1.AnnotationNotebookParksAt)}
}

// show has the pod show its note: since when it is idle and when it is parked.
func (c *Controller) show(ctx context.Context, v *visit) error {
	if v.pod == nil {
		return nil
	}
	changes := map[string]any{}
	note := shown(v.pod)
	for key, at := range map[string]struct{ now, want time.Time }{
		v1alpha1.AnnotationNotebookIdleSince: {note.IdleSince, v.plan.Note.IdleSince},
		v1alpha1.AnnotationNotebookParksAt:   {note.ParksAt, v.plan.Note.ParksAt},
	} {
		switch _, there := v.pod.Annotations[key]; {
		case at.want.IsZero() && there:
			changes[key] = nil
		case !at.want.Equal(at.now):
			changes[key] = at.want.UTC().Format(time.RFC3339)
		}
	}
	if len(changes) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": v.pod.UID, "annotations": changes}})
	if err != nil {
		return err
	}
	_, err = c.options.Kube.CoreV1().Pods(v.Namespace).Patch(ctx, v.pod.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: fieldManager})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) { // another pod of the same name is looked at in the next pass
		return fmt.Errorf("annotate pod %s: %w", v.pod.Name, err)
	}
	return nil
}
