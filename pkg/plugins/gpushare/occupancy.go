package gpushare

import (
	"cmp"
	"errors"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/learning"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// occupancy says who uses the devices of one node, computed from one NodeInfo. An occupancy is immutable.
type occupancy struct {
	// generation, epoch and pods are the key: the NodeInfo's generation and number of pods, and the node's epoch.
	generation int64
	epoch      uint64
	pods       int

	// problem says why the node takes no pods, "" for none.
	problem string
	// offered are the slots that the kubelet offers.
	offered int64
	// ledger holds the assignments of the node's pods, and the holds. The ledger is nil where the GPUNode has no
	// devices.
	ledger *vgpu.Node
	// healthy devices, the idle ones of them, which no pod uses, and promises, the pods with a max-slowdown.
	healthy, idle, promises int
	// held: there are holds, which count for some pods and not for others.
	held bool
	// stray counts the slots that the kubelet gives to pods without a valid assignment.
	stray vgpu.Slots
	// strays names them, for people.
	strays []string
	// refused are the assignments that do not fit beside the others, by UID.
	refused []vgpu.Assignment
	// read keeps the reading of each annotation, for the next build: pods in NodeInfos never change.
	read map[*v1.Pod]reading
	// owners are the pods of the NodeInfo that request vGPUs. settled says that the ledger depends only on them and the
	// node's epoch: there is no stray and no nominated pod.
	owners  map[*v1.Pod]bool
	settled bool
	// nameless: of some pods the learner did not know the workload yet, when its knowledge had the version.
	nameless bool
	version  uint64
}

// reading is what a pod's annotation says.
type reading struct {
	assignment vgpu.Assignment
	err        error
}

var withoutGPUs = occupancy{problem: noGPUs}

// build computes the occupancy of a node: the assignments of the pods in info (the reservation first, else the
// annotation) and the holds. The caller holds a lock.
func (s *state) build(n *node, info fwk.NodeInfo) *occupancy {
	o := &occupancy{
		generation: info.GetGeneration(), epoch: n.epoch, pods: len(info.GetPods()),
		offered: offeredBy(info), read: map[*v1.Pod]reading{}, owners: map[*v1.Pod]bool{},
	}
	o.problem = n.problemWith(o.offered)
	if n.empty == nil {
		return o
	}
	b := builder{state: s, node: n, out: o, before: n.cached.Load(), know: s.learner.Snapshot()}
	o.version = b.know.Version()
	b.readPods(info.GetPods())
	o.ledger = b.book()
	o.ledger.SetRoom(roomOf(info))
	b.addHolds()
	b.addNominated()
	o.settled = len(o.strays) == 0 && len(b.nominated) == 0
	o.count()
	return o
}

// count adds up what the rule depends on. A node that takes no pods has none of it to offer, but its promises count.
func (o *occupancy) count() {
	o.ledger.Each(func(a *vgpu.Assignment) {
		if a.MaxSlowdown != 0 {
			o.promises++
		}
	})
	if o.problem != "" {
		return
	}
	for i := range o.ledger.Devices() {
		if !o.ledger.Devices()[i].Healthy {
			continue
		}
		o.healthy++
		if o.ledger.Used(i).Slots == 0 {
			o.idle++
		}
	}
}

// withRoom returns the cached occupancy with the room that info leaves, if nothing else can have changed, else nil.
// Pods without vGPUs come and go in this way: thousands of them for each change of a device.
func (n *node) withRoom(info fwk.NodeInfo) *occupancy {
	before := n.cached.Load()
	if before == nil || !before.settled || before.epoch != n.epoch || before.offered != offeredBy(info) || !before.ownedBy(info.GetPods()) {
		return nil
	}
	o := *before
	o.generation, o.pods = info.GetGeneration(), len(info.GetPods())
	if room := roomOf(info); room != o.ledger.Room() {
		o.ledger = o.ledger.Clone()
		o.ledger.SetRoom(room)
	}
	return &o
}

// offeredBy returns the slots that a node's kubelet offers: those on GPUs that are healthy to the agent, and none
// before the agent registers.
func offeredBy(info fwk.NodeInfo) int64 {
	return info.GetAllocatable().GetScalarResources()[v1alpha1.ResourceVGPU]
}

// problemWith says why the node takes no pods while its kubelet offers so many slots, "" where it does. A kubelet that
// offers fewer than the healthy GPUs have would refuse pods, which fail for good. The scheduler's picture of the node
// is older than the kubelet's then, or the other way round. The slots of an unhealthy GPU do not count, in either.
func (n *node) problemWith(offered int64) string {
	switch {
	case n.problem != "":
		return n.problem
	case n.empty != nil && !kube.OffersAll(offered, n.empty.Devices()):
		return tooFewOffered
	}
	return n.pause.problem()
}

// ownedBy reports whether the pods with vGPUs are those of the occupancy.
func (o *occupancy) ownedBy(pods []fwk.PodInfo) bool {
	count := 0
	for _, info := range pods {
		if pod := info.GetPod(); kube.WantsVGPU(pod) {
			if !o.owners[pod] {
				return false
			}
			count++
		}
	}
	return count == len(o.owners)
}

// roomOf returns the CPU and memory that further pods may take of a node: none where its pods request more than it has.
// The total of the NodeInfo does not show that: one pod that names the node itself can make it wrap to any amount.
func roomOf(info fwk.NodeInfo) vgpu.Room {
	allocatable, used := info.GetAllocatable(), vgpu.Room{}
	for _, at := range info.GetPods() {
		host := at.CalculateResource().Resource
		used = used.Plus(kube.BoundedHost(at.GetPod(), vgpu.Room{MilliCPU: host.GetMilliCPU(), Memory: vgpu.Bytes(host.GetMemory())}))
	}
	return vgpu.Room{MilliCPU: allocatable.GetMilliCPU(), Memory: vgpu.Bytes(allocatable.GetMemory())}.Minus(used)
}

// builder computes one occupancy.
type builder struct {
	state  *state
	node   *node
	out    *occupancy
	before *occupancy
	know   *learning.Snapshot

	// assignments of pods on the node, nominated pods without a node, and what the holds have dealt with.
	assignments []vgpu.Assignment
	nominated   []*v1.Pod
}

func (b *builder) readPods(pods []fwk.PodInfo) {
	for _, info := range pods {
		pod := info.GetPod()
		if !kube.WantsVGPU(pod) {
			continue
		}
		b.out.owners[pod] = true
		if pod.Spec.NodeName == "" {
			b.nominated = append(b.nominated, pod)
			continue
		}
		b.readPod(pod)
	}
	// Reservations and annotations may both be there while an informer lags; the order by UID makes the ledger the same
	// whatever the order of the NodeInfo is.
	slices.SortFunc(b.assignments, func(x, y vgpu.Assignment) int { return cmp.Compare(x.UID, y.UID) })
}

func (b *builder) readPod(pod *v1.Pod) {
	if a, ok := b.state.reservations[kube.UIDOf(pod)]; ok && a.Node == b.node.name {
		b.assignments = append(b.assignments, a)
		return
	}
	r, known := reading{}, false
	if b.before != nil {
		r, known = b.before.read[pod]
	}
	if !known {
		r.assignment, r.err = b.state.readAssignment(pod)
	}
	if r.assignment.Workload == 0 && r.err == nil {
		r.assignment.Workload = uint32(b.know.Number(pod))
		b.out.nameless = b.out.nameless || r.assignment.Workload == 0
	}
	if _, annotated := pod.Annotations[v1alpha1.AnnotationAssignment]; annotated {
		b.out.read[pod] = r
	}
	if r.err != nil {
		b.addStray(pod, r.err)
		return
	}
	b.assignments = append(b.assignments, r.assignment)
}

// readAssignment reads the annotation of a pod. A pod that the scheduler assumed carries none; after the end of its
// reservation, the informer's copy does.
func (s *state) readAssignment(pod *v1.Pod) (vgpu.Assignment, error) {
	a, err := kube.AssignmentOf(pod)
	if !errors.Is(err, kube.ErrNoAssignment) {
		return a, err
	}
	seen, missing := s.pods.Pods(pod.Namespace).Get(pod.Name)
	if missing != nil || seen.UID != pod.UID {
		return a, err
	}
	return kube.AssignmentOf(seen)
}

func (b *builder) addStray(pod *v1.Pod, why error) {
	if containers, err := kube.Containers(pod); err == nil {
		stray := vgpu.Request{Containers: containers}
		b.out.stray += stray.PeakSlots()
	}
	b.out.strays = append(b.out.strays, klog.KObj(pod).String()+": "+why.Error())
}

// book adds the assignments to the ledger. An assignment that does not fit belongs to a pod that may run all the same:
// the devices shrank, or another scheduler gave them too. The devices it names take no new pod then.
func (b *builder) book() *vgpu.Node {
	ledger := b.node.empty.Clone()
	blocked := map[vgpu.DeviceID]bool{}
	for _, a := range b.assignments {
		if err := ledger.Add(a); err != nil {
			b.out.strays, b.out.refused = append(b.out.strays, err.Error()), append(b.out.refused, a)
			for _, c := range a.Containers {
				for _, id := range c.Devices {
					blocked[id] = true
				}
			}
		}
	}
	if len(blocked) > 0 {
		return ledger.Only(func(device int) bool { return !blocked[ledger.Devices()[device].ID] })
	}
	return ledger
}

// addHolds adds the holds of the node. An unresolved bind comes before another hold of the same pod.
func (b *builder) addHolds() {
	hold := func(h vgpu.Hold) {
		b.out.held = true
		if err := b.out.ledger.Hold(h); err != nil {
			b.out.strays = append(b.out.strays, err.Error())
		}
	}
	for _, uid := range slices.Sorted(maps.Keys(b.node.unresolved)) {
		hold(vgpu.Hold{Assignment: b.node.unresolved[uid].Assignment, Priority: unresolvedPriority})
	}
	for _, uid := range slices.Sorted(maps.Keys(b.node.held)) {
		if _, unresolved := b.node.unresolved[uid]; !unresolved {
			hold(b.state.holds[uid])
		}
	}
}

// addNominated gives devices to nominated pods that have no hold. The framework adds them to the NodeInfo so that pods
// of a lower priority see their room as taken; without devices they would not. If they do not fit yet, because victims
// are still leaving, their slots count for the node as a whole.
func (b *builder) addNominated() {
	slices.SortFunc(b.nominated, func(x, y *v1.Pod) int { return cmp.Compare(x.UID, y.UID) })
	for _, pod := range b.nominated {
		_, unresolved := b.node.unresolved[kube.UIDOf(pod)]
		if unresolved || b.node.held[kube.UIDOf(pod)] || b.state.plannedElsewhere(pod) {
			continue
		}
		r, err := readRequest(pod)
		if err == nil {
			r.Steps = placement.StepsOn(len(b.state.nodes))
			err = b.state.complete(pod, &r, b.state.ruling().know, b.state.countOffers())
		}
		if err != nil {
			continue
		}
		a, refusal := placement.Assign(b.out.ledger, &r, b.state.ruling().Policy)
		if refusal == nil && b.out.ledger.Add(a) == nil {
			continue
		}
		b.out.stray += r.PeakSlots()
	}
}
