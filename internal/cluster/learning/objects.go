package learning

import (
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// pod is a pod that requests vGPUs.
type pod struct {
	workload *workload
	// node of the pod, "" before its binding.
	node   string
	shares []share
	// promise is the slowdown by neighbours that the pod tolerates, in thousandths; 0 where it names none.
	promise int64
}

// share is what a pod may use of one device.
type share struct {
	device vgpu.DeviceID
	part   vgpu.MilliGPU
}

// Pod handles a new or changed pod. Pod ignores pods without vGPUs, and drops those that have ended.
func (l *Learner) Pod(p *v1.Pod) {
	if !kube.WantsVGPU(p) {
		return
	}
	if p.Status.Phase == v1.PodSucceeded || p.Status.Phase == v1.PodFailed {
		l.PodGone(p.UID)
		return
	}
	key := workloads.WorkloadOf(p)
	name := key.ProfileName()
	shares := sharesOf(p)
	promise, err := kube.MaxSlowdown(p)
	if err != nil {
		promise = 0 // GPUShare refuses the pod and says why
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.named(key.Namespace, name)
	if w.profile == nil && key.Profile == "" {
		w.key = &key
	}
	before := l.pods[p.UID]
	if before != nil && before.workload == w {
		before.node, before.shares, before.promise = p.Spec.NodeName, shares, promise
		return
	}
	if before != nil {
		before.workload.pods--
	}
	w.pods++
	l.pods[p.UID] = &pod{w, p.Spec.NodeName, shares, promise}
	l.podsChanged = true
}

// PodGone handles the end of a pod.
func (l *Learner) PodGone(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.pods[uid]
	if p == nil {
		return
	}
	p.workload.pods--
	delete(l.pods, uid)
	l.podsChanged = true
}

// sharesOf returns what the containers of a pod together may use of each device, nil where the pod has no valid
// assignment. Init containers have ended when the others work.
func sharesOf(p *v1.Pod) []share {
	assignment, err := kube.AssignmentOf(p)
	if err != nil {
		return nil
	}
	var all []share
	for i := range assignment.Containers {
		c := &assignment.Containers[i]
		if c.Kind == vgpu.Init {
			continue
		}
		for _, id := range c.Devices {
			at := slices.IndexFunc(all, func(s share) bool { return s.device == id })
			if at < 0 {
				all, at = append(all, share{device: id}), len(all)
			}
			all[at].part = min(vgpu.WholeGPU, all[at].part+c.Share.ComputeLimit)
		}
	}
	return all
}

// part returns what the pod may use of a device: all of it where the share is unknown.
func (p *pod) part(id vgpu.DeviceID) vgpu.MilliGPU {
	for _, s := range p.shares {
		if s.device == id && s.part > 0 {
			return s.part
		}
	}
	return vgpu.WholeGPU
}

// Profile handles a new or changed WorkloadProfile. The first time it restores the results of earlier processes; later
// this process knows better.
func (l *Learner) Profile(p *v1alpha1.WorkloadProfile) {
	read := workloads.ReadProfile(p)
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.named(p.Namespace, p.Name)
	made := p.Labels[v1alpha1.LabelLearned] == "true"
	if made && !w.made {
		l.made++
	} else if !made && w.made {
		l.made--
	}
	first := w.profile == nil
	w.made, w.profile, w.key = made, declaredOf(p, read), nil
	if first && !w.wrote {
		l.restore(w, read.Learned())
	}
	w.unsaid = unsaid(p, read)
	l.changed(w)
	l.stale.Store(true)
}

// unsaid reports whether the condition of a WorkloadProfile does not say which of its values are illegal, or says it of values that
// have been corrected.
func unsaid(p *v1alpha1.WorkloadProfile, read *workloads.Workload) bool {
	says, should := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionConsistent), read.Condition(p.Generation)
	if says == nil {
		return should.Reason == v1alpha1.ConsistentMalformed
	}
	either := says.Reason == v1alpha1.ConsistentMalformed || should.Reason == v1alpha1.ConsistentMalformed
	return either && (says.Reason != should.Reason || says.Message != should.Message)
}

// declaredOf returns the declarations of a WorkloadProfile, without the learned values. Profiles without a spec, which
// are most that the scheduler makes, share one value.
func declaredOf(p *v1alpha1.WorkloadProfile, read *workloads.Workload) *workloads.Workload {
	if s := &p.Spec; len(s.Uses) == 0 && len(s.Throughputs) == 0 && len(s.Spread) == 0 && s.Graph == nil {
		return nothing
	}
	return read.With(nil)
}

// nothing is the declaration of a workload without a WorkloadProfile.
var nothing = &workloads.Workload{}

// ProfileGone handles the deletion of a WorkloadProfile: the learner drops what it learned of the workload.
func (l *Learner) ProfileGone(namespace, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	w := l.named(namespace, name)
	if w.made {
		l.made--
	}
	w.profile, w.made = nil, false
	l.forget(w)
	l.stale.Store(true)
}

// restore loads the results of earlier processes.
func (l *Learner) restore(w *workload, before []workloads.Learned) {
	w.written = nil
	for i := range before {
		b := &before[i]
		r := w.on(b.Model, l.gpu(b.Model))
		w.written = append(w.written, briefly(r.gpu, b))
		r.restore(b)
		if i == 0 || r.seen > w.seen {
			w.seen = r.seen
		}
		t := b.Traits
		if b.SoloRate == 0 {
			// The offset is relative to a guess that the status does not hold.
			t.Offset, t.SureOffset = 0, 0
		}
		if t.CoRuns > 0 || t.SurePressure > 0 {
			if err := l.book.Restore(w.number, r.gpu, t); err != nil {
				l.counts.drop(dropRestored)
				continue
			}
			l.observed = true
		}
	}
}
