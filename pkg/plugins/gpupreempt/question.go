package gpupreempt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/admission"
	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/victims"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// question is the question to core for one pod.
type question struct {
	pod      *v1.Pod
	priority int32
	cluster  *gang.Cluster
	group    *gang.Group
	config   preemption.Config
	// infos are the nodes of the cluster, in the same order.
	infos []fwk.NodeInfo
	// from are the candidates, and pods are its pods.
	from *preemption.Candidates
	pods []*v1.Pod
	// open are the nodes to choose from: their refusal of the preemptor is one that evictions may change.
	open []bool
	// costOf adds up what units cost; reprieve sets it.
	costOf func([]preemption.Unit) preemption.Cost
	// isSetAside is true after setAside.
	isSetAside bool
}

var errNoShares = errors.New("the scheduler's profile enables GPUPreempt without GPUShare, which knows the GPUs: enable both")

// question collects what a plan for a pod depends on. The error says in words why there is no question.
func (p *Plugin) question(ctx context.Context, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*question, error) {
	shares := p.sharesOrNil()
	if shares == nil {
		return nil, errNoShares
	}
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	ledgers, err := shares.Ledgers(ctx, pod, nodes, func(string) bool { return false })
	if err != nil {
		return nil, err
	}
	want, err := shares.Request(pod)
	if err != nil {
		return nil, err
	}
	want.Steps = shares.Steps(pod, &want)
	q := &question{
		pod: pod, priority: want.Priority,
		group:  &gang.Group{Name: want.Pod, MinCount: 1, Members: []gang.Member{{Request: want}}},
		config: p.config(gang.Config{Policy: shares.Policy()}),
	}
	q.setNodes(nodes, ledgers)
	q.admit(statuses)
	if q.from, q.pods, err = p.candidates(nodes, q.cluster.Nodes, q.open, q.priority); err != nil {
		return nil, err
	}
	return q, nil
}

// config returns the configuration of core.
func (p *Plugin) config(place gang.Config) preemption.Config {
	return preemption.Config{
		Config: place, Prices: victims.PricesOf(&p.args.Prices), MaxSteps: int(p.args.MaxSteps), KeepBudgets: p.args.PodDisruptionBudgets == config.BudgetsRequired,
	}
}

// setNodes makes the cluster of the nodes that have a ledger, by name.
func (q *question) setNodes(infos []fwk.NodeInfo, ledgers []*vgpu.Node) {
	order := make([]int, 0, len(infos))
	for i := range infos {
		if ledgers[i] != nil {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int { return strings.Compare(ledgers[a].Name(), ledgers[b].Name()) })
	q.cluster = &gang.Cluster{Nodes: make([]*vgpu.Node, len(order))}
	q.infos = make([]fwk.NodeInfo, len(order))
	for at, i := range order {
		q.cluster.Nodes[at], q.infos[at] = ledgers[i], infos[i]
		if room, isOvercommitted := overcommitted(infos[i], ledgers[i].Room()); isOvercommitted {
			q.cluster.Nodes[at] = ledgers[i].Clone()
			q.cluster.Nodes[at].SetRoom(room)
		}
	}
}

// overcommitted returns the room of a host whose pods request more than it has, which is below zero, and whether they
// do. Its ledger then has no room left, as it does where they request just what it has: only there overcommitted adds
// them up. A pod that names its node itself may request any amount; no pod fits there until it has left.
func overcommitted(info fwk.NodeInfo, free vgpu.Room) (room vgpu.Room, isOvercommitted bool) {
	if free.MilliCPU > 0 && free.Memory > 0 {
		return free, false
	}
	allocatable := info.GetAllocatable()
	room = vgpu.Room{MilliCPU: allocatable.GetMilliCPU(), Memory: vgpu.Bytes(allocatable.GetMemory())}
	for _, pod := range info.GetPods() {
		room = room.Less(hostOf(pod))
	}
	return room, room.MilliCPU < 0 || room.Memory < 0
}

// setAside takes from the hosts the future use of nominated pods of the same or a higher priority: holds keep devices
// only.
func (q *question) setAside(nominator fwk.PodNominator) {
	q.isSetAside = true
	for i, n := range q.cluster.Nodes {
		if room, less := q.roomBeside(nominator, n); less {
			q.cluster.Nodes[i] = n.Clone()
			q.cluster.Nodes[i].SetRoom(room)
		}
	}
}

// roomBeside returns the room of a host beside its nominated pods, and whether there are any.
func (q *question) roomBeside(nominator fwk.PodNominator, n *vgpu.Node) (room vgpu.Room, less bool) {
	room = n.Room()
	for _, info := range nominator.NominatedPodsForNode(n.Name()) {
		other := info.GetPod()
		if other.UID != q.pod.UID && corev1helpers.PodPriority(other) >= q.priority {
			host, _ := kube.Host(other) // the most where it is absurd
			room = room.Less(host)
			less = true
		}
	}
	return room, less
}

// setAsideIfTaken sets aside the future use of nominated pods if a plan takes it, and reports whether it did. To read
// the nominated pods of each node takes long. Mostly the host of the plan has room for all, and then no other plan is
// cheaper with less room.
func (q *question) setAsideIfTaken(nominator fwk.PodNominator, at int, plan *preemption.Plan) bool {
	if q.isSetAside {
		return false
	}
	n := q.cluster.Nodes[at]
	room, less := q.roomBeside(nominator, n)
	for _, i := range leavingCandidates(plan) {
		if c := &q.from.Pods[i]; c.Node == n.Name() {
			room = room.Plus(c.Host)
		}
	}
	if !less || q.group.Members[0].Request.Host.Within(room) {
		return false
	}
	q.setAside(nominator)
	return true
}

// admit opens the nodes where evictions may help. A plugin refused the pod there for a reason that evictions may end, and as far as
// a look can see, nothing else keeps it out.
func (q *question) admit(statuses fwk.NodeToStatusReader) {
	demand := admission.Of(q.pod)
	q.open = make([]bool, len(q.infos))
	for i, info := range q.infos {
		node := info.Node()
		q.open[i] = statuses.Get(node.Name).Code() == fwk.Unschedulable && demand.MetBy(node)
	}
	q.cluster.Admits = func(_, node int) int {
		if q.open[node] {
			return 1
		}
		return 0
	}
}

// find returns the place of a node in the cluster, −1 for none.
func (q *question) find(name string) int {
	at, found := slices.BinarySearchFunc(q.cluster.Nodes, name, func(n *vgpu.Node, name string) int { return strings.Compare(n.Name(), name) })
	if !found {
		return -1
	}
	return at
}

// leavingCandidates returns the candidates that leave by a plan: those that it evicts, and those that it waits for.
func leavingCandidates(plan *preemption.Plan) []int {
	all := slices.Clone(plan.Waits)
	for _, u := range plan.Evict {
		all = append(all, u.Pods...)
	}
	return all
}
