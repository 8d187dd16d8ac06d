package gpugang

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	schedulerconfig "k8s.io/kubernetes/pkg/scheduler/apis/config"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakecluster"
)

const rack = fakecluster.Rack

// cluster is a cluster in memory with a scheduler that runs GPUShare and GPUGang in the profile "default-scheduler". Evicted pods
// are gone at once.
type cluster struct {
	*fakecluster.Cluster
	args config.GPUGangArgs

	mu sync.Mutex
	// evictions counts those that were asked for.
	evictions atomic.Int64
	// refuseEviction answers every eviction, where it is not nil.
	refuseEviction error

	// refuseHold answers each hold, where it is not nil.
	refuseHold func(vgpu.Hold) error

	plugin *Plugin
	shares *gpushare.Plugin
	stop   func()
}

// newCluster returns a cluster with nodes of as many devices as given, and a scheduler.
func newCluster(t *testing.T, devices ...int) *cluster {
	c := prepareCluster(t, devices...)
	c.start()
	return c
}

func prepareCluster(t *testing.T, devices ...int) *cluster {
	c := &cluster{Cluster: fakecluster.New(t, devices...), args: fakecluster.GangArgs()}
	c.Client.PrependReactor("create", "pods", c.evict)
	return c
}

// evict deletes the pod, as the API server does in the end.
func (c *cluster) evict(action clienttesting.Action) (bool, runtime.Object, error) {
	if action.GetSubresource() != "eviction" {
		return false, nil, nil
	}
	name := action.(clienttesting.CreateAction).GetObject().(metav1.Object).GetName()
	c.evictions.Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuseEviction != nil {
		return true, nil, c.refuseEviction
	}
	return true, nil, c.Client.Tracker().Delete(fakecluster.PodResource, action.GetNamespace(), name)
}

// start runs a scheduler until stop or the end of the test.
func (c *cluster) start() {
	c.T.Helper()
	registry := frameworkruntime.Registry{
		gpushare.Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (_ fwk.Plugin, err error) {
			c.shares, err = gpushare.NewWithClient(ctx, args, h, c.Dynamic)
			return c.shares, err
		},
		Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			set, err := podgroup.New(ctx, podgroup.Options{
				Pods: h.SharedInformerFactory().Core().V1().Pods().Informer(), Queued: utilfeature.DefaultFeatureGate.Enabled(features.GenericWorkload),
				Served: podgroup.Served{Elastic: true}, Dynamic: c.Dynamic, Client: c.Client,
			})
			if err != nil {
				return nil, err
			}
			m := machine.New(func() machine.Shares { return &refusingShares{Plugin: c.shares, c: c} })
			c.plugin, err = New(ctx, args, h, Options{Shares: func() Shares { return c.shares }, Gangs: set, Machine: m, Targets: c.Dynamic, Now: c.Clock.Now})
			return c.plugin, err
		},
	}
	c.stop = fakecluster.Start(c.T, c.Client, c.profile(), registry, func(ctx context.Context) { c.plugin.Run(ctx) })
}

// refusingShares is GPUShare where holds may fail.
type refusingShares struct {
	*gpushare.Plugin
	c *cluster
}

// Hold keeps room for a pod.
func (s *refusingShares) Hold(h vgpu.Hold) error {
	if s.c.refuseHold != nil {
		if err := s.c.refuseHold(h); err != nil {
			return err
		}
	}
	return s.Plugin.Hold(h)
}

// profile is the stock profile with the plugins, set as deploy/ sets them.
func (c *cluster) profile() schedulerconfig.KubeSchedulerProfile {
	p := fakecluster.Profile(c.T)
	p.Plugins.MultiPoint.Enabled = append(p.Plugins.MultiPoint.Enabled,
		schedulerconfig.Plugin{Name: Name}, schedulerconfig.Plugin{Name: gpushare.Name, Weight: 10000})
	first := []schedulerconfig.Plugin{{Name: gpushare.Name}, {Name: Name}}
	p.Plugins.PostFilter.Enabled = append(first, p.Plugins.PostFilter.Enabled...)
	p.Plugins.Bind.Enabled = append([]schedulerconfig.Plugin{{Name: Name}, {Name: gpushare.Name}}, p.Plugins.Bind.Enabled...)
	p.PluginConfig = append(p.PluginConfig, schedulerconfig.PluginConfig{Name: gpushare.Name, Args: fakecluster.ShareArgs(time.Second)},
		schedulerconfig.PluginConfig{Name: Name, Args: &c.args})
	return p
}

