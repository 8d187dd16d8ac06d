package gangs

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	policy "k8s.io/client-go/kubernetes/typed/policy/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/tandem-gpu/tandem/internal/cluster/podgroup"
	"github.com/tandem-gpu/tandem/internal/controller/elasticity"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Spans of the controller's options.
const (
	passEvery   = 10 * time.Second
	notice      = 5 * time.Second
	admitWithin = 2 * time.Minute
)

// preferredTopology is what gangs prefer that name no level, in the scheduler and in the controller.
var preferredTopology = []string{v1.LabelHostname}

// control is a process of the controller.
type control struct {
	world *world
	api   *api
	// end ends the process, which happens once its connections are gone.
	end  context.CancelFunc
	gone atomic.Bool
	// left is how many requests to write the process makes before it dies, 0 for any number; answered says that the last of them is
	// carried out.
	left     atomic.Int64
	answered atomic.Bool
	// back is after how long another process starts once this one has died.
	back atomic.Int64
}

// startControl starts the real controller against the API server.
func (w *world) startControl() error {
	ctx, end := context.WithCancel(w.ctx)
	c := &control{world: w, api: w.api, end: end}
	core := controlClient{clientset{w.api.core, w.api}, c}
	factory := informers.NewSharedInformerFactory(core, 0)
	gangs, err := podgroup.New(ctx, podgroup.Options{
		Pods: factory.Core().V1().Pods().Informer(), Dynamic: w.api.dynamic, Client: core,
		Served: podgroup.Served{Native: w.kit.nativeVersion(), XK8s: true, Elastic: true},
	})
	if err != nil {
		end()
		return err
	}
	objects := objectClient{control: c}
	controller, err := elasticity.New(elasticity.Options{
		Kube: core, Informers: factory, Client: objects, Reader: objects, Gangs: gangs, Recorder: newRecorder(w.api),
		SchedulerName: v1.DefaultSchedulerName, Preferred: preferredTopology, Every: passEvery, Notice: notice, AdmitWithin: admitWithin,
	})
	if err != nil {
		end()
		return err
	}
	factory.StartWithContext(ctx)
	go func() { _ = controller.Start(ctx) }()
	w.mu.Lock()
	w.control = c
	w.mu.Unlock()
	return nil
}

// die ends the process at once: no request of it reaches the API server any more.
func (c *control) die() {
	if !c.gone.Swap(true) {
		c.api.say("the controller dies")
		c.world.mu.Lock()
		c.world.tally.deaths++
		c.world.mu.Unlock()
		c.end()
		time.AfterFunc(time.Duration(c.back.Load()), func() {
			if c.world.ctx.Err() == nil {
				c.world.must(c.world.startControl())
			}
		})
	}
}

// write makes a request that writes something of a gang or a pod, with the fault that is due.
func (c *control) write(ctx context.Context, name string, do func() error) error {
	if c.gone.Load() || ctx.Err() != nil {
		return context.Canceled
	}
	last := c.left.Add(-1) == 0
	if last && !c.answered.Load() {
		c.die()
		return context.Canceled
	}
	err := c.faulty(ctx, name, do)
	if last {
		c.die()
		return context.Canceled
	}
	return err
}

