package gpushare

import (
	"fmt"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/learning"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/fragmentation"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// desk drives the plugin's methods one by one, as the framework calls them, on NodeInfos that the test owns.
type desk struct {
	t       testing.TB
	plugin  *Plugin
	nodes   []fwk.NodeInfo
	byName  map[string]*framework.NodeInfo
	indexer cache.Indexer // what the pod informer has seen
	later   time.Duration // the plugin's clock is ahead by so much
}

// deskHandle is the part of a framework handle that the plugin's scheduling cycle uses.
type deskHandle struct {
	fwk.Handle
	fwk.SharedLister
	fwk.NodeInfoLister
	desk   *desk
	cacher fwk.APICacher
}

func (s *deskHandle) APICacher() fwk.APICacher { return s.cacher }

func (s *deskHandle) SnapshotSharedLister() fwk.SharedLister { return s }
func (s *deskHandle) NodeInfos() fwk.NodeInfoLister          { return s }
func (s *deskHandle) List() ([]fwk.NodeInfo, error)          { return s.desk.nodes, nil }
func (s *deskHandle) Get(name string) (fwk.NodeInfo, error) {
	if n := s.desk.byName[name]; n != nil {
		return n, nil
	}
	return nil, fmt.Errorf("no node %s", name)
}

func newDesk(t testing.TB, gpuNodes ...*v1alpha1.GPUNode) *desk {
	t.Helper()
	policy, err := placement.ByName("packed")
	must.OK(t, err)
	known := informers.NewSharedInformerFactory(fake.NewClientset(), 0).Core().V1()
	indexer := known.Pods().Informer().GetIndexer()
	d := &desk{t: t, byName: map[string]*framework.NodeInfo{}, indexer: indexer}
	m := newMetrics()
	model, err := interference.ByName("default")
	must.OK(t, err)
	pods := corelisters.NewPodLister(indexer)
	d.plugin = &Plugin{
		handle: &deskHandle{desk: d}, hosts: known.Nodes().Lister(), policy: policy, metrics: m, learn: func() {},
		state:    newState(pods, m, learning.New(learning.Options{Model: model, MaxProfiles: 100})),
		crowding: crowding{model: model, weights: placement.EvenWeights}, scarcity: scarcity{percent: 10},
		pending: newPending(nil, pods), answered: [2]firstAnswer{newAnswer(), newAnswer()},
		gpuNodes: cache.NewStore(cache.MetaNamespaceKeyFunc),
	}
	must.OK(t, indexer.AddIndexers(cache.Indexers{plainPods: indexPlain}))
	d.plugin.plain = func() []*v1.Pod { return plainOf(indexer) }
	d.plugin.state.freed = d.plugin.pending.activateOn
	d.plugin.state.curves.Own = func(namespace string) bool { return namespace != "charged" }
	d.plugin.now = func() time.Time { return time.Now().Add(d.later) }
	d.plugin.profiled.Store(true)
	d.usual()
	d.plugin.state.setUnread("")
	for _, g := range gpuNodes {
		d.setGPUNode(g)
		info := framework.NewNodeInfo()
		info.SetNode(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: g.Name, Labels: map[string]string{"name": g.Name}}, Status: v1.NodeStatus{
			Allocatable: v1.ResourceList{
				v1.ResourceCPU: resource.MustParse("64"), v1.ResourcePods: resource.MustParse("110"), v1alpha1.ResourceVGPU: resource.MustParse("1000"),
			},
		}})
		d.nodes = append(d.nodes, info)
		d.byName[g.Name] = info
	}
	return d
}

// usual makes the kinds the usual requests, from now on.
func (d *desk) usual(kinds ...fragmentation.Kind) {
	d.t.Helper()
	mix, err := fragmentation.NewMix(kinds)
	must.OK(d.t, err)
	d.plugin.usual = func() *fragmentation.Mix { return mix }
	d.plugin.adopt(d.logger(), d.plugin.state.learner.Snapshot(), load{}, &vgpu.Request{})
}

