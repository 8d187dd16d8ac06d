package checks

import (
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
)

// severalSchedulers finds schedulers of one name that schedule at once: several replicas are available, and one of their pods was bound when
// the lease was nobody's, or their command switches the election off.
func severalSchedulers(f *Facts) []hit {
	ready, off := int32(0), ""
	for i := range f.Deployments {
		d := &f.Deployments[i]
		if d.Labels[nameLabel] != f.Scheduler {
			continue
		}
		ready += d.Status.AvailableReplicas
		for _, c := range d.Spec.Template.Spec.Containers {
			if off == "" && slices.ContainsFunc(slices.Concat(c.Command, c.Args), func(arg string) bool { return arg == "--leader-elect=false" || arg == "--leader-elect=0" }) {
				off = d.Name
			}
		}
	}
	if ready < 2 {
		return nil
	}
	fix := fmt.Sprintf("set leaderElection.leaderElect: true in the scheduler's configuration, take --leader-elect=false out of its arguments, and %s; until then kubectl -n %s scale deployment -l %s=%s --replicas=1; delete the pods that Overbooked names",
		apply, f.Namespace, nameLabel, f.Scheduler)
	object := fmt.Sprintf("Lease/%s/%s", f.Namespace, f.Scheduler)
	if off != "" {
		return []hit{{object, fmt.Sprintf("%d replicas of the scheduler schedule at once and give the same devices away: the arguments of deployment %s have --leader-elect=false", ready, off), fix}}
	}
	free, since := f.leaseFree()
	if pod, at := f.lastBound(); free && pod != nil && at.After(since) {
		return []hit{{object, fmt.Sprintf("%d replicas of the scheduler schedule at once and give the same devices away: pod %s was bound at %s, when nobody held the scheduler's lease",
			ready, kube.PathOf(pod), at.UTC().Format(time.RFC3339)), fix}}
	}
	return nil
}

// leaseFree reports whether nobody holds the scheduler's lease, and since when at the latest. A lease that does not exist may have been deleted a moment
// ago.
func (f *Facts) leaseFree() (free bool, since time.Time) {
	if f.Lease == nil {
		return true, f.Now.Add(-staleLease)
	}
	held := f.Lease.Spec.HolderIdentity != nil && *f.Lease.Spec.HolderIdentity != ""
	if f.Lease.Spec.RenewTime != nil {
		since = f.Lease.Spec.RenewTime.Add(staleLease)
	}
	return !held || f.Now.After(since), since
}

// lastBound returns the pod that a scheduler of Tandem bound last, and when; nil for none. The first by name counts if several were bound at one moment.
func (f *Facts) lastBound() (last *v1.Pod, at time.Time) {
	for i := range f.Pods {
		p := &f.Pods[i]
		if p.Spec.SchedulerName != f.Scheduler || p.Spec.NodeName == "" {
			continue
		}
		if _, err := kube.AssignmentOf(p); err != nil {
			continue
		}
		for _, c := range p.Status.Conditions {
			t := c.LastTransitionTime.Time
			if c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue && (last == nil || t.After(at) || t.Equal(at) && kube.PathOf(p) < kube.PathOf(last)) {
				last, at = p, t
			}
		}
	}
	return last, at
}
