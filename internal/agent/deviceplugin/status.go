package deviceplugin

import (
	"context"
	"errors"
	"time"

	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/agent/gpunode"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

func (a *Agent) publisher() *gpunode.Publisher {
	return &gpunode.Publisher{
		Client: a.options.GPUNodes, Self: a.options.Self, Node: a.options.NodeName, Status: a.status,
		Done: a.metrics.Published, Beat: a.pulse.Of("gpunode"),
	}
}

// status returns the present content of the GPUNode, and the signals that it may have changed.
func (a *Agent) status() (v1alpha1.GPUNodeStatus, gpunode.Signals) {
	noted := a.inventory.Notes()
	devices, devicesChanged := a.inventory.Snapshot()
	watched, watchChanged := a.plugin.watched()
	s := inventory.Status(devices, a.driver)
	view, viewChanged := a.podWatch.Viewed()
	condition := gpunode.ReadyCondition(v1alpha1.ReadyServing, "the kubelet watches the slots")
	switch {
	case !watched:
		condition = gpunode.ReadyCondition(v1alpha1.ReadyNotRegistered, "the kubelet does not watch the slots: it is restarting, or refuses the agent")
	case view.Problem != "":
		condition = gpunode.ReadyCondition(v1alpha1.ReadyPodsUnknown, inventory.Shorten("no container with vGPUs can start: "+view.Problem, 1024))
	}
	s.Conditions = append(s.Conditions, condition, gpunode.HealthyCondition(devices), gpunode.MonitoredCondition(devices), gpunode.PodsCondition(view))
	return s, gpunode.Signals{devicesChanged, watchChanged, noted, viewChanged}
}

// notReadyTimeout bounds what a stopping agent waits for the API server. The time is part of the pod's grace period.
const notReadyTimeout = 5 * time.Second

// markNotReady marks the node not ready before its slots vanish, so that the scheduler places no pod there: the kubelet
// rejects pods for good while it has no slots.
func (a *Agent) markNotReady(ctx context.Context) {
	if a.options.GPUNodes == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), notReadyTimeout)
	defer cancel()
	s := v1alpha1.GPUNodeStatus{}
	if a.inventory != nil {
		devices, _ := a.inventory.Snapshot()
		s = inventory.Status(devices, a.driver)
	}
	s.Conditions = append(s.Conditions, gpunode.ReadyCondition(v1alpha1.ReadyStopping, "the agent was told to stop"))
	p := a.publisher()
	err := retry.RetryOnConflict(retry.DefaultRetry, func() error { return p.PublishLast(ctx, s) })
	if err != nil {
		klog.FromContext(ctx).Error(err, "Cannot mark the GPUNode not ready")
	}
}

// ready is nil when the kubelet watches the slots.
func (a *Agent) ready() error {
	a.mu.Lock()
	idle := a.idle
	a.mu.Unlock()
	if idle != nil {
		return idle
	}
	if watched, _ := a.plugin.watched(); !watched {
		return errors.New("not registered: the kubelet does not watch the slots")
	}
	if view, _ := a.podWatch.Viewed(); view.Problem != "" {
		return errors.New(view.Problem)
	}
	return nil
}

// idles records why the agent serves no device, nil while it serves the kubelet.
func (a *Agent) idles(why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.idle = why
}
