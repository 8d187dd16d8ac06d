package gpushare

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// PostFilter makes no room. After a shortlist that others refused it ends the chain of PostFilter plugins and has the pod
// tried again with all nodes; so the profile lists it before DefaultPreemption. Else it adds the nearest miss to the pod's
// event, with node and device, once per attempt and only where this plugin refused the node. If those nodes could never take the
// pod, it names what closes the others instead, such as a cordon: a share that is illegal on some GPUs may be legal on theirs.
func (p *Plugin) PostFilter(ctx context.Context, cs fwk.CycleState, pod *v1.Pod, statuses fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if p.missed(cs, pod) {
		p.handle.Activate(klog.FromContext(ctx), map[string]*v1.Pod{klog.KObj(pod).String(): pod})
		return nil, verdict.New(fwk.UnschedulableAndUnresolvable, "the best nodes by GPU are refused for other reasons; all nodes are tried next")
	}
	nothing := verdict.New(fwk.Unschedulable)
	defer func() {
		if p.news.any() {
			p.pending.activateFor(profilePath(pod)) // the attempt went by a rule that is out of date
		}
	}()
	r := requestOf(cs)
	if r == nil {
		p.pending.note(pod, nil, &attempt{at: p.now(), illegal: illegalOf(cs)})
		return nil, nothing
	}
	nodes, err := p.handle.SnapshotSharedLister().NodeInfos().List()
	if err != nil {
		return nil, nothing
	}
	refusals, last := p.refusalsOf(r, nodes, statuses)
	last.onDevices = last.onDevices && !p.isMember(pod)
	p.pending.note(pod, refusals, last)
	nearest, ok := placement.Nearest(refusals)
	if !ok {
		return nil, nothing
	}
	if nearest.Helps == vgpu.NothingHelps {
		closed, others := p.closed(r, nodes, statuses)
		if closed != "" {
			p.metrics.refused("Closed")
			return nil, verdict.New(fwk.Unschedulable, "nearest GPU: "+closed)
		}
		nearest, _ = placement.Nearest(append(others, nearest))
	}
	p.metrics.refused(string(nearest.Reason))
	return nil, verdict.New(fwk.Unschedulable, "nearest GPU: "+nearest.String())
}

// notTried is the reason of nodes that other plugins left out before anyone looked at them.
const notTried = "not looked at"

// refusalsOf returns why nodes that this plugin refused do not take a pod, and what an attempt keeps of that and of the others.
func (p *Plugin) refusalsOf(r *vgpu.Request, nodes []fwk.NodeInfo, statuses fwk.NodeToStatusReader) ([]vgpu.Refusal, *attempt) {
	var refusals []vgpu.Refusal
	var tight []tooSlow
	last := &attempt{at: p.now(), nodes: map[string]int{}, onDevices: true}
	for _, node := range nodes {
		by := statuses.Get(node.Node().Name).Plugin()
		last.onDevices = last.onDevices && p.lacksDevices(by, node)
		if by != Name {
			last.nodes[cmp.Or(by, notTried)]++
			continue
		}
		o := p.state.occupancyOf(node)
		if o.problem != "" {
			last.nodes[o.problem]++
			continue
		}
		if refusal := p.state.ruling().Fit(o.ledger, r); refusal != nil {
			refusals = append(refusals, *refusal)
			last.nodes[string(refusal.Reason)]++
			if refusal.Reason == vgpu.PromiseBroken && refusal.Promised == "" {
				tight = append(tight, tooSlow{o.ledger, refusal.Best})
			}
		}
	}
	last.roomAt = p.roomAt(r, tight)
	if nearest, ok := placement.Nearest(refusals); ok {
		last.nearest = &nearest
	}
	return refusals, last
}

// tooSlow is a node on whose devices the pod would be slower than it tolerates: at least so much, in thousandths of its time alone.
type tooSlow struct {
	ledger   *vgpu.Node
	slowdown int64
}

// mostTolerated bounds the nodes for which roomAt asks.
const mostTolerated = 16

// roomAt returns the least slowdown that the pod has to tolerate to fit on one of the nodes, 0 where it fits on none of those that were asked:
// there the promise of another pod would break.
func (p *Plugin) roomAt(r *vgpu.Request, nodes []tooSlow) int64 {
	slices.SortStableFunc(nodes, func(a, b tooSlow) int { return cmp.Compare(a.slowdown, b.slowdown) })
	for _, n := range nodes[:min(len(nodes), mostTolerated)] {
		tolerant := *r
		tolerant.MaxSlowdown = n.slowdown
		if p.state.ruling().Fit(n.ledger, &tolerant) == nil {
			return n.slowdown
		}
	}
	return 0
}

// closed says which nodes do not take a pod although their devices could, now or when others leave, and why. The words
// are those of the events: "only 2 nodes have GPUs for such a request, and they do not take the pod: 2 node(s) were
// unschedulable". "" for none. The result also has the refusals of the other closed nodes: they could never take the
// pod either.
func (p *Plugin) closed(r *vgpu.Request, nodes []fwk.NodeInfo, statuses fwk.NodeToStatusReader) (string, []vgpu.Refusal) {
	counts, total := map[string]int{}, 0
	every := *r
	every.Steps = p.stepsOnAll() // the pod selects few of these nodes
	r = &every
	var others []vgpu.Refusal
	for _, node := range nodes {
		status, o := statuses.Get(node.Node().Name), p.state.occupancyOf(node)
		if o.ledger == nil || status.Plugin() == Name && o.problem == "" {
			continue
		}
		if refusal := p.state.ruling().Fit(o.ledger, r); refusal != nil && refusal.Helps == vgpu.NothingHelps {
			others = append(others, *refusal)
			continue
		}
		counts[cmp.Or(verdict.Text(status), "node(s) were not looked at")]++
		total++
	}
	if total == 0 {
		return "", others
	}
	parts := make([]string, 0, len(counts))
	for _, why := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[why], why))
	}
	if total == 1 {
		return "only 1 node has GPUs for such a request, and it does not take the pod: " + parts[0], nil
	}
	return fmt.Sprintf("only %d nodes have GPUs for such a request, and they do not take the pod: %s", total, strings.Join(parts, ", ")), nil
}
