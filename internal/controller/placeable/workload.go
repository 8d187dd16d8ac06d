package placeable

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kueue is the version of Kueue's API that the package reads and writes: the one of Kueue 0.14.
var kueue = schema.GroupVersion{Group: "kueue.x-k8s.io", Version: "v1beta1"}

// Resources of Kueue that the package reads.
var (
	Workloads       = kueue.WithResource("workloads")
	AdmissionChecks = kueue.WithResource("admissionchecks")
	ResourceFlavors = kueue.WithResource("resourceflavors")
)

// Conditions of Workloads.
const (
	quotaReserved = "QuotaReserved"
	admitted      = "Admitted"
	evicted       = "Evicted"
	finished      = "Finished"
)

// State is the state of an AdmissionCheck of a Workload.
type State string

// States of Kueue's API.
const (
	// Pending: the Workload keeps its quota and waits for the check.
	Pending State = "Pending"
	// Ready: Kueue may start the pods.
	Ready State = "Ready"
	// Retry: the Workload gives its quota back, and Kueue tries it again later.
	Retry State = "Retry"
	// Rejected: Kueue deactivates the Workload.
	Rejected State = "Rejected"
)

// Workload is what the package reads of a Workload of Kueue. The names of the fields are those of its API.
type Workload struct {
	metav1.ObjectMeta `json:"metadata"`

	Spec struct {
		PodSets []PodSet `json:"podSets"`
		Active  *bool    `json:"active,omitempty"`
		// Priority is the one by which Kueue orders Workloads.
		Priority int32 `json:"priority,omitempty"`
	} `json:"spec"`
	Status struct {
		Admission *struct {
			PodSetAssignments []Assignment `json:"podSetAssignments"`
		} `json:"admission,omitempty"`
		AdmissionChecks []CheckState       `json:"admissionChecks,omitempty"`
		ReclaimablePods []Reclaimable      `json:"reclaimablePods,omitempty"`
		Conditions      []metav1.Condition `json:"conditions,omitempty"`
		RequeueState    *struct {
			Count int32 `json:"count,omitempty"`
		} `json:"requeueState,omitempty"`
	} `json:"status"`
}

// PodSet is pods of one template.
type PodSet struct {
	Name     string             `json:"name"`
	Template v1.PodTemplateSpec `json:"template"`
	Count    int32              `json:"count"`
}

// Assignment is the quota of a podset.
type Assignment struct {
	Name string `json:"name"`
	// Flavors are names of ResourceFlavors, by resource.
	Flavors map[v1.ResourceName]string `json:"flavors,omitempty"`
	// Count is how many of the pods have quota; nil stands for all.
	Count *int32 `json:"count,omitempty"`
}

// Reclaimable is how many pods of a podset need no quota any more, since they are done.
type Reclaimable struct {
	Name  string `json:"name"`
	Count int32  `json:"count"`
}

// reclaimable returns how many pods of a podset are done.
func (w *Workload) reclaimable(set *PodSet) int {
	for _, r := range w.Status.ReclaimablePods {
		if r.Name == set.Name {
			return int(min(max(0, r.Count), set.Count))
		}
	}
	return 0
}

// CheckState is the state of one AdmissionCheck.
type CheckState struct {
	Name               string      `json:"name"`
	State              State       `json:"state"`
	Message            string      `json:"message"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
}

// Flavor is what the pods of a ResourceFlavor get: labels that their nodes must have, and tolerations.
type Flavor struct {
	NodeLabels  map[string]string `json:"nodeLabels,omitempty"`
	Tolerations []v1.Toleration   `json:"tolerations,omitempty"`
}

// read decodes an object of Kueue.
func read[T any](object *unstructured.Unstructured, into *T) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
		return fmt.Errorf("read %s %s/%s: %w", object.GetKind(), object.GetNamespace(), object.GetName(), err)
	}
	return nil
}

// holdsQuota reports whether Kueue has reserved quota for a Workload that goes on.
func (w *Workload) holdsQuota() bool {
	return w.DeletionTimestamp == nil && (w.Spec.Active == nil || *w.Spec.Active) && meta.IsStatusConditionTrue(w.Status.Conditions, quotaReserved) &&
		!meta.IsStatusConditionTrue(w.Status.Conditions, evicted) && !meta.IsStatusConditionTrue(w.Status.Conditions, finished)
}

// reservedAt returns since when a Workload has its quota.
func (w *Workload) reservedAt() time.Time {
	if c := meta.FindStatusCondition(w.Status.Conditions, quotaReserved); c != nil {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// admittedAt returns since when Kueue lets a Workload run, the zero time where it does not.
func (w *Workload) admittedAt() time.Time {
	if c := meta.FindStatusCondition(w.Status.Conditions, admitted); c != nil && c.Status == metav1.ConditionTrue {
		return c.LastTransitionTime.Time
	}
	return time.Time{}
}

// check returns the check of these names that a Workload has: the first that waits for an answer, else the first that is not Ready, else the
// first. It is nil where the Workload has none of them.
func (w *Workload) check(names map[string]bool) *CheckState {
	var found *CheckState
	rank := func(c *CheckState) int { return slices.Index([]State{Ready, Retry, Rejected, Pending}, c.State) }
	for i := range w.Status.AdmissionChecks {
		if c := &w.Status.AdmissionChecks[i]; names[c.Name] && (found == nil || rank(c) > rank(found)) {
			found = c
		}
	}
	return found
}

// assigned returns how many pods of a podset have quota, and the flavors of the podset.
func (w *Workload) assigned(set *PodSet) (count int, flavors map[v1.ResourceName]string) {
	if w.Status.Admission != nil {
		for i := range w.Status.Admission.PodSetAssignments {
			if a := &w.Status.Admission.PodSetAssignments[i]; a.Name == set.Name {
				if a.Count != nil {
					return int(*a.Count), a.Flavors
				}
				return int(set.Count), a.Flavors
			}
		}
	}
	return int(set.Count), nil
}
