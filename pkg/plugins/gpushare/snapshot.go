package gpushare

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// SnapshotNodes returns what is known of the nodes with GPUs, by name. Any goroutine may call it at any time. It holds the locks
// of the scheduling for the time of one node only, so each node is consistent in itself, and two may be of different moments.
func (p *Plugin) SnapshotNodes(gangOf func(*v1.Pod) *snapshot.GangName) []snapshot.Node {
	p.shown.mu.Lock()
	defer p.shown.mu.Unlock()
	all, before := p.state.allNodes(), p.shown.nodes
	nodes := make([]snapshot.Node, 0, len(all))
	p.shown.nodes = make(map[string]shownNode, len(all))
	for _, n := range all {
		v := p.state.sight(n)
		if v.empty == nil && v.problem == noGPUs {
			continue
		}
		shown := p.show(&v, before[v.name], gangOf)
		p.shown.nodes[v.name] = shown
		nodes = append(nodes, shown.node)
	}
	slices.SortFunc(nodes, func(a, b snapshot.Node) int { return cmp.Compare(a.Name, b.Name) })
	p.dropMoved(nodes)
	return nodes
}

// dropMoved takes reserved pods off a node that went to another one between the looks at the two: a pod has one place. If a
// pod has two reservations, it does not matter which is shown.
func (p *Plugin) dropMoved(nodes []snapshot.Node) {
	seen := map[vgpu.UID]bool{}
	for i := range nodes {
		n := &nodes[i]
		moved := func(pod snapshot.Pod) bool {
			if !pod.Reserved {
				return false
			}
			if now := p.listed(pod.Path(), pod.UID); now != nil && now.Spec.NodeName != "" && now.Spec.NodeName != n.Name {
				return true
			}
			twice := seen[pod.UID]
			seen[pod.UID] = true
			return twice
		}
		if slices.ContainsFunc(n.Pods, func(pod snapshot.Pod) bool { return pod.Reserved }) {
			n.Pods, n.Version = slices.DeleteFunc(slices.Clone(n.Pods), moved), 0 // others have the list too
		}
	}
}

// shown has the nodes of the last snapshot: most are the same in the next one. The zero value is empty.
type shown struct {
	mu    sync.Mutex
	nodes map[string]shownNode
	// made counts the nodes that were made anew: the version of the last.
	made uint64
}

// shownNode is a node in a snapshot, and what it was made from.
type shownNode struct {
	node snapshot.Node
	from shownFrom
	// forecasts are those of its pods, and due the time from which on one of them is too old, zero for never.
	forecasts map[vgpu.UID]forecast
	due       time.Time
}

// shownFrom is all that a node in a snapshot depends on. The values behind the pointers do not change.
type shownFrom struct {
	problem string
	last    *occupancy
	ledger  *vgpu.Node
	// pods is the version of the pods with a node there.
	pods uint64
	use  *v1alpha1.GPUNode
	rule *rule
	// topology is the labels of the node that say where it is, as one text.
	topology string
}

// show returns a node as it is now: the one that was shown before, where nothing has changed.
func (p *Plugin) show(v *sight, before shownNode, gangOf func(*v1.Pod) *snapshot.GangName) shownNode {
	pods, version := p.placed.on(v.name)
	use := p.useOn(v.name)
	topology := p.topologyOf(v.name)
	from := shownFrom{v.problem, v.last, v.ledger(pods, p.waits), version, use, p.state.ruling(), fmt.Sprint(topology)}
	now := p.now()
	if from == before.from && len(before.node.Holds) == 0 && (before.due.IsZero() || now.Before(before.due)) {
		return before // the pods of holds are none of the node's, and may change
	}
	after := shownNode{node: p.snapshotNode(&from, v.name, pods, gangOf), from: from}
	after.node.Topology = topology
	p.foresee(&after, pods, before.forecasts, now)
	p.shown.made++
	after.node.Version = p.shown.made
	return after
}

// topologyOf returns the labels that say where a node is.
func (p *Plugin) topologyOf(name string) map[string]string {
	host, err := p.hosts.Get(name)
	if err != nil { // it is gone
		return nil
	}
	return snapshot.TopologyOf(host.Labels)
}

func (p *Plugin) snapshotNode(from *shownFrom, name string, pods map[vgpu.UID]*v1.Pod, gangOf func(*v1.Pod) *snapshot.GangName) snapshot.Node {
	out := snapshot.Node{Name: name, Devices: []snapshot.Device{}, Pods: []snapshot.Pod{}, Holds: []snapshot.Hold{}}
	if from.ledger != nil {
		out = snapshot.NodeOf(from.ledger)
	}
	out.Problem = from.problem
	if from.last != nil {
		out.StraySlots = from.last.stray
		for i := range from.last.refused {
			if a := &from.last.refused[i]; pods[a.UID] != nil { // others have left since
				out.Overbooked = append(out.Overbooked, overbookedOf(a))
			}
		}
	}
	use := measuredIn(from.use)
	for i := range out.Devices {
		use.describe(&out.Devices[i])
	}
	known := from.rule.knownOn(from.ledger, use)
	for i := range out.Pods {
		pod := &out.Pods[i]
		pod.On = known[pod.UID]
		shown := pods[pod.UID]
		if pod.Reserved = shown == nil; pod.Reserved {
			shown = p.listed(pod.Path(), pod.UID)
		}
		describe(pod, shown, gangOf)
	}
	for i := range out.Holds {
		hold := &out.Holds[i]
		priority := hold.Priority
		describe(&hold.Pod, p.listed(hold.Path(), hold.UID), gangOf)
		hold.Priority = priority
	}
	return out
}

