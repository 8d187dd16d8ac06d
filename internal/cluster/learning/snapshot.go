package learning

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Snapshot is what the learner knows of workloads at one time. A snapshot is immutable.
type Snapshot struct {
	version uint64
	views   map[interference.Workload]*view
	pods    map[types.UID]interference.Workload
	levels  []level
	// numbers are the learner's. The snapshot has no workload for a number that is newer.
	numbers *names
}

// view is one workload.
type view struct {
	workload *workloads.Workload
	// any is its profile on GPU models that are not in on.
	any interference.Profile
	on  []onModel
}

// onModel is one workload on one GPU model.
type onModel struct {
	model   string
	profile interference.Profile
	traits  interference.Traits
	pairs   *interference.Pairs
}

// level is the mean sensitivity on a GPU model.
type level struct {
	model string
	mean  float64
}

// Snapshot returns the present knowledge: declarations until now, and learned values until a second ago.
func (l *Learner) Snapshot() *Snapshot {
	if l.stale.Load() {
		l.mu.Lock()
		l.show()
		l.mu.Unlock()
	}
	return l.shown.Load()
}

// Version grows with each change.
func (s *Snapshot) Version() uint64 { return s.version }

// Empty reports whether the snapshot has no workload.
func (s *Snapshot) Empty() bool { return len(s.views) == 0 }

// Known reports whether a workload has declarations or observations.
func (s *Snapshot) Known(w interference.Workload) bool { return s.views[w] != nil }

// Number returns the number of a pod's workload, 0 for pods without vGPUs and for unknown workloads. A number stands
// for one workload as long as the learner lives.
func (s *Snapshot) Number(p *v1.Pod) interference.Workload {
	if n, ok := s.pods[p.UID]; ok {
		return n
	}
	if !kube.WantsVGPU(p) {
		return 0
	}
	key := workloads.WorkloadOf(p)
	n, _ := s.numbers.number(key.Namespace + "/" + key.ProfileName())
	return n
}

// Tenant returns a workload as a tenant that may use a part of the SMs of a GPU model. Tenant allocates no memory.
func (s *Snapshot) Tenant(w interference.Workload, model string, part vgpu.MilliGPU) interference.Tenant {
	var mean float64
	for i := range s.levels {
		if s.levels[i].model == model {
			mean = s.levels[i].mean
			break
		}
	}
	profile, traits := &unknown, interference.Traits{}
	var pairs *interference.Pairs
	if v := s.views[w]; v != nil {
		profile = &v.any
		if on := v.of(model); on != nil {
			profile, traits, pairs = &on.profile, on.traits, on.pairs
		}
	}
	t := profile.On(part)
	t.Workload, t.Traits, t.Pairs = w, traits, pairs
	t.Level = mean
	if traits.CoRuns == 0 {
		t.Sensitivity = mean
	}
	return t
}

var unknown = interference.Unknown()

func (v *view) of(model string) *onModel {
	for i := range v.on {
		if v.on[i].model == model {
			return &v.on[i]
		}
	}
	return nil
}

// Memory returns the most memory that a workload holds on a GPU model, and false where it is unknown.
func (s *Snapshot) Memory(w interference.Workload, model string) (vgpu.Bytes, bool) {
	v := s.views[w]
	if v == nil {
		return 0, false
	}
	profile := &v.any
	if on := v.of(model); on != nil {
		profile = &on.profile
	}
	return profile.Memory, profile.Memory > 0
}

// Workload returns what the WorkloadProfile of a workload declares, nil where there is none.
func (s *Snapshot) Workload(w interference.Workload) *workloads.Workload {
	if v := s.views[w]; v != nil {
		return v.workload
	}
	return nil
}

// Profiles returns the names of the WorkloadProfiles of a namespace, in no order.
func (s *Snapshot) Profiles(namespace string) []string {
	var all []string
	s.numbers.each(func(path string, w interference.Workload) {
		if in, name, _ := strings.Cut(path, "/"); in == namespace && s.Workload(w) != nil {
			all = append(all, name)
		}
	})
	return all
}

// show makes a snapshot after any change. The caller holds the lock.
func (l *Learner) show() {
	l.stale.Store(false)
	if len(l.dirty) == 0 && !l.podsChanged {
		return
	}
	before := l.shown.Load()
	next := &Snapshot{version: before.version + 1, views: before.views, pods: before.pods, numbers: &l.numbers}
	if l.podsChanged {
		next.pods = make(map[types.UID]interference.Workload, len(l.pods))
		for uid, p := range l.pods {
			next.pods[uid] = p.workload.number
		}
	}
	if len(l.dirty) > 0 {
		next.views = maps.Clone(before.views)
		if next.views == nil {
			next.views = map[interference.Workload]*view{}
		}
		for w := range l.dirty {
			delete(next.views, w)
			if v := l.view(l.workloads[w]); v != nil {
				next.views[w] = v
			}
		}
	}
	for i, model := range l.models {
		if mean := l.book.Level(interference.GPU(i + 1)); mean != 0 {
			next.levels = append(next.levels, level{model, mean})
		}
	}
	l.podsChanged = false
	clear(l.dirty)
	l.shown.Store(next)
}

// view returns what the snapshot shows of a workload, nil for nothing.
func (l *Learner) view(w *workload) *view {
	if w == nil || w.profile == nil && len(w.records) == 0 {
		return nil
	}
	v, known := &view{workload: w.profile}, w.knows(l)
	v.any = known.On("").Profile
	for i, model := range l.models {
		gpu := interference.GPU(i + 1)
		on := onModel{model, known.On(model).Profile, l.book.Traits(w.number, gpu), l.book.Pairs(w.number, gpu)}
		if on.profile != v.any || on.traits.CoRuns > 0 || on.traits.SurePressure > 0 {
			v.on = append(v.on, on)
		}
	}
	return v
}

// knows returns the declaration of a workload with its learned values.
func (w *workload) knows(l *Learner) *workloads.Workload {
	declared := w.profile
	if declared == nil {
		declared = nothing
	}
	return declared.With(l.allLearned(w))
}
