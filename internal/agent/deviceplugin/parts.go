package deviceplugin

import (
	"context"

	"github.com/tandem-gpu/tandem/internal/agent/binding"
	"github.com/tandem-gpu/tandem/internal/agent/config"
	"github.com/tandem-gpu/tandem/internal/agent/health"
	"github.com/tandem-gpu/tandem/internal/agent/metrics"
	"github.com/tandem-gpu/tandem/internal/agent/reported"
	"github.com/tandem-gpu/tandem/internal/agent/telemetry"
	"github.com/tandem-gpu/tandem/internal/agent/termination"
)

// telemetry returns the loops that measure the use of the devices.
func (a *Agent) telemetry() []func(context.Context) {
	reader := reported.New(reported.Options{
		Interval: a.timing.reports, AnnotationsOnly: a.options.Config.Telemetry.Reports() == config.ReportsAnnotations,
		Scraped: a.metrics.RateScraped, Dropped: a.metrics.RateDropped, Dial: a.dial,
	})
	m := telemetry.NewMeter(telemetry.MeterOptions{
		Inventory: a.inventory, Driver: a.options.Driver, Records: a.binder.Records, Pods: a.podWatch,
		Attribution: a.attribution, Metrics: a.metrics, Beat: a.pulse.Of("telemetry"), Reports: reader.Rate,
		Every: a.timing.telemetry, Publish: a.timing.announce, Answer: a.timing.driver,
	})
	if err := metrics.RegisterUse(a.registry, m.Snapshot); err != nil {
		panic("register metrics of devices: " + err.Error()) // the names are constants
	}
	loops := []func(context.Context){a.podWatch.Run, m.Run}
	if a.options.Config.Telemetry.Reports() != config.ReportsNone {
		r := &telemetry.Reporter{Reader: reader, Pods: a.podWatch, Every: a.timing.reports, Beat: a.pulse.Of("reports")}
		loops = append(loops, r.Run)
	}
	return loops
}

// terminator returns the part that ends the GPU work of terminating pods.
func (a *Agent) terminator() *termination.Terminator {
	return termination.New(termination.Options{
		Inventory: a.inventory, Records: a.binder.Records, Pods: a.podWatch, Sharing: a.options.Sharing,
		Attribution: a.attribution, Metrics: a.metrics, Beat: a.pulse.Of("termination"),
		Margin: a.options.Config.Termination.EndMargin(),
	})
}

// sweeper returns the part that compares CDI specs with pods.
func (a *Agent) sweeper() *binding.Sweeper {
	return binding.NewSweeper(binding.SweeperOptions{
		Binder: a.binder, Watch: a.podWatch, Pods: a.plugin.pods, CheckpointPath: a.plugin.checkpoint,
		Metrics: a.metrics, Every: a.timing.sweep, Grace: a.timing.grace, Unreadable: a.kubeletUnreadable,
		Beat: a.pulse.Of("sweep"), Bound: a.bound,
	})
}

// keeper returns the part that watches the health of the devices.
func (a *Agent) newKeeper() *health.Keeper {
	t := a.timing
	return health.New(health.Options{
		Inventory: a.inventory, Driver: a.options.Driver, Sharing: a.options.Sharing,
		Drains: a.options.Config.Health.Drains(), Metrics: a.metrics, Beat: a.pulse.Of("health"),
		Timing: health.Timing{
			Look: t.health, Canary: t.canary, Probe: t.probe, Hold: t.hold, DrainAfter: t.drainAfter,
			Rescan: t.rescan, Announce: t.announce, Driver: t.driver,
		},
	})
}
