package gpugang

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// planInput is the question to core for one gang.
type planInput struct {
	gang    *podgroup.Gang
	cluster *gang.Cluster
	group   *gang.Group
	config  gang.Config
	// pods are the members that need a place, in the order of group.Members.
	pods []*v1.Pod
	// unresolved are the places of members with an unresolved bind: where that bind would have put them. unresolvedPods are these
	// members.
	unresolved     []reservation.Place
	unresolvedPods []*v1.Pod
	// bound is the number of members with a node and without a deletion.
	bound int
	// infos are the nodes of the cluster, in the same order.
	infos []fwk.NodeInfo
}

// find returns the place of a node in the cluster, and whether it is there.
func (in *planInput) find(name string) (int, bool) {
	return slices.BinarySearchFunc(in.cluster.Nodes, name, func(n *vgpu.Node, name string) int { return strings.Compare(n.Name(), name) })
}

// ledger returns the node of the cluster with a name, nil where there is none.
func (in *planInput) ledger(name string) *vgpu.Node {
	if at, found := in.find(name); found {
		return in.cluster.Nodes[at]
	}
	return nil
}

// placed counts the members that have a place already.
func (in *planInput) placed() int { return len(in.group.Placed) }

// lacking counts the members that must run and have no place.
func (in *planInput) lacking() int { return lackingOf(in.group) }

func lackingOf(g *gang.Group) int { return max(0, g.MinCount-len(g.Placed)) }

// placesOf returns the places that a plan has for members, those with unresolved binds included.
func (in *planInput) placesOf(plan *gang.Plan) []reservation.Place {
	places := slices.Clone(in.unresolved)
	for i, a := range plan.Places {
		if a.Node != "" {
			places = append(places, reservation.Place{Assignment: a, Host: in.group.Members[i].Request.Host})
		}
	}
	for i := range places {
		places[i].Within = in.within(places[i].Node)
	}
	return places
}

// within returns the labels that keep a member in the required domains of a node.
func (in *planInput) within(node string) map[string]string {
	at, found := in.find(node)
	if !found {
		return nil
	}
	labels := map[string]string{}
	for _, key := range in.group.Wishes.Required {
		if key != gang.NVLink {
			labels[key] = in.infos[at].Node().Labels[key]
		}
	}
	return labels
}

// unread says what of the cluster the plugin has not read yet.
type unread struct{ error }

// buildInput collects what a plan depends on. With anew, members with unresolved binds get a new plan too. The error
// says in words what is wrong with the gang; it is an unread where a part of the cluster is still unknown. The caller
// holds the lock of the machine.
func (p *Plugin) buildInput(ctx context.Context, l machine.Locked, c *cycle, pg *podgroup.Gang, anew bool) (*planInput, error) {
	if p.shares == nil || p.shares() == nil {
		return nil, errors.New("the scheduler's profile enables GPUGang without GPUShare, which knows the GPUs: enable both")
	}
	p.claim.Do(func() { p.shares().Plans(p.isMember) })
	ledgers, err := p.shares().Ledgers(ctx, c.pod, c.nodes, alsoFor(l.State, pg))
	if err != nil {
		return nil, unread{err}
	}
	in := &planInput{
		gang:   pg,
		group:  &gang.Group{Name: pg.String(), MinCount: pg.MinCount},
		config: gang.Config{Policy: p.shares().Policy(), MaxDomains: int(p.args.MaxDomains)},
	}
	in.group.Wishes, in.group.Losses = p.wishes(pg), p.losses(pg)
	p.topology.refresh(c.nodes)
	in.cluster, in.infos = p.topology.cluster(c.nodes, ledgers, in.group.Wishes)
	for node, room := range l.State.Beside(pg.Ref, in.isThere) {
		in.setAside(node, room)
	}
	var admits *admittance
	if admits, err = p.members(l, in, pg, anew); err != nil {
		return nil, err
	}
	if n := len(in.group.Members) + in.placed(); n < pg.MinCount { // some left, or got gates, after the gang was read
		return nil, unread{fmt.Errorf("gang %s: %d of %d members have a place or wait for one: it is planned when the others do", pg, n, pg.MinCount)}
	}
	admits.nodes = in.infos
	in.cluster.Admits, in.cluster.Bars = admits.count, admits.bar
	in.cluster.Ends, in.cluster.Host, in.cluster.Hosts = p.endOf, p.hostOf, in.hostAt
	return in, nil
}

func (p *Plugin) isMember(pod *v1.Pod) bool {
	_, ok := p.gangs.Of(pod)
	return ok
}

// alsoFor says which nodes matter to a gang although they have no devices. These are the nodes where members are, since
// the others come near them. For a gang with members without vGPUs, they are all nodes.
func alsoFor(s *reservation.State, pg *podgroup.Gang) func(node string) bool {
	if slices.ContainsFunc(pg.Members, func(m *v1.Pod) bool { return !kube.WantsVGPU(m) }) {
		return func(string) bool { return true }
	}
	near := map[string]bool{}
	for _, m := range pg.Members {
		near[m.Spec.NodeName] = true
	}
	s.Planned(pg.Ref, func(at reservation.Place) { near[at.Node] = true })
	return func(node string) bool { return near[node] }
}

// wishes returns how close the members come: as the gang says, else as the arguments do.
func (p *Plugin) wishes(pg *podgroup.Gang) gang.Wishes {
	return gang.Wishes{Required: pg.Required, Preferred: pg.Preferred}.Or(p.args.PreferredTopology)
}

