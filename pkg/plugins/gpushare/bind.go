package gpushare

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/internal/cluster/verdict"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Bind writes node and assignment in one Binding. Bind skips pods that request no vGPU.
//
// An error of the API server does not say whether it bound the pod: Bind reads the pod after each. The same node and assignment
// is success; a pod that has others, ends or is gone is failure; Bind tries a pod without a node again until bindTimeout. The
// plugin keeps the devices where an attempt may still take effect after that, or Bind could not read the pod.
//
// The time starts when Bind may send the first attempt. A wait for the limit of this scheduler's requests is no failure, and
// says nothing of the API server.
func (p *Plugin) Bind(ctx context.Context, _ fwk.CycleState, pod *v1.Pod, nodeName string) *fwk.Status {
	if !kube.WantsVGPU(pod) {
		return verdict.New(fwk.Skip)
	}
	a, ok := p.state.reservation(kube.UIDOf(pod), nodeName)
	if !ok {
		return verdict.Failed(fmt.Errorf("bind pod %s to node %s: it has no reservation there", klog.KObj(pod), nodeName))
	}
	raw, err := kube.EncodeAssignment(a)
	if err == nil {
		err = kube.CheckAnnotations(p.latest(pod), len(raw)) // they may have grown since PreFilter
	}
	if err != nil {
		return verdict.Failed(fmt.Errorf("bind pod %s to node %s: %w", klog.KObj(pod), nodeName, err))
	}
	b := binder{plugin: p, raw: raw, binding: &v1.Binding{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID,
			Annotations: map[string]string{v1alpha1.AnnotationAssignment: raw},
		},
		Target: v1.ObjectReference{Kind: "Node", Name: nodeName},
	}}
	err = b.run(ctx)
	switch {
	case errors.Is(err, errUnknown):
		p.state.suspend(a, p.now())
		p.lookAgain(pod)
	case err == nil:
		p.endIfShown(pod)
	}
	p.metrics.bound(err)
	if err != nil {
		return verdict.Failed(fmt.Errorf("bind pod %s to node %s: %w", klog.KObj(pod), nodeName, err))
	}
	return nil
}

// latest returns a pod as the informer has it, or the caller's where the informer has no such pod.
func (p *Plugin) latest(pod *v1.Pod) *v1.Pod {
	if seen, err := p.state.pods.Pods(pod.Namespace).Get(pod.Name); err == nil && seen.UID == pod.UID {
		return seen
	}
	return pod
}

// endIfShown ends the reservation of a bound pod if the informer shows the pod as bound already. In that case an earlier bind
// of unknown outcome took effect during this scheduling cycle, and the informer reported it before Reserve made the
// reservation. The informer does not report it again, so nothing else would end the reservation.
func (p *Plugin) endIfShown(pod *v1.Pod) {
	if seen := p.latest(pod); seen.Spec.NodeName != "" {
		p.state.noteBound(kube.UIDOf(pod), seen.Spec.NodeName)
	}
}

// lookAgain closes the gap between the last look at the pod and suspend: the plugin would lose what the informer showed in
// between.
func (p *Plugin) lookAgain(pod *v1.Pod) {
	seen, err := p.state.pods.Pods(pod.Namespace).Get(pod.Name)
	switch {
	case err != nil || seen.UID != pod.UID:
		p.state.gone(kube.UIDOf(pod))
	case seen.Spec.NodeName != "":
		p.state.noteBound(kube.UIDOf(pod), seen.Spec.NodeName)
	}
}

// errUnknown says that a bind may or may not have happened.
var errUnknown = errors.New("the API server did not tell whether the pod is bound")

// Waits between the attempts of one bind. The first is short, since most errors are of a moment; the longest is a part
// of any useful bindTimeout.
const (
	firstWait   = 50 * time.Millisecond
	longestWait = 2 * time.Second
	// attemptsPerTimeout bounds a single request: a lost answer leaves time for others.
	attemptsPerTimeout = 4
)