// loseNode takes a node and its GPUs away, and the pods that were on it.
func (c *cluster) loseNode(name string) {
	c.T.Helper()
	c.RemoveNode(name)
	for _, p := range c.Pods() {
		if p.Spec.NodeName == name {
			c.Remove(p.Name)
		}
	}
}

// phase returns what a gang by label is in.
func (c *cluster) phase(name string) (phase reservation.Phase, need reservation.Need) {
	c.plugin.machine.Lock(func(l machine.Locked) {
		phase, need = l.State.Phase(podgroup.Ref{Source: podgroup.Label, Namespace: "default", Name: name})
	})
	return phase, need
}

// step has the machine take an event of a gang.
func (c *cluster) step(ref podgroup.Ref, build func(f reservation.Facts) reservation.Event) machine.Answer {
	return c.plugin.machine.Step(func(l machine.Locked) reservation.Event { return build(l.Facts(ref)) })
}

// planned writes down a plan on node n1 for members that the scheduler does not try, all of their gang, and has the first ones
// reserved. Each takes so much of the host.
func (c *cluster) planned(pods []*v1.Pod, reserved int, host vgpu.Room) podgroup.Ref {
	c.T.Helper()
	ref, _ := c.plugin.gangs.Of(pods[0])
	asked := c.step(ref, func(f reservation.Facts) reservation.Event {
		f.Problem = nil // their gates are the test's
		return reservation.Tried{Gang: f, UID: kube.UIDOf(pods[0]), Pod: kube.PathOf(pods[0])}
	})
	if asked.Plan == nil {
		c.T.Fatalf("no plan is asked for: %s", words(asked.Refuse))
	}
	found := reservation.PlanFound{UID: kube.UIDOf(pods[0]), Version: asked.Plan.Version}
	for _, p := range pods {
		found.Places = append(found.Places, reservation.Place{Assignment: vgpu.Assignment{UID: kube.UIDOf(p), Pod: kube.PathOf(p), Node: "n1"}, Host: host})
	}
	c.step(ref, func(f reservation.Facts) reservation.Event { found.Gang = f; return found })
	for _, p := range pods[:reserved] {
		c.step(ref, func(reservation.Facts) reservation.Event { return reservation.Reserved{Ref: ref, UID: kube.UIDOf(p)} })
	}
	return ref
}

// giveUp ends the room that evictions make for a gang.
func (c *cluster) giveUp(ref podgroup.Ref) {
	c.T.Helper()
	c.step(ref, func(reservation.Facts) reservation.Event { return reservation.RoomGivenUp{Ref: ref, Why: "for a test"} })
	c.plugin.machine.Flush(c.T.Context())
}

// withdraw takes a member back that is not bound.
func (c *cluster) withdraw(p *v1.Pod) {
	c.T.Helper()
	ref, _ := c.plugin.gangs.Of(p)
	c.step(ref, func(f reservation.Facts) reservation.Event { return reservation.Withdrawn{Gang: f, UID: kube.UIDOf(p)} })
	c.plugin.machine.Flush(c.T.Context())
}

// try has the scheduler try a gang, by its first member.
func (c *cluster) try(ref podgroup.Ref) {
	c.T.Helper()
	pg, _ := c.plugin.gangs.Gang(ref)
	if pg == nil {
		c.T.Fatal("there is no gang")
		return
	}
	c.plugin.handle.Activate(klog.FromContext(c.T.Context()), map[string]*v1.Pod{kube.PathOf(pg.Members[0]): pg.Members[0]})
}

// checkWhole fails where a gang has some of its members bound and fewer than must run.
func (c *cluster) checkWhole(prefix string, least int) {
	c.T.Helper()
	if count := len(c.Bound(prefix)); count != 0 && count < least {
		c.T.Errorf("%d members %s are bound of %d", count, prefix, least)
	}
}

// members returns pods NAME-0, NAME-1, … of a gang, each with so many slots.
func members(name string, count, least, slots int) []*v1.Pod {
	pods := make([]*v1.Pod, 0, count)
	for i := range count {
		pods = append(pods, pod(fmt.Sprintf("%s-%d", name, i), slots))
	}
	return fakecluster.Join(name, least, pods...)
}

func requireLevel(pods []*v1.Pod, level string) []*v1.Pod {
	for _, p := range pods {
		p.Annotations[v1alpha1.AnnotationRequiredTopology] = level
	}
	return pods
}

func pod(name string, slots int) *v1.Pod { return fakecluster.Pod(name, slots) }
