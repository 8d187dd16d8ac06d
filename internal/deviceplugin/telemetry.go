package deviceplugin

import "context"

// telemetry returns the loops that measure the use of the devices.
func (a *Agent) telemetry() []func(context.Context) { return nil }
