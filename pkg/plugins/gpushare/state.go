package gpushare

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/learning"
	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// state is what the plugin knows beside the framework's snapshot: the devices, the reservations and the holds. The
// plugin never stores what pods use: it computes that from the NodeInfo (see occupancy).
type state struct {
	pods    corelisters.PodLister
	metrics *metricSet
	// learner knows the workloads.
	learner *learning.Learner
	// curves size pods that want a rate or a latency.
	curves workloads.Curves
	// freed has the pods tried again that may have room on a node: room became free there without an event of the framework.
	freed func(node string)
	// rule is replaced by PreFilter alone, so that it is one for all steps of a scheduling cycle.
	rule atomic.Pointer[rule]

	mu    sync.RWMutex
	nodes map[string]*node
	// listed has the same nodes in the order of their making, for those who read them without mu. It grows and never shrinks.
	listed atomic.Pointer[[]*node]
	// reservations by pod: devices between Reserve and the moment when the informer shows them.
	reservations map[vgpu.UID]vgpu.Assignment
	// holds of other plugins by pod.
	holds map[vgpu.UID]vgpu.Hold
	// unresolved names, by pod, the nodes where an unresolved bind keeps room.
	unresolved map[vgpu.UID][]string
	// offers is what the nodes have of each shape; nil after a change, and replaced, never changed.
	offers []vgpu.Offer
	// planned knows the pods that another plugin plans, nil for none.
	planned atomic.Pointer[func(*v1.Pod) bool]
	// ranking is what PreFilter remembers between cycles. Its mutex comes before mu.
	ranking ranking
	// why the plugin has not read the GPUNodes, "" after it has.
	why string
}

// node is what the plugin knows about one node. All but cached is guarded by state.mu.
type node struct {
	name string
	// empty is the node with an empty ledger; nil while problem says why there is none.
	empty   *vgpu.Node
	problem string
	// unenforced are the models of its devices on which nothing keeps tenants to their compute limit.
	unenforced []string
	// epoch grows with every change of the fields here and below: a cached occupancy of another epoch is stale.
	epoch uint64
	// reserved and held name the pods with a reservation or a hold on the node.
	reserved map[vgpu.UID]bool
	held     map[vgpu.UID]bool
	// unresolved holds assignments whose bind may or may not have happened, by pod. Such an assignment keeps its room
	// from all pods, and a pod that comes back to the node gets the same one again.
	unresolved map[vgpu.UID]unresolved
	// since has the devices that the scheduler gave to pods since the cached occupancy, by pod. Some of those pods may be gone.
	since map[vgpu.UID]vgpu.Assignment
	// pause keeps pods away while the kubelet of the node refuses them, nil for none.
	pause *pause

	// cached is the occupancy of the last PreFilter. Other threads read it, so it is immutable.
	cached atomic.Pointer[occupancy]
}

func newState(pods corelisters.PodLister, m *metricSet, learner *learning.Learner) *state {
	return &state{
		pods: pods, metrics: m, learner: learner,
		nodes:        map[string]*node{},
		reservations: map[vgpu.UID]vgpu.Assignment{},
		holds:        map[vgpu.UID]vgpu.Hold{},
		unresolved:   map[vgpu.UID][]string{},
		freed:        func(string) {},
		why:          "the GPUNodes are not read yet",
	}
}

// node returns the node, making it if need be. The caller holds the write lock.
func (s *state) node(name string) *node {
	n := s.nodes[name]
	if n == nil {
		n = &node{
			name: name, problem: noGPUs,
			reserved: map[vgpu.UID]bool{}, held: map[vgpu.UID]bool{}, unresolved: map[vgpu.UID]unresolved{},
		}
		s.nodes[name] = n
		listed := append(s.allNodes(), n) // beyond the length that readers know
		s.listed.Store(&listed)
	}
	return n
}

// allNodes returns the nodes in the order of their making, without a lock. Callers do not modify the slice.
func (s *state) allNodes() []*node {
	if all := s.listed.Load(); all != nil {
		return *all
	}
	return nil
}

// Problems of nodes.
const (
	noGPUs        = "the node has no GPUs"
	notReady      = "the node's GPU agent is not ready"
	brokenGPUNode = "the node's GPUNode is broken"
)

// unread says why the plugin has not read the GPUNodes, "" after it has.
func (s *state) unread() string {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.why
}

// setUnread notes why the plugin cannot read the GPUNodes; "" says that it has read them. After that it has no effect.
func (s *state) setUnread(why string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why != "" {
		s.why = why
	}
}

