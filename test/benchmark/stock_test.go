//go:build bench

package benchmark

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	_ "github.com/tandem-gpu/tandem/pkg/api/config/scheme"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpugang"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpupreempt"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpuqueue"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
)

func TestMain(m *testing.M) {
	tools, err := sandbox.Tools(context.Background(), "etcd")
	if err == nil {
		// scheduler_perf looks for etcd in the path.
		err = os.Setenv("PATH", filepath.Dir(tools["etcd"])+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	if err == nil {
		perf.PluginNames = append(perf.PluginNames, gpushare.Name, gpugang.Name, gpupreempt.Name, gpuqueue.Name)
		err = perf.InitTests()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// BenchmarkAgainstStock schedules the workloads with the stock profile and with that of deploy/, with its limits of requests. The results go to the
// folder -data-items-dir; -perf-scheduling-label-filter=short chooses the small workloads.
func BenchmarkAgainstStock(b *testing.B) {
	p := &plugins{}
	registry := frameworkruntime.Registry{
		gpushare.Name: p.newGPUShare, gpugang.Name: p.newGPUGang, gpupreempt.Name: p.newGPUPreempt, gpuqueue.Name: gpuqueue.New,
	}
	perf.RunBenchmarkPerfScheduling(b, "workloads.yaml", "stock", registry,
		perf.WithPrepareFn(recordGangs), perf.WithNodeUpdateFn(addGPUNodes))
}

// plugins are those of the scheduler that runs now.
type plugins struct {
	share *gpushare.Plugin
	// room is that of the scheduler with these informers.
	room      *machine.Machine
	informers informers.SharedInformerFactory
}

// roomOf returns what is remembered of reservations by the scheduler of a handle. Its plugins are made in no fixed order.
func (p *plugins) roomOf(handle fwk.Handle) *machine.Machine {
	if factory := handle.SharedInformerFactory(); p.informers != factory {
		p.informers, p.room = factory, machine.New(func() machine.Shares { return p.share })
	}
	return p.room
}

// newGPUShare makes the plugin once the API server serves GPUNodes: scheduler_perf starts both together.
func (p *plugins) newGPUShare(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	if err := installCRD(ctx, handle.KubeConfig()); err != nil {
		return nil, err
	}
	handle, err := asDeployed(handle)
	if err != nil {
		return nil, err
	}
	plugin, err := gpushare.New(ctx, args, handle)
	if err != nil {
		return nil, err
	}
	p.share = plugin.(*gpushare.Plugin)
	return plugin, nil
}

func (p *plugins) newGPUGang(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	return gpugang.NewFactory(p.shares, p.roomOf(handle))(ctx, args, handle)
}

// newGPUPreempt makes the plugin without the bound of evictions in a minute: the stock scheduler has none, and speed is what is
// compared.
func (p *plugins) newGPUPreempt(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	handle, err := asDeployed(handle)
	if err != nil {
		return nil, err
	}
	unbound := args.(*config.GPUPreemptArgs).DeepCopy()
	unbound.EvictionsPerMinute = 0
	return gpupreempt.NewFactory(p.preemptShares, p.roomOf(handle))(ctx, unbound, handle)
}

// shares returns the GPUShare of the same scheduler, nil before it is made: GPUGang may be made first, and looks once a
// second.
func (p *plugins) shares() gpugang.Shares {
	if p.share == nil {
		return nil
	}
	return p.share
}

func (p *plugins) preemptShares() gpupreempt.Shares {
	if p.share == nil {
		return nil
	}
	return p.share
}