// members sorts the members into those that have a place and those that need one.
func (p *Plugin) members(l machine.Locked, in *planInput, pg *podgroup.Gang, anew bool) (*admittance, error) {
	s := l.State
	admits := &admittance{most: s.Limits(pg.Ref)}
	for i, pod := range pg.Members {
		// The informer's store is never behind the scheduler's snapshot; the gang's copy may be. A member with a place
		// in the ledgers must not get a second one.
		if pod = p.machine.Seen(kube.UIDOf(pod), kube.PathOf(pod)); pod == nil || pod.DeletionTimestamp != nil {
			continue
		}
		m := machine.MemberOf(pod)
		if s.OnNode(pg.Ref, &m) {
			in.bound++
		}
		if at, ok := p.placed(s, pg.Ref, pod); ok {
			in.group.Placed = append(in.group.Placed, at)
			continue
		}
		if !m.Waits() {
			continue
		}
		r, err := p.shares().Request(pod)
		if err != nil {
			return nil, fmt.Errorf("member %s: %w", klog.KObj(pod), err)
		}
		unresolved := p.shares().Unresolved(kube.UIDOf(pod))
		if at := in.tryable(admits.most, unresolved, r.Host); at != nil && !anew {
			in.setAside(at.Node, r.Host) // the snapshot has this member on no node
			in.group.Placed = append(in.group.Placed, *at)
			in.unresolved, in.unresolvedPods = append(in.unresolved, reservation.Place{Assignment: *at, Host: r.Host}), append(in.unresolvedPods, pod)
			continue
		}
		in.group.Members = append(in.group.Members, gang.Member{Request: r, Rank: pg.Ranks[i], Kind: admits.kind(pod, unresolved)})
		in.pods = append(in.pods, pod)
	}
	return admits, nil
}

// placed returns where a member is or will be: bound, reserved or planned.
func (p *Plugin) placed(s *reservation.State, ref podgroup.Ref, pod *v1.Pod) (vgpu.Assignment, bool) {
	if at, ok := s.Place(ref, kube.UIDOf(pod)); ok {
		return at.Assignment, true
	}
	node := pod.Spec.NodeName
	if a, ok := p.shares().Assigned(pod); ok && (node == "" || a.Node == node) {
		return a, true
	}
	if node == "" {
		return vgpu.Assignment{}, false
	}
	return vgpu.Assignment{UID: kube.UIDOf(pod), Pod: kube.PathOf(pod), Node: node}, true
}

// setAside takes from a host what a pod that is not there yet will use: holds keep devices only.
func (in *planInput) setAside(node string, room vgpu.Room) {
	if at, found := in.find(node); found {
		n := in.cluster.Nodes[at].Clone()
		n.SetRoom(n.Room().Minus(room))
		in.cluster.Nodes[at] = n
	}
}

// isThere reports whether the snapshot has a pod on a node.
func (in *planInput) isThere(node string, pod vgpu.UID) bool {
	at, found := in.find(node)
	return found && slices.ContainsFunc(in.infos[at].GetPods(), func(onNode fwk.PodInfo) bool { return kube.UIDOf(onNode.GetPod()) == pod })
}

// tryable returns the first of the possible places of a member where another try is legal and the host has room, nil for
// none: the member would get these devices or none.
func (in *planInput) tryable(limits map[string]int, unresolved []vgpu.Assignment, host vgpu.Room) *vgpu.Assignment {
	for i := range unresolved {
		n := in.ledger(unresolved[i].Node)
		if _, limited := limits[unresolved[i].Node]; !limited && reservation.Healthy(n, &unresolved[i]) && host.Within(n.Room()) {
			return &unresolved[i]
		}
	}
	return nil
}

// endOf returns the Unix time at which a pod ends at the latest: gang.Never for one that restarts whenever it ends, 0
// for an unknown end.
func (p *Plugin) endOf(uid vgpu.UID, pod string) int64 {
	seen := p.machine.Seen(uid, pod)
	if seen == nil {
		return 0
	}
	switch longest, ends := kube.LongestRun(seen); {
	case ends && seen.Status.StartTime != nil:
		return vgpu.Sum(seen.Status.StartTime.Unix(), longest)
	case seen.Spec.ActiveDeadlineSeconds == nil && seen.Spec.RestartPolicy == v1.RestartPolicyAlways:
		return gang.Never
	}
	return 0
}

// hostOf returns what a host has back when a pod ends: nothing for an unknown pod, and for a request beyond any host.
func (p *Plugin) hostOf(uid vgpu.UID, pod string) vgpu.Room {
	seen := p.machine.Seen(uid, pod)
	if seen == nil {
		return vgpu.Room{}
	}
	host, err := kube.Host(seen)
	if err != nil {
		return vgpu.Room{}
	}
	return host
}

// hostAt returns what the host of a node has for pods, whichever pods are there.
func (in *planInput) hostAt(node int) vgpu.Room {
	allocatable := in.infos[node].GetAllocatable()
	return vgpu.Room{MilliCPU: allocatable.GetMilliCPU(), Memory: vgpu.Bytes(allocatable.GetMemory())}
}

// startOf returns the Unix time at which a pod got its node, 0 for an unknown time.
func (p *Plugin) startOf(uid vgpu.UID, pod string) int64 {
	seen := p.machine.Seen(uid, pod)
	if seen == nil {
		return 0
	}
	if at := machine.ScheduledAt(seen); !at.IsZero() {
		return at.Unix()
	}
	return 0
}

func priorityOf(pod *v1.Pod) int32 { return corev1helpers.PodPriority(pod) }
