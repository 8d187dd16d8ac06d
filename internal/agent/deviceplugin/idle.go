package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/agent/gpunode"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/loop"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

const (
	// minReopen and maxReopen bound the pause between two attempts to open the driver. The agent finds a new driver
	// within a minute; a node without NVIDIA costs nothing.
	minReopen = 5 * time.Second
	maxReopen = time.Minute
)

// errStarting: the driver has not answered yet.
var errStarting = errors.New("the agent starts")

// opened is what the driver said at first.
type opened struct {
	driver  Driver
	version string
	gpus    []inventory.GPU
	err     error
}

// awaitDriver returns the devices once the driver answers, false if ctx ended before. Until then the agent idles: the
// GPUNode has no devices and says why, and the kubelet gets no slots. awaitDriver calls idling when that begins.
func (a *Agent) awaitDriver(ctx context.Context, idling func()) ([]inventory.GPU, bool) {
	var attempt loop.Question[opened]
	var told idleReport
	for wait := a.timing.reopen; ctx.Err() == nil; wait = min(2*wait, maxReopen) {
		o, ok := attempt.Ask(ctx, a.timing.driver, a.open)
		if !ok {
			o.err = fmt.Errorf("the driver has not answered for %v", a.timing.driver)
		}
		if ctx.Err() != nil {
			break
		}
		if o.err == nil {
			a.options.Driver, a.driver = o.driver, o.version
			return o.gpus, true
		}
		a.idles(fmt.Errorf("%s: %w", v1alpha1.ReadyNoDriver, o.err))
		a.reportIdle(ctx, &told, o.err)
		idling()
		idling = func() {}
		loop.Pause(ctx, wait)
	}
	return nil, false
}

// open opens the driver and reads what it has.
func (a *Agent) open() opened {
	o := opened{driver: a.options.Driver}
	if o.driver == nil {
		if o.driver, o.err = a.options.OpenDriver(); o.err != nil {
			return o
		}
	}
	if o.gpus, o.err = o.driver.GPUs(); o.err != nil {
		o.err = fmt.Errorf("list GPUs: %w", o.err)
		return o
	}
	if o.version, o.err = o.driver.Version(); o.err != nil {
		o.err = fmt.Errorf("read driver version: %w", o.err)
	}
	return o
}

// idleReport is the last message in the GPUNode, and its time.
type idleReport struct {
	what string
	at   time.Time
}

// reportIdle says in log and GPUNode why the agent idles, when that is news or some time ago: nodes without NVIDIA must
// not load the API server.
func (a *Agent) reportIdle(ctx context.Context, told *idleReport, why error) {
	log := klog.FromContext(ctx)
	if told.what == why.Error() && time.Since(told.at) < gpunode.Resync {
		return
	}
	log.Info("Idling: the node has no NVIDIA driver that answers; trying on", "why", why.Error())
	if a.options.GPUNodes != nil {
		err := a.publisher().Publish(ctx, v1alpha1.GPUNodeStatus{Conditions: []metav1.Condition{
			gpunode.ReadyCondition(v1alpha1.ReadyNoDriver, inventory.Shorten(why.Error(), 1024)), gpunode.HealthyCondition(nil), gpunode.MonitoredCondition(nil),
		}})
		a.metrics.Published(err)
		if err != nil {
			log.Error(err, "Cannot publish the GPUNode")
			return
		}
	}
	told.what, told.at = why.Error(), time.Now()
}