func (c *control) faulty(ctx context.Context, name string, do func() error) error {
	resource := v1alpha1.ElasticTargets.GroupResource()
	switch c.api.strike(controlFault, name) {
	case "refuse":
		return apierrors.NewForbidden(resource, name, nil)
	case "conflict":
		return apierrors.NewConflict(resource, name, nil)
	case "error":
		return apierrors.NewInternalError(context.DeadlineExceeded)
	case "lost":
		if err := do(); err != nil {
			return err
		}
		return apierrors.NewTimeoutError("the answer is lost", 1)
	case "late":
		c.api.later(lateBy, func() { _ = do() })
		return apierrors.NewTimeoutError("the answer is lost, and the request still to come", 1)
	case "hang":
		return apierrors.NewTooManyRequests("the API server is busy", 1)
	case "slow":
		select {
		case <-time.After(slowness):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return do()
}

// controlClient is the client of the controller for pods.
type controlClient struct {
	kubernetes.Interface
	control *control
}

// IsWatchListSemanticsUnSupported says what the fake says, which informers ask their client.
func (c controlClient) IsWatchListSemanticsUnSupported() bool { return true }

// CoreV1 returns the client for pods.
func (c controlClient) CoreV1() corev1.CoreV1Interface {
	return controlCore{c.Interface.CoreV1(), c.control}
}

// PolicyV1 returns the client for evictions.
func (c controlClient) PolicyV1() policy.PolicyV1Interface {
	return controlPolicy{c.Interface.PolicyV1(), c.control}
}

type controlCore struct {
	corev1.CoreV1Interface
	control *control
}

// Pods returns a client whose patches may fail.
func (c controlCore) Pods(namespace string) corev1.PodInterface {
	return controlPods{c.CoreV1Interface.Pods(namespace), c.control}
}

type controlPods struct {
	corev1.PodInterface
	control *control
}

// Patch is a notice to a member, or its end.
func (c controlPods) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, o metav1.PatchOptions, sub ...string) (pod *v1.Pod, err error) {
	err = c.control.write(ctx, name, func() error {
		pod, err = c.PodInterface.Patch(context.WithoutCancel(ctx), name, pt, data, o, sub...)
		return err
	})
	return pod, err
}

type controlPolicy struct {
	policy.PolicyV1Interface
	control *control
}

// Evictions returns a client whose evictions may fail.
func (c controlPolicy) Evictions(namespace string) policy.EvictionInterface {
	return controlEvictions{c.PolicyV1Interface.Evictions(namespace), c.control}
}

type controlEvictions struct {
	policy.EvictionInterface
	control *control
}

// Evict has a member leave.
func (c controlEvictions) Evict(ctx context.Context, e *policyv1.Eviction) error {
	if !c.control.gone.Load() {
		c.control.world.checkLeaver(e)
	}
	return c.control.write(ctx, e.Name, func() error { return c.EvictionInterface.Evict(context.WithoutCancel(ctx), e) })
}

// objectClient is the client of the controller for objects of its own.
type objectClient struct {
	client.Client
	control *control
}

// List reads all objects of a kind.
func (c objectClient) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if c.control.gone.Load() {
		return context.Canceled
	}
	resources := map[string]schema.GroupVersionResource{
		"*v1alpha1.GPUNodeList": v1alpha1.GPUNodes, "*v1alpha1.WorkloadProfileList": v1alpha1.WorkloadProfiles, "*v1alpha1.ElasticTargetList": v1alpha1.ElasticTargets,
	}
	all, err := c.control.api.dynamic.Resource(resources[fmt.Sprintf("%T", list)]).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(all.UnstructuredContent(), list)
}

// Create makes an object.
func (c objectClient) Create(ctx context.Context, o client.Object, _ ...client.CreateOption) error {
	return c.write(ctx, o, func(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return c.targets().Create(ctx, u, metav1.CreateOptions{})
	})
}

// Update changes an object.
func (c objectClient) Update(ctx context.Context, o client.Object, _ ...client.UpdateOption) error {
	return c.write(ctx, o, func(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return c.targets().Update(ctx, u, metav1.UpdateOptions{})
	})
}

// Delete removes an object.
func (c objectClient) Delete(ctx context.Context, o client.Object, _ ...client.DeleteOption) error {
	return c.control.write(ctx, o.GetName(), func() error {
		return c.targets().Delete(context.WithoutCancel(ctx), o.GetName(), metav1.DeleteOptions{})
	})
}

// Status returns the client for the status of objects.
func (c objectClient) Status() client.SubResourceWriter { return statusClient{objects: c} }

type statusClient struct {
	client.SubResourceWriter
	objects objectClient
}

// Patch changes the status of an object.
func (c statusClient) Patch(ctx context.Context, o client.Object, patch client.Patch, _ ...client.SubResourcePatchOption) error {
	data, err := patch.Data(o)
	if err != nil {
		return err
	}
	return c.objects.write(ctx, o, func(ctx context.Context, u *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		return c.objects.targets().Patch(ctx, u.GetName(), patch.Type(), data, metav1.PatchOptions{}, "status")
	})
}

func (c objectClient) targets() dynamic.ResourceInterface {
	return c.control.api.dynamic.Resource(v1alpha1.ElasticTargets).Namespace(namespace)
}

// write makes a request for an object, and takes the answer into it.
func (c objectClient) write(ctx context.Context, o client.Object,
	request func(context.Context, *unstructured.Unstructured) (*unstructured.Unstructured, error),
) error {
	u := unstructuredOf(o, v1alpha1.GroupVersion.WithKind("ElasticTarget"))
	u.SetNamespace(namespace)
	var answer *unstructured.Unstructured
	if err := c.control.write(ctx, o.GetName(), func() (err error) {
		answer, err = request(context.WithoutCancel(ctx), u)
		return err
	}); err != nil {
		return err
	}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(answer.Object, o)
}
