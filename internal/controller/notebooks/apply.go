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

// shownFrom is the part of the idle time from which on a pod shows since when it is idle. A smaller part writes pods whenever somebody thinks.
const shownFrom = 4

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
		return fmt.Sprintf("its pod has not started for %v. At %s it is scaled to zero unless the pod starts before", v.plan.IdleFor.Round(time.Second), ends)
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
	reason, note := reasonParked, "scaled to zero after %v without work. A page that is opened through the activator brings it back"
	if !v.declared.Wakes {
		reason, note = reasonCulled, "scaled to zero after %v without work. It stays there until its owner scales it"
	}
	c.event(v, v1.EventTypeNormal, reason, "Park", fmt.Sprintf(note, v.plan.IdleFor.Round(time.Second)))
	v.plan.State = notebook.Parked
	return nil
}

// show writes on the pod since when it is idle and when it is parked, and removes what no longer holds.
func (c *Controller) show(ctx context.Context, v *visit) error {
	if v.pod == nil || v.lost != nil {
		return nil //nolint:nilerr // tellLost has told the loss
	}
	since, ends := "", ""
	if now := c.now(); v.plan.State == notebook.Warned || v.plan.State == notebook.Idle && v.plan.IdleFor >= v.declared.Idle/shownFrom {
		since = c.kept(v, v1alpha1.AnnotationNotebookIdleSince, now.Add(-v.plan.IdleFor))
		ends = c.kept(v, v1alpha1.AnnotationNotebookParksAt, now.Add(v.plan.ParksIn))
	}
	changes := map[string]any{}
	for key, want := range map[string]string{v1alpha1.AnnotationNotebookIdleSince: since, v1alpha1.AnnotationNotebookParksAt: ends} {
		switch now, there := v.pod.Annotations[key]; {
		case want == "" && there:
			changes[key] = nil
		case now != want:
			changes[key] = want
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

// kept returns a time as a pod shows it. What it shows already is kept where it is right within two looks.
func (c *Controller) kept(v *visit, key string, want time.Time) string {
	shown := v.pod.Annotations[key]
	if at, err := time.Parse(time.RFC3339, shown); err == nil && at.Sub(want).Abs() <= 2*c.options.Every {
		return shown
	}
	return want.UTC().Format(time.RFC3339)
}
