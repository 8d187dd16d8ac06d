package recorder

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/admission"
	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	configv1 "github.com/tandem-gpu/tandem/pkg/api/config/v1"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/shadow"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Gangs knows the gangs of pods: a *podgroup.Set.
type Gangs interface {
	Of(pod *v1.Pod) (podgroup.Ref, bool)
	Gang(ref podgroup.Ref) (*podgroup.Gang, error)
}

// Workloads numbers the workloads of pods for the predictions of slowdowns.
type Workloads func(pod *v1.Pod) uint32

// Options are the settings of a Recorder.
type Options struct {
	Config shadow.Config
	// SchedulerName is that of the pods that the shadow judges.
	SchedulerName string
	// ShareAnnotation is the key by which owners say which part of a GPU is enough, "" for none.
	ShareAnnotation string
	Gangs           Gangs
	Workloads       Workloads
	// Now is the clock.
	Now func() time.Time
}

// Recorder keeps the facts of a cluster. Several goroutines may use it.
type Recorder struct {
	o Options

	mu      sync.Mutex
	log     *shadow.Log
	view    view
	mark    string // of the inventory that the period began with
	classes []*v1.Pod
	gangs   map[podgroup.Ref]*shadow.Gang
	refused map[vgpu.UID]bool // pods whose request cannot be read
	gated   map[vgpu.UID]bool // pods that were seen with scheduling gates: no scheduler tries them until these are gone
	why     []shadow.Unknown  // while no period has begun
}

// New returns a Recorder that has not seen anything.
func New(o Options) (*Recorder, error) {
	log, err := shadow.New(o.Config)
	if err != nil {
		return nil, err
	}
	return &Recorder{o: o, log: log, gangs: map[podgroup.Ref]*shadow.Gang{}, refused: map[vgpu.UID]bool{}, gated: map[vgpu.UID]bool{}}, nil
}

// Look compares the nodes with those of the period, and begins another one where they differ or where it is full. The function lists all
// pods.
func (r *Recorder) Look(ctx context.Context, v view, pods func() []*v1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.view = v
	r.forgetGangs()
	_, mark, err := v.inventory(r.classes, nil)
	if err != nil {
		klog.FromContext(ctx).Error(err, "The nodes cannot be read; the period goes on with what they were")
		return
	}
	first := r.log.Began().IsZero()
	if !first && mark == r.mark && !r.log.Full() {
		return
	}
	all := pods()
	inv, _, err := v.inventory(r.classes, usedByOthers(all))
	if err == nil {
		err = r.log.Begin(r.o.Now().Truncate(time.Second), inv)
	}
	if err != nil {
		r.why = inv.Unknown
		klog.FromContext(ctx).V(1).Info("No period begins", "why", err.Error())
		return
	}
	klog.FromContext(ctx).Info("A period begins", "nodes", len(inv.Nodes), "unknown", len(inv.Unknown))
	r.mark = mark
	if first {
		r.all(ctx, all)
	}
}

// marked returns the mark of the present nodes and classes.
func (r *Recorder) marked() string {
	_, mark, err := r.view.inventory(r.classes, nil)
	if err != nil {
		return r.mark
	}
	return mark
}

// all notes the pods that are there at the begin, the oldest first.
func (r *Recorder) all(ctx context.Context, pods []*v1.Pod) {
	sorted := slices.SortedFunc(slices.Values(pods), func(a, b *v1.Pod) int {
		if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
			return c
		}
		if podgroup.Less(a, b) {
			return -1
		}
		return 1
	})
	for _, pod := range sorted {
		if !ended(pod) {
			r.note(ctx, pod)
		}
	}
}

// Pod notes what the API says of a pod now.
func (r *Recorder) Pod(ctx context.Context, pod *v1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.log.Began().IsZero() {
		r.note(ctx, pod)
	}
}

// Gone notes that a pod is gone.
func (r *Recorder) Gone(pod *v1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.log.Ended(kube.UIDOf(pod), endedAt(pod, r.o.Now()))
	delete(r.refused, kube.UIDOf(pod))
	delete(r.gated, kube.UIDOf(pod))
}