// offered returns what the nodes have of each shape of device.
func (s *state) offered() []vgpu.Offer {
	s.mu.RLock()
	offers := s.offers
	s.mu.RUnlock()
	if offers != nil {
		return offers
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.offers = s.countOffers()
	return s.offers
}

// setInventory notes the devices of a node, or why it has none that can be used, and reports whether that changed.
func (s *state) setInventory(name string, devices []vgpu.Device, problem string) (bool, error) {
	var empty *vgpu.Node
	if len(devices) > 0 {
		var err error
		if empty, err = vgpu.NewNode(name, devices); err != nil {
			s.replace(name, nil, brokenGPUNode)
			return true, fmt.Errorf("read GPUNode %s: %w", name, err)
		}
	}
	return s.replace(name, empty, problem), nil
}

func (s *state) replace(name string, empty *vgpu.Node, problem string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.node(name)
	if n.problem == problem && sameDevices(n.empty, empty) {
		return false
	}
	n.empty, n.problem = empty, problem
	n.epoch++
	s.offers = nil
	return true
}

// setUnenforced notes the models of a node's devices on which nothing keeps tenants to their compute limit. The change
// counts from the next rule on.
func (s *state) setUnenforced(name string, models []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.nodes[name]; n != nil {
		n.unenforced = models
	}
}

// unenforced returns the models of devices, on any node, on which nothing keeps tenants to their compute limit.
func (s *state) unenforced() sets.Set[string] {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var models sets.Set[string]
	for _, n := range s.nodes {
		if len(n.unenforced) > 0 {
			models = models.Union(sets.New(n.unenforced...))
		}
	}
	return models
}

func sameDevices(a, b *vgpu.Node) bool {
	if a == nil || b == nil {
		return a == b
	}
	return slices.EqualFunc(a.Devices(), b.Devices(), func(x, y vgpu.Device) bool {
		links := slices.Equal(x.Links, y.Links)
		x.Links, y.Links = nil, nil
		return links && x.ID == y.ID && x.Index == y.Index && x.Shape() == y.Shape() &&
			x.Contexts == y.Contexts && x.Healthy == y.Healthy
	})
}

// countOffers counts what the nodes have of each shape, unless nothing changed since. The caller holds a lock.
func (s *state) countOffers() []vgpu.Offer {
	if s.offers != nil {
		return s.offers
	}
	var nodes []*vgpu.Node
	for _, n := range s.nodes {
		if n.empty != nil {
			nodes = append(nodes, n.empty)
		}
	}
	return vgpu.Offers(nodes)
}

// refresh computes the occupancy of the nodes that changed since the last call, and adds up what all of them hold. The
// others cost no allocation.
func (s *state) refresh(logger klog.Logger, nodes []fwk.NodeInfo) load {
	s.resolveShown(nodes)
	s.ranking.mu.Lock()
	defer s.ranking.mu.Unlock()
	s.mu.RLock()
	defer s.mu.RUnlock()
	version, sum := s.learner.Snapshot().Version(), load{}
	for i, entry := range s.nodeEntries(nodes) {
		if entry.node != nil {
			sum = sum.plus(s.renew(logger, entry.node, nodes[i], version))
		}
	}
	return sum
}

// renew returns the occupancy of a node, made anew and kept where the last does not hold any more. The caller holds a lock.
func (s *state) renew(logger klog.Logger, n *node, info fwk.NodeInfo, version uint64) *occupancy {
	before := n.cached.Load()
	if before == nil || !before.nameless || before.version == version {
		if o := n.fresh(info); o != nil {
			return o
		}
		if o := n.withRoom(info); o != nil {
			n.cached.Store(o)
			return o
		}
	}
	o := s.build(n, info)
	n.cached.Store(o)
	if len(o.strays) > 0 && (before == nil || !slices.Equal(before.strays, o.strays)) {
		logger.Info("Pods use GPUs without a valid assignment", "node", n.name, "slots", o.stray, "pods", o.strays)
	}
	s.metrics.rebuilds.Inc()
	return o
}

// occupancyOf returns the occupancy of the node in info: the cached one where it is valid, else a new one that the
// cache does not keep. Callers do not modify it.
func (s *state) occupancyOf(info fwk.NodeInfo) *occupancy {
	s.mu.RLock()
	defer s.mu.RUnlock()
	n := s.nodes[info.Node().Name]
	if n == nil {
		return &withoutGPUs
	}
	return s.of(n, info)
}

// of returns the occupancy of a node as info has it. The caller holds a lock.
func (s *state) of(n *node, info fwk.NodeInfo) *occupancy {
	if o := n.fresh(info); o != nil {
		return o
	}
	if o := n.withRoom(info); o != nil {
		return o
	}
	return s.build(n, info)
}

// fresh returns the cached occupancy if it describes info, else nil. The generation alone does not suffice: in a group
// cycle the snapshot adds pods and keeps the old one.
func (n *node) fresh(info fwk.NodeInfo) *occupancy {
	o := n.cached.Load()
	if o == nil || o.generation != info.GetGeneration() || o.epoch != n.epoch || o.pods != len(info.GetPods()) {
		return nil
	}
	return o
}

// unresolvedPriority makes the hold of an unresolved bind count for pods of every priority.
const unresolvedPriority = math.MaxInt32
