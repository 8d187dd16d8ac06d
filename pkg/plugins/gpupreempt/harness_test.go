package gpupreempt

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	configv1 "github.com/tandem-gpu/tandem/pkg/api/config/v1"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpugang"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakecluster"
)

// cluster is a cluster in memory with a scheduler that runs GPUShare, GPUGang and GPUPreempt in the profile "default-scheduler".
// Pods that are deleted stay for as long as the test wants: see Remove.
type cluster struct {
	*fakecluster.Cluster
	args     config.GPUPreemptArgs
	gangArgs config.GPUGangArgs

	mu sync.Mutex
	// full are the pods of which the API server refuses any patch, since their annotations are too long.
	full map[string]bool
	// refuse answers the deletion of a pod with an error, where it returns one.
	refuse func(pod string) error
	// evicted are the pods that were deleted, but not by the test, in that order.
	evicted []string

	plugin *Plugin
	shares *gpushare.Plugin
	stop   func()
}

// newCluster returns a cluster with nodes of as many devices as given, and a scheduler.
func newCluster(t testing.TB, devices ...int) *cluster {
	c := prepareCluster(t, devices...)
	c.start()
	return c
}

// standardPrices are those of arguments without any.
func standardPrices() config.EvictionPrices {
	var args configv1.GPUPreemptArgs
	configv1.SetDefaults_GPUPreemptArgs(&args)
	p := &args.Prices
	return config.EvictionPrices{
		BudgetViolation: *p.BudgetViolation, PriorityStep: *p.PriorityStep, BrokenGang: *p.BrokenGang, ServingPod: *p.ServingPod, Victim: *p.Victim,
	}
}

func prepareCluster(t testing.TB, devices ...int) *cluster {
	c := &cluster{Cluster: fakecluster.New(t, devices...), gangArgs: fakecluster.GangArgs(), args: config.GPUPreemptArgs{
		Mode: config.PreemptionEnabled, EvictionsPerMinute: 1000, PodDisruptionBudgets: config.BudgetsPreferred, MaxSteps: 4096,
		Protected: config.ProtectedPods{Namespaces: []string{metav1.NamespaceSystem}}, Prices: standardPrices(),
	}}
	c.More = func() string { return fmt.Sprintf("evicted are %v", c.victims()) }
	c.Client.PrependReactor("delete", "pods", c.delete)
	c.Client.PrependReactor("patch", "pods", c.patch)
	return c
}

// delete does what the API server does with the deletion of a pod that runs: the pod stays until its kubelet is done with it.
func (c *cluster) delete(action clienttesting.Action) (bool, runtime.Object, error) {
	d := action.(clienttesting.DeleteActionImpl)
	object, err := c.Client.Tracker().Get(fakecluster.PodResource, d.Namespace, d.Name)
	if err != nil {
		return true, nil, err
	}
	pod := object.(*v1.Pod).DeepCopy()
	if p := d.DeleteOptions.Preconditions; p != nil && p.UID != nil && *p.UID != pod.UID {
		return true, nil, apierrors.NewConflict(v1.Resource("pods"), d.Name, fmt.Errorf("the UID is %s", pod.UID))
	}
	if now := d.DeleteOptions.GracePeriodSeconds; now != nil && *now == 0 {
		return false, nil, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.refuse != nil {
		if err := c.refuse(pod.Name); err != nil {
			return true, nil, err
		}
	}
	if pod.DeletionTimestamp == nil { // the stock scheduler asks again where it has not seen yet that the pod leaves
		c.evicted = append(c.evicted, pod.Name)
	}
	if pod.Spec.NodeName == "" {
		return false, nil, nil
	}
	grace := kube.GracePeriod(pod)
	if now := d.DeleteOptions.GracePeriodSeconds; now != nil {
		grace = time.Duration(*now) * time.Second
	}
	at := metav1.NewTime(c.Clock.Now().Add(grace))
	if pod.DeletionTimestamp == nil {
		pod.DeletionTimestamp = &at
	}
	return true, nil, c.Client.Tracker().Update(fakecluster.PodResource, pod, pod.Namespace)
}

// patch refuses patches that name another UID than that of the pod, as the API server does.
func (c *cluster) patch(action clienttesting.Action) (bool, runtime.Object, error) {
	a := action.(clienttesting.PatchAction)
	var named struct{ Metadata struct{ UID types.UID } }
	object, err := c.Client.Tracker().Get(fakecluster.PodResource, a.GetNamespace(), a.GetName())
	if err != nil {
		return true, nil, err
	}
	if err := json.Unmarshal(a.GetPatch(), &named); err != nil {
		return true, nil, err
	}
	if c.full[a.GetName()] {
		errs := field.ErrorList{field.TooLong(field.NewPath("metadata", "annotations"), "", 256<<10)}
		return true, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Pod"}, a.GetName(), errs)
	}
	if uid := object.(*v1.Pod).UID; named.Metadata.UID != "" && named.Metadata.UID != uid {
		return true, nil, apierrors.NewConflict(v1.Resource("pods"), a.GetName(), fmt.Errorf("the UID is %s", uid))
	}
	return false, nil, nil
}

// refuseDeletes has deletions answered by fn from now on.
func (c *cluster) refuseDeletes(fn func(pod string) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuse = fn
}

// victims returns who was evicted so far, by name.
func (c *cluster) victims() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.evicted))
}