// overbookedOf returns a pod whose share does not fit.
func overbookedOf(a *vgpu.Assignment) snapshot.Overbooked {
	out := snapshot.Overbooked{Name: snapshot.NameOf(a.Pod, a.UID)}
	for _, c := range a.Containers {
		out.Devices = append(out.Devices, c.Devices...)
		out.Slots += c.Share.Slots * vgpu.Slots(len(c.Devices))
	}
	slices.Sort(out.Devices)
	out.Devices = slices.Compact(out.Devices)
	return out
}

// describe adds what the API says of a pod, which is nil where it is gone.
func describe(out *snapshot.Pod, pod *v1.Pod, gangOf func(*v1.Pod) *snapshot.GangName) {
	if pod == nil {
		return
	}
	out.Gang, out.Workload, out.Owners = gangOf(pod), workloadOf(pod), ownersOf(pod)
	if pod.Spec.Priority != nil {
		out.Priority = *pod.Spec.Priority
	}
	if longest, is := kube.LongestRun(pod); is && pod.Status.StartTime != nil {
		out.EndsBy = time.Unix(vgpu.Sum(pod.Status.StartTime.Unix(), longest), 0).UTC()
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionTrue {
			out.Since = c.LastTransitionTime.UTC()
		}
	}
}

func workloadOf(pod *v1.Pod) string {
	key := workloads.WorkloadOf(pod)
	return key.ProfileName()
}

// jobSetLabel is the label with the JobSet that a pod belongs to: the JobSet's Jobs own its pods.
const jobSetLabel = "jobset.sigs.k8s.io/jobset-name"

// ownersOf returns what made a pod: see snapshot.Pod.
func ownersOf(pod *v1.Pod) (owners []string) {
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		owners = append(owners, owner.Kind+"/"+owner.Name)
	}
	if name := pod.Labels[jobSetLabel]; name != "" {
		owners = append(owners, "JobSet/"+name)
	}
	return owners
}

// listed returns a pod as the informer has it, nil where it is gone.
func (p *Plugin) listed(path string, uid vgpu.UID) *v1.Pod {
	name := snapshot.NameOf(path, uid)
	pod, err := p.state.pods.Pods(name.Namespace).Get(name.Name)
	if err != nil || kube.UIDOf(pod) != uid {
		return nil
	}
	return pod
}

// waits reports whether the pod of an assignment exists and has no node by the informer: the scheduler binds it now.
func (p *Plugin) waits(a *vgpu.Assignment) bool {
	pod := p.listed(a.Pod, a.UID)
	return pod != nil && pod.Spec.NodeName == ""
}

// measured is what the agent of a node last published of its devices, by ID.
type measured map[string]*v1alpha1.GPUDevice

// useOn returns what the agent of a node last published, nil for nothing.
func (p *Plugin) useOn(node string) *v1alpha1.GPUNode {
	object, ok, err := p.gpuNodes.GetByKey(node)
	r, isNode := object.(*condensed)
	if err != nil || !ok || !isNode {
		return nil
	}
	return r.use
}

func measuredIn(use *v1alpha1.GPUNode) measured {
	if use == nil {
		return nil
	}
	m := make(measured, len(use.Status.Devices))
	for i := range use.Status.Devices {
		d := &use.Status.Devices[i]
		m[d.ID] = d
	}
	return m
}

// describe adds what was measured of a device.
func (m measured) describe(out *snapshot.Device) {
	d := m[string(out.ID)]
	if d == nil {
		return
	}
	out.Reason, out.Note = d.Reason, d.Message
	if u := d.Usage; u != nil {
		out.Use = &snapshot.DeviceUse{
			SMPercent: int(u.SMUtilizationPercent), BandwidthPercent: int(u.MemoryBandwidthPercent),
			MemoryBytes: bytesOf(u.MemoryUsed), Contexts: int(d.ContextsUsed),
		}
	}
}

