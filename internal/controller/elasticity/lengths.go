package elasticity

import (
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/elastic"
)

// lengths knows which elastic gangs have ended, and predicts by them how long jobs still take.
type lengths struct {
	// predicted is nil where the policy does not go by what remains.
	predicted *elastic.Lengths
	// counted are the pods of gangs that have ended and count, as long as these pods exist.
	counted map[types.UID]bool
}

func newLengths(c *elastic.Config) (*lengths, error) {
	l := &lengths{counted: map[types.UID]bool{}}
	if !c.NeedsRemaining() {
		return l, nil
	}
	var err error
	l.predicted, err = elastic.NewLengths()
	return l, err
}

// alikeOf names what jobs of about the same length have in common: the namespace, the WorkloadProfile and the size. The GPU model is left
// out, since a job that waits has none yet.
func alikeOf(member *v1.Pod, least int) elastic.Alike {
	a := elastic.Alike{Namespace: member.Namespace, Workload: member.Namespace + "/" + member.Labels[v1alpha1.LabelProfile], Least: least}
	if r, err := kube.Request(member); err == nil {
		a.Slots = int(r.PeakSlots())
	}
	return a
}

// remaining returns how long a job still takes with its fewest workers, 0 for unknown.
func (l *lengths) remaining(member *v1.Pod, least int, had elastic.Had) float64 {
	if l.predicted == nil {
		return 0
	}
	seconds, err := l.predicted.Remaining(alikeOf(member, least), had)
	if err != nil {
		klog.Background().V(2).Info("Predicting how long a job still takes failed", "pod", klog.KObj(member), "err", err)
	}
	return seconds
}

// learnEnds learns from the gangs that have ended since the last pass, and in the first pass from those whose pods still exist. A gang has
// ended where none of its members runs or waits, and one has completed by itself.
func (p *pass) learnEnds(ended map[podgroup.Ref][]*v1.Pod) {
	before := p.lengths.counted
	p.lengths.counted = map[types.UID]bool{}
	for _, ref := range slices.SortedFunc(maps.Keys(ended), podgroup.Ref.Compare) {
		fresh := slices.DeleteFunc(slices.Clone(ended[ref]), func(pod *v1.Pod) bool { return before[pod.UID] })
		over := len(p.members[ref]) == 0 && slices.ContainsFunc(fresh, completed)
		if over {
			p.learnEnd(ref, fresh)
		}
		for _, pod := range ended[ref] {
			if before[pod.UID] || over {
				p.lengths.counted[pod.UID] = true
			}
		}
	}
}

// learnEnd learns from a gang that has ended, by what the controller saw of it, or by the pods of it that still exist. It does not know what the
// latter said before their ends, so their words count for nothing.
func (p *pass) learnEnd(ref podgroup.Ref, pods []*v1.Pod) {
	had, least := elastic.Had{}, leastOf(pods[0])
	for _, pod := range pods {
		had.Served += ranFor(pod)
	}
	if m := p.memory[ref]; m != nil && !m.at.IsZero() {
		m.served = max(had.Served, m.served)
		had, least = m.had(), m.like.Least
		m.at = time.Time{} // members that come later are those of another job
	}
	if least > 0 && had.Served > 0 {
		p.note(ref, alikeOf(pods[0], least), had, false)
	}
}

// learnStop learns from a gang that is gone, and none of whose members was seen to complete: somebody deleted it, or it failed.
func (p *pass) learnStop(ref podgroup.Ref, m *memory) {
	if !m.at.IsZero() && m.served > 0 && m.like.Least > 0 {
		p.note(ref, m.like, m.had(), true)
	}
}

// age is the time for which the gang had nodes, as package elastic counts it.
func (m *memory) age() float64 { return m.served / float64(max(1, m.like.Least)) }

// had is what a gang has had that no longer runs, and by which its words are judged.
func (m *memory) had() elastic.Had {
	return elastic.Had{Served: m.served, Projected: m.progress.Judged(m.age())}
}

func (p *pass) note(ref podgroup.Ref, like elastic.Alike, had elastic.Had, stopped bool) {
	if p.lengths.predicted == nil {
		return
	}
	if err := p.lengths.predicted.Ended(like, had, stopped); err != nil {
		klog.Background().V(2).Info("Learning how long a gang took failed", "gang", ref.String(), "err", err)
	}
}

// progressOf returns the part of its work that a gang says it has done: the largest that a member tells, 0 where none tells one.
func progressOf(members []*v1.Pod) (done float64) {
	for _, pod := range members {
		if part, _, err := kube.Progress(pod); err == nil { // the API server refuses what cannot be read
			done = max(done, part)
		}
	}
	return done
}

// leastOf returns the least number of members that an annotation of a pod states, 0 where it states none.
func leastOf(pod *v1.Pod) int {
	sizes, legal := elastic.ParseSizes(pod.Annotations[v1alpha1.AnnotationElasticWorkers], membership.MaxMinMembers)
	if !legal {
		return 0
	}
	return sizes[0]
}

// ranFor returns the seconds for which a pod that has ended had its node, 0 where that is unknown.
func ranFor(pod *v1.Pod) float64 {
	end := int64(0)
	for i := range pod.Status.ContainerStatuses {
		if t := pod.Status.ContainerStatuses[i].State.Terminated; t != nil {
			end = max(end, t.FinishedAt.Unix())
		}
	}
	return float64(max(0, end-startedAt(pod)))
}

// completed reports whether a pod ended by itself, with exit code 0.
func completed(pod *v1.Pod) bool {
	return pod.Status.Phase == v1.PodSucceeded && pod.Annotations[v1alpha1.AnnotationLeaving] == ""
}
