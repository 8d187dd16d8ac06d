package placeable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// active is the condition without which Kueue does not use an AdmissionCheck.
const active = "Active"

// Reasons of the condition.
const (
	reasonActive          = "Active"
	reasonParametersGiven = "ParametersGiven"
)

// retellAfter is the least time between two messages that leave the state as it is. Shorter writes more while the cluster changes.
const retellAfter = 30 * time.Second

// activate returns the names of the AdmissionChecks that are the controller's, and says in them that it answers them.
func (c *Controller) activate(ctx context.Context) (map[string]bool, error) {
	objects, err := c.checks.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list AdmissionChecks: %w", err)
	}
	names := map[string]bool{}
	var errs []error
	for _, object := range objects {
		var check admissionCheck
		u := object.(*unstructured.Unstructured)
		if err := read(u, &check); err != nil {
			errs = append(errs, err)
			continue
		}
		if check.Spec.ControllerName != v1alpha1.ControllerPlaceable {
			continue
		}
		names[check.Name] = true
		if meta.SetStatusCondition(&check.Status.Conditions, check.condition(c.now())) {
			status := map[string]any{"conditions": check.Status.Conditions}
			_, err := c.patch(ctx, AdmissionChecks, u, status)
			errs = append(errs, err)
		}
	}
	return names, errors.Join(errs...)
}

// admissionCheck is what the package reads of an AdmissionCheck.
type admissionCheck struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		ControllerName string         `json:"controllerName"`
		Parameters     map[string]any `json:"parameters,omitempty"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions,omitempty"`
	} `json:"status"`
}

// condition says whether the controller answers a check.
func (a *admissionCheck) condition(now time.Time) metav1.Condition {
	c := metav1.Condition{Type: active, Status: metav1.ConditionTrue, Reason: reasonActive, Message: "Tandem's controller answers this check",
		ObservedGeneration: a.Generation, LastTransitionTime: metav1.NewTime(now)}
	if len(a.Spec.Parameters) > 0 {
		c.Status, c.Reason = metav1.ConditionFalse, reasonParametersGiven
		c.Message = "spec.parameters: the check has no parameters: remove the field"
	}
	return c
}

// write writes an answer into the status of a Workload.
func (c *Controller) write(ctx context.Context, w *visit, a Answer) error {
	now := c.now()
	if a.State == w.check.State && (a.Message == w.check.Message || now.Sub(c.told[w.UID]) < retellAfter) {
		return nil
	}
	status, err := w.answered(a, now)
	if err != nil {
		return err
	}
	if done, err := c.patch(ctx, Workloads, w.object, status); err != nil || !done {
		return err
	}
	c.told[w.UID] = now
	c.metrics.answers.WithLabelValues(string(a.State)).Inc()
	return nil
}

// answered returns the fields of the status that an answer changes: it is that of all checks of the controller that wait for one.
func (w *visit) answered(a Answer, now time.Time) (map[string]any, error) {
	checks, _, err := unstructured.NestedSlice(w.object.Object, "status", "admissionChecks")
	if err != nil {
		return nil, fmt.Errorf("read status.admissionChecks: %w", err)
	}
	for _, raw := range checks {
		check, is := raw.(map[string]any)
		if name, _ := check["name"].(string); !is || !w.names[name] || name != w.check.Name && check["state"] != string(Pending) {
			continue
		}
		if check["state"] != string(a.State) {
			check["lastTransitionTime"] = now.UTC().Format(time.RFC3339)
		}
		check["state"], check["message"] = string(a.State), a.Message
	}
	status := map[string]any{"admissionChecks": checks}
	if a.State == Retry { // Kueue tries the Workload at once where its status names no time
		tries := int32(0)
		if r := w.Status.RequeueState; r != nil {
			tries = r.Count
		}
		status["requeueState"] = map[string]any{"count": tries + 1, "requeueAt": now.Add(backoff(tries)).UTC().Format(time.RFC3339)}
	}
	return status, nil
}

// patch changes the status of an object, unless it has changed since it was read: the next pass looks at it again then.
func (c *Controller) patch(ctx context.Context, resource schema.GroupVersionResource, object *unstructured.Unstructured, status map[string]any) (done bool, err error) {
	raw, err := json.Marshal(map[string]any{"metadata": map[string]any{"resourceVersion": object.GetResourceVersion()}, "status": status})
	if err != nil {
		return false, fmt.Errorf("encode a status: %w", err)
	}
	_, err = c.options.Dynamic.Resource(resource).Namespace(object.GetNamespace()).Patch(ctx, object.GetName(), types.MergePatchType, raw, metav1.PatchOptions{}, "status")
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}
