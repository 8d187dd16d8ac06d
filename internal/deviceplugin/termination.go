package deviceplugin

import "context"

// terminator returns the loops that end the GPU work of terminating pods.
func (a *Agent) terminator() []func(context.Context) { return nil }