func (r *Recorder) note(ctx context.Context, pod *v1.Pod) {
	uid := kube.UIDOf(pod)
	if len(pod.Spec.SchedulingGates) > 0 {
		r.gated[uid] = true
		return
	}
	if ended(pod) && !r.log.Knows(uid) && endedAt(pod, r.o.Now()).Before(r.log.Began()) {
		return // it is in no world of this period
	}
	request, err := requestOf(pod)
	if err == nil && len(request.Containers) == 0 || r.refused[uid] {
		return
	}
	if err == nil {
		err = r.created(ctx, pod, &request)
	}
	if err != nil {
		r.refused[uid] = true
		klog.FromContext(ctx).Info("A pod is in neither world, since its request cannot be read", "pod", klog.KObj(pod), "why", err.Error())
		return
	}
	if r.o.Gangs != nil {
		if ref, member := r.o.Gangs.Of(pod); member {
			r.gangOf(ref)
		}
	}
	if pod.Spec.NodeName != "" {
		a, err := kube.AssignmentOf(pod)
		if err != nil {
			a = vgpu.Assignment{} // another scheduler writes none
		}
		r.log.Bound(uid, pod.Spec.NodeName, a, boundAt(pod, r.o.Now()))
	}
	if ended(pod) {
		r.log.Ended(uid, endedAt(pod, r.o.Now()))
	}
}

// created notes a pod, of which later calls change nothing.
func (r *Recorder) created(ctx context.Context, pod *v1.Pod, request *vgpu.Request) error {
	if r.o.Workloads != nil {
		request.Workload = r.o.Workloads(pod)
	}
	would, err := shareOf(pod, request, r.o.ShareAnnotation)
	if err != nil && !r.log.Knows(request.UID) {
		klog.FromContext(ctx).Info("A pod counts with whole GPUs in both worlds, since its share cannot be read", "pod", klog.KObj(pod), "why", err.Error())
	}
	p := shadow.Pod{
		Request: *request, Would: would, Created: r.came(pod), Class: r.classOf(pod), Foreign: pod.Spec.SchedulerName != r.o.SchedulerName,
	}
	if r.o.Gangs != nil {
		if ref, member := r.o.Gangs.Of(pod); member {
			p.Gang = r.gangOf(ref)
		}
	}
	return r.log.Created(p)
}

// came returns when a pod came before the schedulers: at its creation, or when its last scheduling gate went, as far as that was seen.
func (r *Recorder) came(pod *v1.Pod) time.Time {
	if r.gated[kube.UIDOf(pod)] {
		return r.o.Now().Truncate(time.Second)
	}
	return pod.CreationTimestamp.Time
}

// classOf returns the class of the pods that the same nodes take.
func (r *Recorder) classOf(pod *v1.Pod) int {
	at := slices.IndexFunc(r.classes, func(other *v1.Pod) bool { return admission.Alike(other, pod) })
	if at < 0 {
		at = len(r.classes)
		r.classes = append(r.classes, pod)
		r.log.Admit(at, admitting(pod, r.view.known()))
		r.mark = r.marked()
	}
	return at
}

// gangOf returns what members say of a gang, as it is known now.
func (r *Recorder) gangOf(ref podgroup.Ref) *shadow.Gang {
	g := r.gangs[ref]
	if g == nil {
		g = &shadow.Gang{Name: ref.Namespace + "/" + ref.Name}
		r.gangs[ref] = g
	}
	if known, err := r.o.Gangs.Gang(ref); err == nil {
		g.MinCount = known.MinCount
		g.Wishes = gang.Wishes{Required: known.Required, Preferred: known.Preferred}.Or(configv1.DefaultPreferredTopology())
	}
	return g
}

// forgetGangs drops the gangs without members: their pods have what was known of them.
func (r *Recorder) forgetGangs() {
	for ref := range r.gangs {
		if known, _ := r.o.Gangs.Gang(ref); known == nil {
			delete(r.gangs, ref)
		}
	}
}

// Report returns the report of now. Facts are noted meanwhile.
func (r *Recorder) Report() (*shadow.Report, error) {
	facts, err := r.facts()
	if err != nil {
		return nil, err
	}
	return facts.Report(r.o.Now().Truncate(time.Second))
}

// facts returns the facts as they are known now.
func (r *Recorder) facts() (*shadow.Log, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.log.Began().IsZero() {
		return nil, r.nothing()
	}
	for ref := range r.gangs {
		r.gangOf(ref)
	}
	return r.log.Clone(), nil
}

// nothing says why there is no report yet.
func (r *Recorder) nothing() error {
	if len(r.why) == 0 {
		return errors.New("no node with GPUs has been seen yet")
	}
	first := r.why[0]
	return fmt.Errorf("no node with known GPUs has been seen yet: %s: %s (%d nodes like this)", first.What, first.Why, len(r.why))
}