// binder makes one Binding.
type binder struct {
	plugin  *Plugin
	binding *v1.Binding
	raw     string
	// ambiguous: an attempt may still take effect, although the pod has no node now.
	ambiguous bool
	// unread: Bind could not read the pod after the last attempt. A refusal alone proves nothing: a client or a proxy on the
	// way may send a request twice. The answer to the second is a conflict, because the first one bound the pod.
	unread bool
}

// run binds, and returns nil only when the pod has this node and assignment.
func (b *binder) run(ctx context.Context) error {
	if err := b.plugin.requests.Turn(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, b.plugin.bindTimeout)
	defer cancel()
	waits := wait.Backoff{Duration: firstWait, Factor: 2, Jitter: 0.2, Steps: 1 << 20, Cap: longestWait}
	for {
		err := b.post(ctx)
		if err == nil {
			return nil
		}
		b.ambiguous = b.ambiguous || !hadNoEffect(err)
		b.plugin.metrics.retries.Inc()
		klog.FromContext(ctx).V(2).Info("Bind failed, reading the pod", "pod", klog.KObj(b.binding), "node", b.binding.Target.Name, "err", err)
		done, result := b.look(ctx, err)
		if done {
			return result
		}
		select {
		case <-ctx.Done():
			return b.outOfTime(err)
		case <-time.After(max(firstWait, waits.Step())):
		}
		if b.plugin.requests.Turn(ctx) != nil {
			return b.outOfTime(err)
		}
	}
}

func (b *binder) outOfTime(err error) error {
	if b.ambiguous || b.unread {
		return fmt.Errorf("%w: %w", errUnknown, err)
	}
	return err
}

// post sends the Binding once. With the gate SchedulerAsyncAPICalls the framework sends it, through its own client: the plugin
// cannot distinguish an attempt that waits there for its limit from a sent one.
func (b *binder) post(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, b.plugin.bindTimeout/attemptsPerTimeout)
	defer cancel()
	cacher := b.plugin.handle.APICacher()
	if cacher == nil {
		return b.plugin.requests.CoreV1().Pods(b.binding.Namespace).Bind(ctx, b.binding, metav1.CreateOptions{})
	}
	finish, err := cacher.BindPod(b.binding)
	if err != nil {
		return err
	}
	return cacher.WaitOnFinish(ctx, finish)
}

// look reads the pod after a failed attempt, and reports whether that settles the bind, with the result.
func (b *binder) look(ctx context.Context, failed error) (bool, error) {
	b.unread = true
	if b.plugin.requests.Turn(ctx) != nil {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, b.plugin.bindTimeout/attemptsPerTimeout)
	defer cancel()
	pod, err := b.plugin.requests.CoreV1().Pods(b.binding.Namespace).Get(ctx, b.binding.Name, metav1.GetOptions{})
	b.unread = err != nil
	switch {
	case apierrors.IsNotFound(err):
		return true, fmt.Errorf("the pod is gone: %w", failed)
	case err != nil:
		return false, nil
	case pod.UID != b.binding.UID:
		return true, fmt.Errorf("another pod has its name now: %w", failed)
	case pod.Spec.NodeName == b.binding.Target.Name && pod.Annotations[v1alpha1.AnnotationAssignment] == b.raw:
		b.plugin.metrics.confirmed.Inc()
		return true, nil
	case pod.Spec.NodeName != "":
		return true, fmt.Errorf("the pod is bound to node %s with another assignment: %w", pod.Spec.NodeName, failed)
	case pod.DeletionTimestamp != nil:
		return true, fmt.Errorf("the pod is being deleted: %w", failed)
	case !b.ambiguous && isFinal(failed):
		return true, failed
	}
	return false, nil
}

// hadNoEffect reports whether the API server refused the request: it cannot take effect later.
func hadNoEffect(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
}

// isFinal reports whether the API server would refuse the same request again.
func isFinal(err error) bool {
	return apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsForbidden(err) ||
		apierrors.IsUnauthorized(err) || apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}
