package main

import (
	"context"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
)

// dumping returns a factory that has the reservations written at a signal from when it makes its first plugin on.
func dumping(m *machine.Machine, out io.Writer, factory frameworkruntime.PluginFactory) frameworkruntime.PluginFactory {
	var once sync.Once
	return func(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
		once.Do(func() { dumpOnSignal(ctx, m, out) })
		return factory(ctx, args, handle)
	}
}

// dumpOnSignal writes the state of the reservations to out at each SIGUSR2, at which kube-scheduler logs its caches,
// until ctx ends.
func dumpOnSignal(ctx context.Context, m *machine.Machine, out io.Writer) {
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGUSR2)
	go func() {
		defer signal.Stop(asked)
		for {
			select {
			case <-ctx.Done():
				return
			case <-asked:
				if err := m.Dump(out); err != nil {
					klog.FromContext(ctx).Error(err, "Writing the reservations failed")
				}
			}
		}
	}()
}
