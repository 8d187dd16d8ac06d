package fleets

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/contest"
	"github.com/tandem-gpu/tandem/pkg/traffic"
)

// Reasons of the condition Ready for fleets whose sizes a user holds.
const (
	reasonPaused = "Paused"
	reasonPinned = "Pinned"
)

// held has a fleet keep the sizes that the annotation of its object says: all of them, or those of some variants. A pinned variant may have one
// number alone, so that all rules go on to hold. The error names the annotation and its legal values.
func held(f *traffic.Fleet, said string) error {
	if f.Paused = said == v1alpha1.SizePaused; f.Paused || said == "" {
		return nil
	}
	pinned, bounds := map[string]bool{}, make([]string, len(f.Variants))
	for i := range bounds {
		bounds[i] = fmt.Sprintf("%s from %d to %d", f.Variants[i].Name, f.Variants[i].Least, f.Variants[i].Most)
	}
	for word := range strings.SplitSeq(said, ",") {
		name, number, named := strings.Cut(strings.TrimSpace(word), "=")
		i := slices.IndexFunc(f.Variants, func(v traffic.Variant) bool { return v.Name == name })
		if !named || i < 0 || pinned[name] {
			return notHeld(bounds, said)
		}
		v := &f.Variants[i]
		n, err := strconv.Atoi(number)
		if err != nil || n < v.Least || n > v.Most {
			return notHeld(bounds, said)
		}
		pinned[name] = true
		v.Least, v.Most = n, n
	}
	return nil
}

// notHeld says what the annotation may have as its value. Bounds are those of the variants before one was pinned.
func notHeld(bounds []string, said string) error {
	name, _, _ := strings.Cut(bounds[0], " ")
	err := kube.Malformed(v1alpha1.AnnotationSize, said, fmt.Sprintf("legal is %s, or replicas of variants with commas between them, such as %s=1: %s",
		v1alpha1.SizePaused, name, strings.Join(bounds, ", ")))
	err.NothingWaits = true
	return err
}

// hold takes in what the annotation of the fleet says. Once it says something else, the fleet goes on as after a restart of the controller.
func (v *visit) hold(f *traffic.Fleet) error {
	said := v.object.Annotations[v1alpha1.AnnotationSize]
	if err := held(f, said); err != nil {
		return err
	}
	if v.memory.held != said {
		v.memory.decided = v.memory.decided.Afresh()
	}
	if v.memory.held != said || f.Paused { // a user may scale what is paused
		v.memory.replicas, v.memory.weights = map[string]*contest.Number{}, routeWeights{}
	}
	v.memory.held = said
	return nil
}

// paused says that a user has paused the fleet, nil where nobody has.
func (v *visit) paused() *refusal {
	if !v.fleet.Paused {
		return nil
	}
	return &refusal{reasonPaused, fmt.Sprintf("paused by the annotation %s: the controller writes neither sizes nor weights; %s", v1alpha1.AnnotationSize, v.because())}
}

// controlled says what the controller does with a fleet that is ready.
func (v *visit) controlled() (reason, message string) {
	if said := v.object.Annotations[v1alpha1.AnnotationSize]; said != "" {
		return reasonPinned, fmt.Sprintf("the annotation %s pins %s; the controller chooses the other sizes and the weights", v1alpha1.AnnotationSize, said)
	}
	return reasonControlled, "the controller chooses the sizes and the weights"
}
