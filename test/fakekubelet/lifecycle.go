package fakekubelet

import (
	"context"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/reference"
	"k8s.io/klog/v2"
)

const (
	// firstRetry and lastRetry bound the time between two attempts to start a container. The kubelet waits 10 seconds
	// and more; people who watch a demo do not.
	firstRetry = 500 * time.Millisecond
	lastRetry  = 10 * time.Second
)

// change is one event of the watch for the node's pods.
type change struct {
	pod  *v1.Pod
	gone bool
}

// followPods admits, starts and ends the pods of the node until ctx ends. Changes come one after the other, like
// admission in the kubelet.
func (k *Kubelet) followPods(ctx context.Context) error {
	defer k.pods.endAll()
	changes := make(chan change)
	informer, handled, err := k.watchPods(ctx, changes)
	if err != nil {
		return err
	}
	done := make(chan struct{})
	go func() { defer close(done); informer.RunWithContext(ctx) }()
	defer func() { <-done }()
	synced := handled.Done()
	for {
		select {
		case <-ctx.Done():
			return nil
		case c := <-changes:
			k.handle(ctx, c)
		case <-synced:
			synced = nil
			k.pods.setSynced()
			active, _ := k.pods.active()
			k.runtime.keep(active)
		}
	}
}

// watchPods returns an informer that sends the changes of the node's pods, and reports the end of its first list.
func (k *Kubelet) watchPods(ctx context.Context, changes chan<- change) (cache.SharedInformer, cache.DoneChecker, error) {
	send := func(o any, gone bool) {
		if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = last.Obj
		}
		select {
		case changes <- change{pod: o.(*v1.Pod), gone: gone}:
		case <-ctx.Done():
		}
	}
	source := cache.NewListWatchFromClient(k.config.Client.CoreV1().RESTClient(), "pods", metav1.NamespaceAll,
		fields.OneTermEqualSelector("spec.nodeName", k.config.Node))
	informer := cache.NewSharedInformer(source, &v1.Pod{}, 0)
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { send(o, false) },
		UpdateFunc: func(_, o any) { send(o, false) },
		DeleteFunc: func(o any) { send(o, true) },
	})
	if err != nil {
		return nil, nil, fmt.Errorf("watch pods: %w", err)
	}
	return informer, registration.HasSyncedChecker(), nil
}

func (k *Kubelet) handle(ctx context.Context, c change) {
	pod := c.pod.DeepCopy()
	if c.gone {
		k.end(pod)
		k.pods.remove(pod.UID)
		delete(k.ended, pod.UID)
		return
	}
	if k.ended[pod.UID] {
		return // the API server sends the end as an event
	}
	before := k.pods.set(pod)
	if before == nil || pod.DeletionTimestamp != nil || !equality.Semantic.DeepEqual(before.Status, pod.Status) {
		k.podsAPI.Updated(pod, before == nil && pod.DeletionTimestamp == nil)
	}
	switch {
	case pod.DeletionTimestamp != nil:
		k.end(pod)
		k.fail(ctx, pod)
		k.ended[pod.UID] = k.confirmDeletion(ctx, pod)
		k.pods.remove(pod.UID) // its devices are free from here on
	case before == nil && !ended(pod):
		if err := k.admit(ctx, pod); err != nil {
			k.pods.work(ctx, pod.UID, func(ctx context.Context) { k.reject(ctx, pod, err) })
			return
		}
		k.pods.work(ctx, pod.UID, func(ctx context.Context) { k.keepRunning(ctx, pod) })
	}
}

// end ends what runs of a pod. Readers of the Pods API get the event once.
func (k *Kubelet) end(pod *v1.Pod) {
	k.pods.end(pod.UID)
	k.runtime.remove(string(pod.UID))
	if k.pods.get(pod.UID) != nil {
		k.podsAPI.Removed(pod)
	}
}

// fail gives a pod that is deleted its last phase, as a kubelet does: Kubernetes' controller of Jobs keeps it until then.
func (k *Kubelet) fail(ctx context.Context, pod *v1.Pod) {
	if ended(pod) || len(pod.Finalizers) == 0 {
		return // nobody could read the phase
	}
	k.keepWriting(ctx, pod, func(status *v1.PodStatus) { status.Phase = v1.PodFailed })
}

