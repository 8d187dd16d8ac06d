package gpunode

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/loop"
	"github.com/tandem-gpu/tandem/internal/agent/podsource"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Publisher writes the GPUNode of this node: after a change, and now and then in case another client has changed it.
type Publisher struct {
	Client dynamic.ResourceInterface
	// Self is the resource of SelfReviews; with nil the GPUNode gets no owner.
	Self dynamic.ResourceInterface
	Node string
	// Status returns what to publish now, and the signals that it may have changed.
	Status func() (v1alpha1.GPUNodeStatus, Signals)
	Done   func(error)
	Beat   func()

	// said is the condition Ready that the agent wanted when it last wrote.
	said metav1.Condition
}

// Signals are channels that close when something changed; nil ones never do.
type Signals [4]<-chan struct{}

const (
	// Resync is how often the publisher compares the GPUNode in the API server with the status.
	Resync = 5 * time.Minute
	// writeTimeout bounds one attempt; retries wait from minWriteRetry to maxWriteRetry.
	writeTimeout  = 10 * time.Second
	minWriteRetry = 500 * time.Millisecond
	maxWriteRetry = time.Minute
)

// Run publishes until ctx ends. The kubelet does not depend on the API server's answers.
func (p *Publisher) Run(ctx context.Context) {
	wait := minWriteRetry
	for {
		p.Beat()
		status, changed := p.Status()
		err := p.Publish(ctx, status)
		p.Done(err)
		next := Resync
		if err != nil {
			p.report(ctx, err, wait)
			next = wait
			wait = min(2*wait, maxWriteRetry)
			changed = Signals{} // a change does not make the publisher retry a failing API server sooner
		} else {
			wait = minWriteRetry
		}
		if !p.pause(ctx, next, changed) {
			return
		}
	}
}

// pause waits, beating, until the time has passed, something changed or ctx has ended; the last gives false.
func (p *Publisher) pause(ctx context.Context, d time.Duration, changed Signals) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	beat := time.NewTicker(loop.BeatEvery)
	defer beat.Stop()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
			return true
		case <-changed[0]:
			return true
		case <-changed[1]:
			return true
		case <-changed[2]:
			return true
		case <-changed[3]:
			return true
		case <-beat.C:
			p.Beat()
		}
	}
}

func (p *Publisher) report(ctx context.Context, err error, wait time.Duration) {
	log := klog.FromContext(ctx)
	if ctx.Err() != nil {
		return
	}
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		log.Error(err, "Cannot publish the GPUNode: is the CustomResourceDefinition gpunodes.tandem-gpu.io installed? The kubelet is served meanwhile", "retryIn", wait)
		return
	}
	log.Error(err, "Cannot publish the GPUNode; the kubelet is served meanwhile", "retryIn", wait)
}

// Publish makes the GPUNode's status what it should be, with as few calls as that takes.
func (p *Publisher) Publish(ctx context.Context, want v1alpha1.GPUNodeStatus) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	have, err := p.Client.Get(ctx, p.Node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		have, err = p.create(ctx)
	}
	if err != nil {
		return fmt.Errorf("get GPUNode %s: %w", p.Node, err)
	}
	return p.write(ctx, have, want)
}

// PublishLast is Publish for an agent that ends. PublishLast creates no GPUNode: an administrator who takes Tandem off
// a node deletes it while the agent may still be ending.
func (p *Publisher) PublishLast(ctx context.Context, want v1alpha1.GPUNodeStatus) error {
	have, err := p.Client.Get(ctx, p.Node, metav1.GetOptions{})
	if err == nil {
		err = p.write(ctx, have, want)
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("mark GPUNode %s: %w", p.Node, err)
	}
	return nil
}

// write writes the wanted status, unless the GPUNode has it already.
func (p *Publisher) write(ctx context.Context, have *unstructured.Unstructured, want v1alpha1.GPUNodeStatus) error {
	var current v1alpha1.GPUNode
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(have.Object, &current); err != nil {
		return fmt.Errorf("read GPUNode %s: %w", p.Node, err)
	}
	own := meta.FindStatusCondition(want.Conditions, v1alpha1.ConditionReady)
	next := merge(current.Status, p.judged(current.Status, want, own))
	if equality.Semantic.DeepEqual(current.Status, next) {
		p.note(own)
		return nil
	}
	current.Status = next
	current.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("GPUNode"))
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&current)
	if err != nil {
		return fmt.Errorf("write GPUNode %s: %w", p.Node, err)
	}
	if _, err := p.Client.UpdateStatus(ctx, &unstructured.Unstructured{Object: raw}, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write status of GPUNode %s: %w", p.Node, err)
	}
	p.note(own)
	return nil
}

