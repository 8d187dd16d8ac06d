package deviceplugin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// enforcement is what keeps shares of the device in their bounds.
func enforcement(d *device) v1alpha1.Enforcement {
	if d.shared() {
		return v1alpha1.EnforcementCooperative
	}
	return v1alpha1.EnforcementNone
}

// gpuNodeStatus is the inventory as the API shows it, without conditions.
func gpuNodeStatus(devices []device, driver string) v1alpha1.GPUNodeStatus {
	s := v1alpha1.GPUNodeStatus{DriverVersion: driver, DeviceCount: int32(len(devices))}
	models := make([]string, 0, len(devices))
	for i := range devices {
		d := &devices[i]
		s.Devices = append(s.Devices, gpuDevice(d))
		models = append(models, modelName(d.Model))
		if d.Sick == nil {
			s.HealthyCount++
			s.SlotCount += int32(d.Slots)
		}
	}
	slices.Sort(models)
	s.Models = strings.Join(slices.Compact(models), ",")
	return s
}

func gpuDevice(d *device) v1alpha1.GPUDevice {
	g := v1alpha1.GPUDevice{
		ID:                d.ID,
		Index:             int32(d.Index),
		Model:             modelName(d.Model),
		Memory:            *resource.NewQuantity(d.Memory, resource.BinarySI),
		Slots:             int32(d.Slots),
		Contexts:          int32(d.Contexts),
		ContextsUsed:      int32(d.ContextsUsed),
		Usage:             d.Usage,
		Tenants:           d.Tenants,
		ComputeCapability: fmt.Sprintf("%d.%d", d.ComputeMajor, d.ComputeMinor),
		PCIBusID:          d.PCIBusID,
		Links:             d.Links,
		Health:            v1alpha1.Healthy,
		Enforcement:       enforcement(d),
	}
	if d.NUMANode >= 0 {
		numa := int32(d.NUMANode)
		g.NUMANode = &numa
	}
	if d.Sick != nil {
		g.Health, g.Reason, g.Message = v1alpha1.Unhealthy, d.Sick.Reason, limit(d.Sick.Message, 1024)
	}
	return g
}

func limit(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "")
}

// publisher writes the GPUNode of this node: when something changed, and now and then in case somebody else did.
type publisher struct {
	client dynamic.ResourceInterface
	// self asks who the agent is; nil asks nobody.
	self dynamic.ResourceInterface
	node string
	// status returns what to publish now, and what tells that it may have changed.
	status func() (v1alpha1.GPUNodeStatus, signals)
	done   func(error)
	beat   func()
}

// signals are channels that are closed when something changed; nil ones never are.
type signals [4]<-chan struct{}

const (
	// resync is how often the written status is compared with what should be there.
	resync = 5 * time.Minute
	// writeTimeout bounds one attempt; retries wait from minWriteRetry to maxWriteRetry.
	writeTimeout  = 10 * time.Second
	minWriteRetry = 500 * time.Millisecond
	maxWriteRetry = time.Minute
)

// run publishes until ctx ends. The kubelet is served whether or not the API server answers.
func (p *publisher) run(ctx context.Context) {
	wait := minWriteRetry
	for {
		p.beat()
		status, changed := p.status()
		err := p.publish(ctx, status)
		p.done(err)
		next := resync
		if err != nil {
			p.report(ctx, err, wait)
			next = wait
			wait = min(2*wait, maxWriteRetry)
			changed = signals{} // a failing API server is not asked faster because something changed
		} else {
			wait = minWriteRetry
		}
		if !p.pause(ctx, next, changed) {
			return
		}
	}
}

// pause waits, beating, until the time has passed, something changed or ctx has ended; the last gives false.
func (p *publisher) pause(ctx context.Context, d time.Duration, changed signals) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	beat := time.NewTicker(beatEvery)
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
			p.beat()
		}
	}
}

func (p *publisher) report(ctx context.Context, err error, wait time.Duration) {
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

// publish makes the GPUNode's status what it should be, with as few calls as that takes.
func (p *publisher) publish(ctx context.Context, want v1alpha1.GPUNodeStatus) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	have, err := p.client.Get(ctx, p.node, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		have, err = p.create(ctx)
	}
	if err != nil {
		return fmt.Errorf("get GPUNode %s: %w", p.node, err)
	}
	var current v1alpha1.GPUNode
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(have.Object, &current); err != nil {
		return fmt.Errorf("read GPUNode %s: %w", p.node, err)
	}
	next := merge(current.Status, want)
	if equality.Semantic.DeepEqual(current.Status, next) {
		return nil
	}
	current.Status = next
	current.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("GPUNode"))
	raw, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&current)
	if err != nil {
		return fmt.Errorf("write GPUNode %s: %w", p.node, err)
	}
	if _, err := p.client.UpdateStatus(ctx, &unstructured.Unstructured{Object: raw}, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write status of GPUNode %s: %w", p.node, err)
	}
	return nil
}

func (p *publisher) create(ctx context.Context) (*unstructured.Unstructured, error) {
	g := &unstructured.Unstructured{}
	g.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("GPUNode"))
	g.SetName(p.node)
	owners, err := p.owners(ctx)
	if err != nil {
		return nil, err
	}
	g.SetOwnerReferences(owners)
	created, err := p.client.Create(ctx, g, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return p.client.Get(ctx, p.node, metav1.GetOptions{})
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

// readyCondition is the Ready condition for a reason.
func readyCondition(reason, message string) metav1.Condition {
	return claim(v1alpha1.ConditionReady, reason == v1alpha1.ReadyServing, reason, message)
}

// healthyCondition says which devices take no work.
func healthyCondition(devices []device) metav1.Condition {
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

// monitoredCondition says which devices could fail their programs unnoticed.
func monitoredCondition(devices []device) metav1.Condition {
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
		c.Message = limit("these take work and are not watched: "+strings.Join(list, ", "), 4096)
	}
	if reason == v1alpha1.MonitoredNotYet {
		c.Status = metav1.ConditionUnknown
	}
	return c
}

// podsCondition says who tells the agent of the node's pods.
func podsCondition(view podView) metav1.Condition {
	switch {
	case view.problem != "":
		return claim(v1alpha1.ConditionPodsKnown, false, v1alpha1.PodsUnknown, limit(view.problem, 1024))
	case view.server:
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
