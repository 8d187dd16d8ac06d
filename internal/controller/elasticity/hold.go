package elasticity

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Reasons of targets, and of the condition Resizable, for gangs whose number a user holds.
const (
	reasonPaused = "Paused"
	reasonPinned = "Pinned"
)

// hold takes in what the annotation of the target says: whether the gang is paused, or the number that its user wants. The error names the
// annotation and its legal values.
func (g *elasticGang) hold() error {
	if g.target == nil {
		return nil
	}
	said := g.target.Annotations[v1alpha1.AnnotationSize]
	if g.paused = said == v1alpha1.SizePaused; g.paused || said == "" {
		return nil
	}
	n, err := strconv.Atoi(said)
	if err != nil || !slices.Contains(g.Sizes, n) {
		sizes := make([]string, len(g.Sizes))
		for i, size := range g.Sizes {
			sizes[i] = strconv.Itoa(size)
		}
		if len(sizes) > shownSizes {
			sizes = append(sizes[:shownSizes-1], "…", sizes[len(sizes)-1])
		}
		err := kube.Malformed(v1alpha1.AnnotationSize, said, fmt.Sprintf("legal is %s, or one of the numbers of %s: %s", v1alpha1.SizePaused, annotationName, strings.Join(sizes, ", ")))
		err.NothingWaits = true
		return err
	}
	g.pin = n
	return nil
}

// shownSizes bounds the legal numbers in a message.
const shownSizes = 12

// pausedVerdict says that a gang is not resized, since its user has paused it. Its owner is left alone too.
func pausedVerdict() verdict {
	return verdict{reason: reasonPaused, message: fmt.Sprintf("paused by the annotation %s of the ElasticTarget: the controller changes neither the number nor the members", v1alpha1.AnnotationSize)}
}

// held puts into words why a user's number is the target.
func (d *decision) held() (reason, message string) {
	if d.paused {
		return reasonPaused, d.resizable.message
	}
	message = fmt.Sprintf("the annotation %s of the ElasticTarget pins %d members", v1alpha1.AnnotationSize, d.pin)
	if d.workers < d.pin {
		message += fmt.Sprintf(", and there are members for %d", d.workers)
	}
	return reasonPinned, message
}