func (p *Publisher) note(own *metav1.Condition) {
	if own != nil {
		p.said = *own
	}
}

// judged returns the wanted status without the agent's own condition Ready, where the controller has marked the agent as gone since and the
// agent has nothing new to say: the controller takes the mark back when the kubelet reports. Otherwise the two would write in turns
// (docs/decisions/0052-agents-that-are-gone.md).
func (p *Publisher) judged(have, want v1alpha1.GPUNodeStatus, own *metav1.Condition) v1alpha1.GPUNodeStatus {
	mark := meta.FindStatusCondition(have.Conditions, v1alpha1.ConditionReady)
	if mark == nil || mark.Reason != v1alpha1.ReadyAgentLost || own == nil || own.Status != p.said.Status || own.Reason != p.said.Reason {
		return want
	}
	want.Conditions = slices.DeleteFunc(slices.Clone(want.Conditions), func(c metav1.Condition) bool { return c.Type == v1alpha1.ConditionReady })
	return want
}

func (p *Publisher) create(ctx context.Context) (*unstructured.Unstructured, error) {
	g := &unstructured.Unstructured{}
	g.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("GPUNode"))
	g.SetName(p.Node)
	owners, err := p.owners(ctx)
	if err != nil {
		return nil, err
	}
	g.SetOwnerReferences(owners)
	created, err := p.Client.Create(ctx, g, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return p.Client.Get(ctx, p.Node, metav1.GetOptions{})
	}
	return created, err
}

// merge puts the wanted conditions among those that are there: the time of the last transition stays where the status
// of a condition does, and conditions of others stay.
func merge(have, want v1alpha1.GPUNodeStatus) v1alpha1.GPUNodeStatus {
	conditions := slices.Clone(have.Conditions)
	for _, c := range want.Conditions {
		meta.SetStatusCondition(&conditions, c)
	}
	want.Conditions = conditions
	return want
}

// ReadyCondition is the Ready condition for a reason.
func ReadyCondition(reason, message string) metav1.Condition {
	return claim(v1alpha1.ConditionReady, reason == v1alpha1.ReadyServing, reason, message)
}

// HealthyCondition says which devices take no work.
func HealthyCondition(devices []inventory.Device) metav1.Condition {
	reason := v1alpha1.DevicesAllHealthy
	list := make([]string, 0, len(devices))
	for i := range devices {
		d := &devices[i]
		if d.Sick == nil {
			continue
		}
		list = append(list, fmt.Sprintf("g%d (%s): %s", d.Index, d.ID, d.Sick.Reason))
		if !d.Recovering {
			reason = v1alpha1.DevicesSick
		} else if reason == v1alpha1.DevicesAllHealthy {
			reason = v1alpha1.DevicesRecovering
		}
	}
	switch {
	case len(devices) == 0:
		return claim(v1alpha1.ConditionDevicesHealthy, true, reason, "the node has no devices")
	case len(list) == 0:
		return claim(v1alpha1.ConditionDevicesHealthy, true, reason, "all devices take work")
	}
	return claim(v1alpha1.ConditionDevicesHealthy, false, reason, "these take no work: "+strings.Join(list, ", "))
}

// MonitoredCondition says which devices could fail their programs unnoticed.
func MonitoredCondition(devices []inventory.Device) metav1.Condition {
	reason := v1alpha1.MonitoredAll
	var list []string
	for i := range devices {
		if why := devices[i].Unmonitored; why != nil {
			reason = why.Reason
			list = append(list, fmt.Sprintf("g%d (%s): %s", devices[i].Index, devices[i].ID, why.Message))
		}
	}
	c := claim(v1alpha1.ConditionMonitored, len(list) == 0, reason, "programs would be noticed to fail on every device")
	if len(list) > 0 {
		c.Message = inventory.Shorten("these take work and are not watched: "+strings.Join(list, ", "), 4096)
	}
	if reason == v1alpha1.MonitoredNotYet {
		c.Status = metav1.ConditionUnknown
	}
	return c
}

// PodsCondition names the source of the node's pods.
func PodsCondition(view podsource.View) metav1.Condition {
	switch {
	case view.Problem != "":
		return claim(v1alpha1.ConditionPodsKnown, false, v1alpha1.PodsUnknown, inventory.Shorten(view.Problem, 1024))
	case view.Server:
		return claim(v1alpha1.ConditionPodsKnown, true, v1alpha1.PodsFromServer, "the agent reads the pods of this node from the API server, since the kubelet does not serve the Pods API")
	}
	return claim(v1alpha1.ConditionPodsKnown, true, v1alpha1.PodsFromKubelet, "the agent reads the pods of this node from the kubelet")
}

func claim(kind string, holds bool, reason, message string) metav1.Condition {
	status := metav1.ConditionFalse
	if holds {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}
