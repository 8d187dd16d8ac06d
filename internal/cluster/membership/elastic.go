package membership

import (
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
)

const legalSizes = "it must be a range such as 2-8, a range in steps such as 2-8/2, or an ascending list such as 1,2,4,8: " +
	"numbers of members from 1 to 10000, at most 256 of them (1-1000/4 has 250), the first one the least number of members of the gang"

// ElasticSizes returns the numbers of members with which a gang may run, ascending, by its annotations; nil for a gang
// that is not elastic. The first one is minCount. The error is a *FieldError.
func ElasticSizes(annotations map[string]string, minCount int) ([]int, error) {
	raw, ok := annotations[v1alpha1.AnnotationElasticWorkers]
	if !ok {
		return nil, nil
	}
	sizes, legal := elastic.ParseSizes(raw, MaxMinMembers)
	switch {
	case !legal:
		return nil, kube.Malformed(v1alpha1.AnnotationElasticWorkers, raw, legalSizes)
	case sizes[0] != minCount:
		return nil, kube.Malformed(v1alpha1.AnnotationElasticWorkers, raw,
			fmt.Sprintf("its least number is %d, and the least number of members of the gang is %d: they must be the same", sizes[0], minCount))
	}
	return sizes, nil
}

const legalResize = "it must be " + v1alpha1.ResizeHeldMembers + ", where the scheduler holds members back and the controller evicts them, or " +
	v1alpha1.ResizeSizeFields + ", where the controller writes the number into the object that makes the members"

// BySizeFields reports whether the controller resizes an elastic gang by the fields of the object that makes its members, by
// the annotations of the gang. The error is a *FieldError.
func BySizeFields(annotations map[string]string) (bool, error) {
	raw, ok := annotations[v1alpha1.AnnotationElasticResize]
	switch {
	case !ok:
		return false, nil
	case raw != v1alpha1.ResizeHeldMembers && raw != v1alpha1.ResizeSizeFields:
		return false, kube.Malformed(v1alpha1.AnnotationElasticResize, raw, legalResize)
	}
	if _, elastic := annotations[v1alpha1.AnnotationElasticWorkers]; !elastic {
		return false, kube.Malformed(v1alpha1.AnnotationElasticResize, raw,
			"it is for elastic gangs, and the annotation "+v1alpha1.AnnotationElasticWorkers+" is missing: set that one too, or remove this one")
	}
	return raw == v1alpha1.ResizeSizeFields, nil
}

// Worker is a member of an elastic gang that exists and has not ended.
type Worker struct {
	Rank
	// OnNode says that it has a node, Leaving that it has a deletion timestamp.
	OnNode, Leaving bool
}

// Surplus says which members are too many for a number of them: held are those that should get no node, leave are those
// that should give theirs back. The members are in the order of their ranks, and so are the results, by index. Those that
// should leave are the last ones of all that run: no more than are too many.
//
// If a controller numbers all members alike, those below the number may get a node: a member that comes back has its
// place. In other gangs the names of the pods say nothing, so that any member may take the place of one that is gone.
func Surplus(members []Worker, workers int) (held, leave []int) {
	numbered := numberedAlike(members)
	running := 0
	for i := range members {
		if members[i].OnNode && !members[i].Leaving {
			running++
		}
	}
	room, surplus := workers-running, running-workers
	for i := range members {
		m := &members[i]
		switch {
		case m.OnNode || m.Leaving || numbered && m.index < workers:
		case !numbered && room > 0:
			room--
		default:
			held = append(held, i)
		}
	}
	for i, m := range slices.Backward(members) {
		if surplus > 0 && m.OnNode && !m.Leaving {
			leave = append(leave, i)
			surplus--
		}
	}
	slices.Reverse(leave)
	return held, leave
}

// Reach returns the number of members that lets at least some of them run. It is the given number, but where a controller numbers all
// members and too many of the first ones are gone: then it is the least number that counts enough of the others. If fewer members than
// that exist, no number does, and Reach returns the given one. The members are in the order of their ranks.
func Reach(members []Worker, workers, least int) int {
	if len(members) < least || least < 1 || !numberedAlike(members) {
		return workers
	}
	return max(workers, members[least-1].index+1)
}

// numberedAlike reports whether one controller numbers all members from 0.
func numberedAlike(members []Worker) bool {
	return !slices.ContainsFunc(members, func(m Worker) bool {
		first := &members[0].Rank
		return m.index < 0 || m.outer >= 0 || m.role != first.role || m.owner != first.owner
	})
}