// follow makes the policy what is gone by, from now on.
func (d *desk) follow(policy string) {
	d.t.Helper()
	var err error
	if d.plugin.policy, err = placement.ByName(policy); err != nil {
		d.t.Fatal(err)
	}
	d.usual(d.plugin.usual().Kinds()...)
}

func (d *desk) setGPUNode(g *v1alpha1.GPUNode) {
	d.t.Helper()
	devices, err := kube.Devices(g)
	must.OK(d.t, err)
	if _, err := d.plugin.state.setInventory(g.Name, devices, ""); err != nil {
		d.t.Fatal(err)
	}
}

// preFilter starts the cycle of a pod.
func (d *desk) preFilter(p *v1.Pod) fwk.CycleState {
	d.t.Helper()
	cs := framework.NewCycleState()
	if _, status := d.plugin.PreFilter(d.t.Context(), cs, p, d.nodes); !status.IsSuccess() {
		d.t.Fatalf("PreFilter(%s) = %v", p.Name, status)
	}
	return cs
}

// filter returns the reason against the node, "" for none.
func (d *desk) filter(cs fwk.CycleState, p *v1.Pod, node fwk.NodeInfo) string {
	return d.plugin.Filter(d.t.Context(), cs, p, node).Message()
}

// reserve reserves on the node and returns the place, or the reason against it in brackets.
func (d *desk) reserve(cs fwk.CycleState, p *v1.Pod, node string) string {
	if status := d.plugin.Reserve(d.t.Context(), cs, p, node); !status.IsSuccess() {
		return "(" + status.Message() + ")"
	}
	a, _ := d.plugin.state.reservation(kube.UIDOf(p), node)
	return where(a)
}

func (d *desk) unreserve(cs fwk.CycleState, p *v1.Pod, node string) {
	d.plugin.Unreserve(d.t.Context(), cs, p, node)
}

// assume adds the pod to the NodeInfo as the scheduler does: with its node, without an assignment.
func (d *desk) assume(p *v1.Pod, node string) *v1.Pod {
	d.t.Helper()
	assumed := p.DeepCopy()
	assumed.Spec.NodeName = node
	return d.add(assumed, node)
}

func (d *desk) add(p *v1.Pod, node string) *v1.Pod {
	d.t.Helper()
	info, err := framework.NewPodInfo(p)
	must.OK(d.t, err)
	d.byName[node].AddPodInfo(info)
	return p
}

func (d *desk) remove(p *v1.Pod, node string) {
	d.t.Helper()
	must.OK(d.t, d.byName[node].RemovePod(klog.Background(), p))
}

// bound returns the pod as the API server has it after the bind: with node and assignment.
func bound(t testing.TB, p *v1.Pod, a vgpu.Assignment) *v1.Pod {
	t.Helper()
	raw, err := kube.EncodeAssignment(a)
	must.OK(t, err)
	return with(p.DeepCopy(), func(p *v1.Pod) {
		p.Spec.NodeName = a.Node
		p.Annotations = map[string]string{v1alpha1.AnnotationAssignment: raw}
	})
}

// share returns an assignment of slots of one device to the pod's only container.
func share(p *v1.Pod, node, device string, slots vgpu.Slots) vgpu.Assignment {
	return vgpu.Assignment{
		UID: kube.UIDOf(p), Pod: p.Namespace + "/" + p.Name, Node: node,
		Containers: []vgpu.ContainerAssignment{{
			Name: "main", Devices: []vgpu.DeviceID{vgpu.DeviceID(device)},
			Share: vgpu.Share{
				Devices: 1, Slots: slots, Memory: vgpu.Bytes(slots) * 4 * gib,
				ComputeLimit: vgpu.MilliGPU(slots) * 100, MemoryLimit: vgpu.Bytes(slots) * 4 * gib,
			},
		}},
	}
}

func (d *desk) logger() klog.Logger { return klog.FromContext(d.t.Context()) }