// awaitVictims waits until so many pods were evicted, and returns them.
func (c *cluster) awaitVictims(count int) []string {
	c.T.Helper()
	c.Await(fmt.Sprintf("%d pods are evicted", count), func() bool { return len(c.victims()) >= count })
	return c.victims()
}

// rooms returns the pods for which room is kept while their victims leave.
func (c *cluster) rooms() (rooms []reservation.PodRef) {
	c.plugin.machine.Lock(func(l machine.Locked) { rooms = l.State.PodRooms() })
	return rooms
}

// pauses returns what is known of the preemptions for a pod that came to nothing, and when it is tried again.
func (c *cluster) pauses(name string) (p pauses) {
	c.plugin.machine.Lock(func(l machine.Locked) { p.PodPauses = l.State.PodPauses(vgpu.UID("uid-" + name)) })
	return p
}

type pauses struct{ reservation.PodPauses }

// isRetried reports whether a pod is to be tried again without an event of the cluster, or for a budget.
func (p pauses) isRetried() bool { return !p.Retry.IsZero() || p.OnBudgets }

// take has the machine take an event.
func (c *cluster) take(e reservation.Event) machine.Answer {
	return c.plugin.machine.Step(func(machine.Locked) reservation.Event { return e })
}

// start runs a scheduler until stop or the end of the test.
func (c *cluster) start() {
	c.T.Helper()
	var gangs *gpugang.Plugin
	m := machine.New(func() machine.Shares { return c.shares })
	registry := frameworkruntime.Registry{
		gpushare.Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (_ fwk.Plugin, err error) {
			c.shares, err = gpushare.NewWithClient(ctx, args, h, c.Dynamic)
			return c.shares, err
		},
		gpugang.Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (fwk.Plugin, error) {
			set, err := podgroup.New(ctx, podgroup.Options{Pods: h.SharedInformerFactory().Core().V1().Pods().Informer()})
			if err != nil {
				return nil, err
			}
			gangs, err = gpugang.New(ctx, args, h, gpugang.Options{Shares: func() gpugang.Shares { return c.shares }, Gangs: set, Machine: m, Now: c.Clock.Now})
			return gangs, err
		},
		Name: func(ctx context.Context, args runtime.Object, h fwk.Handle) (_ fwk.Plugin, err error) {
			o := Options{Shares: func() Shares { return c.shares }, Machine: m, Now: c.Clock.Now}
			c.plugin, err = New(ctx, args, h, o)
			return c.plugin, err
		},
	}
	c.stop = fakecluster.Start(c.T, c.Client, c.profile(), registry,
		func(ctx context.Context) { gangs.Run(ctx) }, func(ctx context.Context) { c.plugin.Run(ctx) })
}