// knownOn returns what is predicted and measured of each pod of a node on its devices.
func (r *rule) knownOn(ledger *vgpu.Node, use measured) map[vgpu.UID][]snapshot.On {
	if ledger == nil {
		return nil
	}
	known := map[vgpu.UID][]snapshot.On{}
	for i := range ledger.Devices() {
		d := &ledger.Devices()[i]
		here := ledger.Residents(i, nil)
		slowdowns := r.slowdowns(d.Model, here)
		for k := range here {
			on := snapshot.On{Device: d.ID}
			if slowdowns != nil {
				on.SlowdownMilli = slowdowns[k]
			}
			if gpu := use[string(d.ID)]; gpu != nil {
				addTenant(&on, gpu.Tenants, string(here[k].UID))
			}
			if on != (snapshot.On{Device: d.ID}) {
				known[here[k].UID] = append(known[here[k].UID], on)
			}
		}
	}
	return known
}

// slowdowns returns the predicted slowdowns of the pods on a device of a model, in thousandths; nil where the rule predicts
// nothing.
func (r *rule) slowdowns(model string, here []vgpu.Resident) []int64 {
	if r.among == nil || len(here) == 0 {
		return nil
	}
	tenants := make([]interference.Tenant, len(here))
	for k := range here {
		tenants[k] = r.among.Tenant(interference.Workload(here[k].Workload), model, here[k].Compute)
	}
	predicted, milli := r.among.Model.Predict(tenants, nil), make([]int64, len(here))
	for k := range predicted {
		milli[k] = int64(math.Round(1000 * predicted[k].Slowdown()))
	}
	return milli
}

// addTenant adds what was measured of a pod on a device.
func addTenant(on *snapshot.On, tenants []v1alpha1.GPUTenant, uid string) {
	at := slices.IndexFunc(tenants, func(t v1alpha1.GPUTenant) bool { return t.UID == uid })
	if at < 0 {
		return
	}
	t := &tenants[at]
	if t.SMUtilizationPercent != nil {
		percent := int(*t.SMUtilizationPercent)
		on.SMPercent = &percent
	}
	if t.MemoryUsed != nil {
		used := bytesOf(*t.MemoryUsed)
		on.MemoryUsedBytes = &used
	}
	if t.Rate != nil {
		rate := t.Rate.ScaledValue(resource.Micro)
		on.RateMicro = &rate
	}
}

func bytesOf(q resource.Quantity) vgpu.Bytes { return vgpu.Bytes(q.Value()) }

// SnapshotPending returns the pods with vGPUs that wait, by UID, with their last refusals: those that have waited longest, up to a
// number. It also returns how many it left out.
func (p *Plugin) SnapshotPending(most int, gangOf func(*v1.Pod) *snapshot.GangName) (pending []snapshot.Pending, leftOut int) {
	all := p.pending.list()
	slices.SortFunc(all, func(a, b waiting) int {
		return cmp.Or(a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time), cmp.Compare(a.pod.UID, b.pod.UID))
	})
	shown := all[:min(most, len(all))]
	for i := range shown {
		pending = append(pending, p.snapshotPending(&shown[i], gangOf))
	}
	slices.SortFunc(pending, func(a, b snapshot.Pending) int { return cmp.Compare(a.UID, b.UID) })
	return pending, len(all) - len(shown)
}

func (p *Plugin) snapshotPending(w *waiting, gangOf func(*v1.Pod) *snapshot.GangName) snapshot.Pending {
	out := snapshot.Pending{
		Name: snapshot.Name{Namespace: w.pod.Namespace, Name: w.pod.Name, UID: kube.UIDOf(w.pod)},
		Gang: gangOf(w.pod), Workload: workloadOf(w.pod), Owners: ownersOf(w.pod), Since: w.pod.CreationTimestamp.UTC(),
	}
	for i := range w.pod.Spec.SchedulingGates {
		out.Gates = append(out.Gates, w.pod.Spec.SchedulingGates[i].Name)
	}
	if r, err := readRequest(w.pod); err == nil {
		// The last refusal says that no model reaches its rate or latency.
		_ = p.state.complete(w.pod, &r, p.state.learner.Snapshot(), p.state.offered())
		out.Request = snapshot.RequestOf(&r, 0)
		out.Request.EndsAfterSeconds, _ = kube.LongestRun(w.pod)
	}
	message := ""
	for i := range w.pod.Status.Conditions {
		if c := &w.pod.Status.Conditions[i]; c.Type == v1.PodScheduled && c.Status == v1.ConditionFalse {
			message = c.Message
		}
	}
	if message == "" && w.last == nil {
		return out
	}
	out.Refused = &snapshot.Refused{Message: message}
	if w.last != nil {
		out.Refused.At, out.Refused.Illegal = w.last.at.UTC().Truncate(time.Second), w.last.illegal
		for _, reason := range slices.Sorted(maps.Keys(w.last.nodes)) {
			out.Refused.Nodes = append(out.Refused.Nodes, snapshot.RefusedNodes{Reason: reason, Nodes: w.last.nodes[reason]})
		}
		if w.last.nearest != nil {
			out.Refused.Nearest = snapshot.RefusalOf(w.last.nearest)
			out.Refused.RoomAtSlowdownMilli = w.last.roomAt
		}
	}
	return out
}
