package gpugang

import (
	"fmt"
	"maps"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
)

// together is how long after a gang runs another object of its user may make its first member, without a warning: users apply several objects at
// once, and their controllers take their time. A shorter time warns of these, a longer one misses a second job.
const together = 30 * time.Second

// warnOfName says of a pod that it joins a gang that ran whole before its maker made the first member, where another object of the same
// kind made those that run. Nothing else tells a second job with the name of the gang from several that make up one on purpose: these
// have made members before their gang starts. So the pod is placed all the same.
//
// Objects of other kinds than Jobs and JobSets do not end by themselves, and make new objects of their own kind on purpose, for each revision.
func (p *Plugin) warnOfName(ref podgroup.Ref, pod *v1.Pod) {
	own := podgroup.OriginOf(pod)
	if own.Kind != "Job" && own.Kind != "JobSet" || wasTried(pod) {
		return
	}
	began, several := p.gangs.Began(ref, own)
	if !several || !p.warned[pod.UID].IsZero() {
		return
	}
	pg, _ := p.gangs.Gang(ref)
	if pg == nil || pg.MinCount == 0 {
		return
	}
	ran, other := 0, own
	for _, m := range pg.Members {
		at, of := machine.ScheduledAt(m), podgroup.OriginOf(m)
		if of != own && of.Kind == own.Kind && m.DeletionTimestamp == nil && !at.IsZero() && at.Add(together).Before(began) {
			ran, other = ran+1, of
		}
		if ran < pg.MinCount {
			continue
		}
		maps.DeleteFunc(p.warned, func(_ types.UID, at time.Time) bool { return p.now().Sub(at) > warnedFor })
		p.warned[pod.UID] = p.now()
		p.event(pod, v1.EventTypeWarning, "GangNameTaken", fmt.Sprintf(
			"the pod belongs to %s, and the members that run to %s: it joins gang %s by itself; give each job a gang name of its own, in %s", own, other, ref, podgroup.FieldOf(ref.Source)))
		return
	}
}

// warnedFor is how long the plugin remembers that it has warned of a pod. A shorter time may repeat the warning where the API server is slow to
// show that the pod was refused.
const warnedFor = time.Minute

// wasTried reports whether the scheduler has refused a pod before.
func wasTried(pod *v1.Pod) bool {
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse && c.Reason != v1.PodReasonSchedulingGated {
			return true
		}
	}
	return false
}