// confirmDeletion informs the API server that no container of the pod runs any more, and reports whether that succeeded before ctx ended.
func (k *Kubelet) confirmDeletion(ctx context.Context, pod *v1.Pod) bool {
	options := metav1.NewDeleteOptions(0)
	options.Preconditions = metav1.NewUIDPreconditions(string(pod.UID))
	return again(ctx, func() error {
		err := k.config.Client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, *options)
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		klog.FromContext(ctx).Error(err, "Delete pod", "pod", klog.KObj(pod))
		return err
	})
}

// admit gives all containers of a pod their devices. Containers that run already, from before a restart of the kubelet,
// have them.
func (k *Kubelet) admit(ctx context.Context, pod *v1.Pod) error {
	for _, c := range containersOf(pod) {
		if k.runtime.has(string(pod.UID), c.Name) {
			continue
		}
		if err := k.devices.allocate(ctx, pod, c); err != nil {
			return fmt.Errorf("Allocate failed due to %w, which is unexpected", err) //nolint:staticcheck // the kubelet's words
		}
	}
	return nil
}

// reject fails a pod for good, as the kubelet does when it cannot admit it.
func (k *Kubelet) reject(ctx context.Context, pod *v1.Pod, err error) {
	const reason = "UnexpectedAdmissionError"
	k.recorder.Event(pod, v1.EventTypeWarning, reason, err.Error())
	k.keepWriting(ctx, pod, func(status *v1.PodStatus) {
		status.Phase, status.Reason, status.Message = v1.PodFailed, reason, "Pod was rejected: "+err.Error()
	})
}

// keepRunning starts the containers of a pod, again and again until all run and the API server knows it, or ctx ends.
func (k *Kubelet) keepRunning(ctx context.Context, pod *v1.Pod) {
	for wait := firstRetry; ; wait = min(2*wait, lastRetry) {
		failures := k.startContainers(ctx, pod)
		if ctx.Err() != nil {
			return
		}
		err := k.writeStatus(ctx, pod, func(status *v1.PodStatus) { k.fill(status, pod, failures) })
		if len(failures) == 0 && err == nil || !pause(ctx, wait) {
			return
		}
	}
}

// failure is why a container does not run.
type failure struct{ reason, message string }

// startContainers starts what does not run yet and returns why containers did not start, by name. A container that
// fails keeps those of the pod back only if it is an init container.
func (k *Kubelet) startContainers(ctx context.Context, pod *v1.Pod) map[string]failure {
	failures := map[string]failure{}
	for _, c := range containersOf(pod) {
		if k.runtime.has(string(pod.UID), c.Name) {
			continue
		}
		f := k.startContainer(ctx, pod, c)
		if f == nil {
			continue
		}
		failures[c.Name] = *f
		k.recordContainer(pod, c, v1.EventTypeWarning, "Failed", "Error: "+f.message)
		if c.kind != app {
			return failures
		}
	}
	return failures
}

func (k *Kubelet) startContainer(ctx context.Context, pod *v1.Pod, c container) *failure {
	answers, slots, err := k.devices.preStart(ctx, string(pod.UID), c.Name)
	if err != nil {
		return &failure{"CreateContainerConfigError", err.Error()}
	}
	if err := k.runtime.create(pod, c, slots, answers); err != nil {
		return &failure{"CreateContainerError", err.Error()}
	}
	k.recordContainer(pod, c, v1.EventTypeNormal, "Started", "Container started")
	return nil
}

func (k *Kubelet) recordContainer(pod *v1.Pod, c container, kind, reason, message string) {
	ref, err := reference.GetPartialReference(scheme.Scheme, pod, fieldPath(c))
	if err != nil {
		panic(fmt.Sprintf("refer to pod %s: %v", pod.Name, err)) // pods are in the scheme
	}
	k.recorder.Event(ref, kind, reason, message)
}

func fieldPath(c container) string {
	if c.kind == app {
		return "spec.containers{" + c.Name + "}"
	}
	return "spec.initContainers{" + c.Name + "}"
}
