package gpugang

import (
	"context"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
)

// Factory makes the plugin and knows it afterwards, for other plugins of the same scheduler.
type Factory struct {
	// Shares returns the plugin GPUShare of the same scheduler, nil where there is none.
	Shares func() Shares
	plugin atomic.Pointer[Plugin]
}

// New makes the plugin.
func (f *Factory) New(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	plugin, err := NewFactory(f.Shares)(ctx, args, handle)
	if err != nil {
		return nil, err
	}
	f.plugin.Store(plugin.(*Plugin))
	return plugin, nil
}

// Plugin returns the plugin, nil before New made it.
func (f *Factory) Plugin() *Plugin { return f.plugin.Load() }
