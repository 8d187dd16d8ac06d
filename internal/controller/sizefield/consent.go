package sizefield

import (
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Consents returns nil where an object lets a gang change its number, else a *Refusal. Pods say themselves to whom they belong: otherwise, whoever may
// create pods in a namespace could have any object there resized.
//
// An object consents by the label with the gang's name on itself, or by a template of pods: for a gang by label one that makes its members, with the
// annotation by which the controller writes the number; for the gang of a PodGroup one that names the PodGroup, or one with the annotation that names
// no other gang: an operator may write the PodGroup's name into the pods alone.
func (o *Owner) Consents(gang string, byLabel bool) error {
	if o.Object.GetLabels()[v1alpha1.LabelGang] == gang || consents(o.Object.Object["spec"], gang, byLabel) {
		return nil
	}
	return &Refusal{NotGiven, fmt.Sprintf("%s has no template of pods with the label %s: %s and the annotation %s: %s, by which its owner lets the controller resize it for "+
		"this gang: add them, or the label to the object itself", o, v1alpha1.LabelGang, gang, v1alpha1.AnnotationElasticResize, v1alpha1.ResizeSizeFields)}
}

// consents reports whether a part of an object has a template that consents.
func consents(part any, gang string, byLabel bool) bool {
	switch part := part.(type) {
	case []any:
		for i := range part {
			if consents(part[i], gang, byLabel) {
				return true
			}
		}
	case map[string]any:
		labels := at(part, "metadata", "labels")
		resizes := at(part, "metadata", "annotations", v1alpha1.AnnotationElasticResize) == v1alpha1.ResizeSizeFields
		if byLabel && resizes && at(labels, v1alpha1.LabelGang) == gang {
			return true
		}
		if !byLabel && (at(labels, membership.LabelPodGroup) == gang || at(part, "spec", "schedulingGroup", "podGroupName") == gang || resizes && !namesAnother(part, gang)) {
			return true
		}
		for _, below := range part {
			if consents(below, gang, byLabel) {
				return true
			}
		}
	}
	return false
}

// namesAnother reports whether a template, or one in it, names another gang.
func namesAnother(part any, gang string) bool {
	switch part := part.(type) {
	case []any:
		return slices.ContainsFunc(part, func(below any) bool { return namesAnother(below, gang) })
	case map[string]any:
		for _, name := range []any{at(part, "labels", v1alpha1.LabelGang), at(part, "labels", membership.LabelPodGroup), at(part, "schedulingGroup", "podGroupName")} {
			if name != nil && name != "" && name != gang {
				return true
			}
		}
		for _, below := range part {
			if namesAnother(below, gang) {
				return true
			}
		}
	}
	return false
}
