package fleets

import (
	"context"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Reasons of the condition Ready of a fleet whose replicas a WorkloadProfile describes.
const (
	reasonProfileUnnamed = "ProfileUnnamed"
	reasonProfileMissing = "ProfileMissing"
	reasonProfileLacks   = "ProfileIncomplete"
	reasonModelUnknown   = "ModelUnknown"
)

// mostListed bounds how many shares a message lists. A profile may have 64, and the user knows which one to add from a few.
const mostListed = 6

// description is how a replica of a variant serves, and what says it.
type description struct {
	*v1alpha1.FleetReplica
	// of is the profile with GPU model and share: `WorkloadProfile bert, A100 at 50 percent`; empty where the variant itself says it.
	of string
}

// inMessage puts the profile before a message about a description.
func (d *description) inMessage(err error) error {
	if err == nil || d.of == "" {
		return err
	}
	return fmt.Errorf("%s: %w", d.of, err)
}

// learnSlots notes how many slots devices have, by GPU model. A model whose nodes are gone keeps its number: the fleet is sized as before. If
// nodes differ, the largest number counts.
func (c *Controller) learnSlots(nodes []v1alpha1.GPUNode) {
	now := map[string]int32{}
	for i := range nodes {
		for k := range nodes[i].Status.Devices {
			d := &nodes[i].Status.Devices[k]
			now[d.Model] = max(now[d.Model], d.Slots)
		}
	}
	for model, slots := range now {
		c.slots[model] = slots
	}
}

// describe returns how a replica of each variant serves. A refusal says what is missing; an error is of a request.
func (v *visit) describe(ctx context.Context) ([]description, *refusal, error) {
	all := make([]description, len(v.object.Spec.Variants))
	for i := range all {
		declared := &v.object.Spec.Variants[i]
		if all[i].FleetReplica = declared.Replica; declared.Replica != nil {
			continue
		}
		var problem *refusal
		var err error
		if all[i], problem, err = v.fromProfile(ctx, declared); err != nil {
			return nil, nil, fmt.Errorf("variant %s: %w", declared.Name, err)
		}
		if problem != nil {
			return nil, &refusal{problem.reason, fmt.Sprintf("variant %s: %s", declared.Name, problem.message)}, nil
		}
	}
	return all, nil, nil
}

// fromProfile returns what the profile of a variant says of its GPU model and share.
func (v *visit) fromProfile(ctx context.Context, declared *v1alpha1.FleetVariant) (d description, problem *refusal, err error) {
	name := declared.Profile
	if name == "" {
		if name, problem, err = v.labelled(ctx, &declared.ScaleTargetRef); err != nil || problem != nil {
			return d, problem, err
		}
	}
	var profile v1alpha1.WorkloadProfile
	switch err := v.options.Client.Get(ctx, client.ObjectKey{Namespace: v.object.Namespace, Name: name}, &profile); {
	case apierrors.IsNotFound(err):
		return d, &refusal{reasonProfileMissing, fmt.Sprintf("WorkloadProfile %s does not exist: create it, correct profile, or declare replica", name)}, nil
	case err != nil:
		return d, nil, fmt.Errorf("read WorkloadProfile %s: %w", name, err)
	}
	of := v.slots[declared.GPUModel]
	if of <= 0 {
		return d, &refusal{reasonModelUnknown, fmt.Sprintf("no GPUNode has a device of the model %s, so that it is unknown which share of it %d slots are: correct gpuModel (kubectl get gpunodes -o yaml shows the models), or declare replica",
			declared.GPUModel, declared.Slots)}, nil
	}
	share := percent(declared.Slots, of)
	at := slices.IndexFunc(profile.Spec.Serving, func(s v1alpha1.ProfileServing) bool { return s.Model == declared.GPUModel && s.SharePercent == share })
	if at < 0 {
		return d, &refusal{reasonProfileLacks, fmt.Sprintf("WorkloadProfile %s does not say how a replica serves on %s at %d percent, which %d slots of %d are. It has %s: add an entry to its spec.serving, correct gpuModel or slots, or declare replica",
			name, declared.GPUModel, share, declared.Slots, of, listed(profile.Spec.Serving))}, nil
	}
	return description{&profile.Spec.Serving[at].Replica, fmt.Sprintf("WorkloadProfile %s, %s at %d percent", name, declared.GPUModel, share)}, nil, nil
}

// labelled returns the profile that the pods of a scale target name by their label.
func (v *visit) labelled(ctx context.Context, ref *v1alpha1.FleetScaleTarget) (string, *refusal, error) {
	labels, problem, err := v.scales.podLabels(ctx, v.object.Namespace, ref)
	if err != nil || problem != nil {
		return "", problem, err
	}
	name := labels[v1alpha1.LabelProfile]
	if name == "" {
		return "", &refusal{reasonProfileUnnamed, fmt.Sprintf("it has neither replica nor profile, and the pod template of %s %s has no label %s: add one of the three", ref.Kind, ref.Name, v1alpha1.LabelProfile)}, nil
	}
	return name, nil, nil
}

// percent returns the share that slots are of a device with so many, in whole percents.
//
// Example: 1 slot of 7 is 14 percent.
func percent(slots, of int32) int32 {
	return max(1, (200*slots+of)/(2*of))
}

// listed names the shares that a profile describes: "A100 at 50 percent, T4 at 100 percent".
func listed(all []v1alpha1.ProfileServing) string {
	if len(all) == 0 {
		return "no spec.serving"
	}
	words := make([]string, 0, mostListed)
	for i := range all[:min(len(all), mostListed)] {
		words = append(words, fmt.Sprintf("%s at %d percent", all[i].Model, all[i].SharePercent))
	}
	if more := len(all) - mostListed; more > 0 {
		words = append(words, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(words, ", ")
}
