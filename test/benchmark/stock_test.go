//go:build bench

package benchmark

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	fwk "k8s.io/kube-scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	perf "k8s.io/kubernetes/test/integration/scheduler_perf"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	_ "github.com/tandem-gpu/tandem/pkg/api/config/scheme"
	"github.com/tandem-gpu/tandem/pkg/plugins/gpushare"
)

func TestMain(m *testing.M) {
	tools, err := sandbox.Tools(context.Background(), "etcd")
	if err == nil {
		// scheduler_perf looks for etcd in the path.
		err = os.Setenv("PATH", filepath.Dir(tools["etcd"])+string(os.PathListSeparator)+os.Getenv("PATH"))
	}
	if err == nil {
		perf.PluginNames = append(perf.PluginNames, gpushare.Name)
		err = perf.InitTests()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// BenchmarkAgainstStock schedules the workloads with the stock profile and with that of deploy/, and fails when a ratio
// leaves its range. Choose workloads by -perf-scheduling-label-filter=short and by -bench.
func BenchmarkAgainstStock(b *testing.B) {
	ranges, err := LoadRanges("ranges.yaml")
	if err != nil {
		b.Fatal(err)
	}
	results := b.TempDir()
	if err := flag.Set("data-items-dir", results); err != nil {
		b.Fatal(err)
	}
	registry := frameworkruntime.Registry{gpushare.Name: newGPUShare}
	perf.RunBenchmarkPerfScheduling(b, "workloads.yaml", "stock", registry, perf.WithNodeUpdateFn(addGPUNodes))
	rates, err := podsPerSecond(results)
	if err != nil {
		b.Fatal(err)
	}
	table, broken := Compare(measured(ranges, rates), rates)
	fmt.Print(table)
	if len(broken) > 0 {
		b.Errorf("out of range:\n%s", strings.Join(broken, "\n"))
	}
}

// measured drops the ranges whose workloads were all deselected.
func measured(ranges []Range, rates map[string]float64) []Range {
	var kept []Range
	for _, r := range ranges {
		if rates[r.Ours] > 0 || rates[r.Stock] > 0 {
			kept = append(kept, r)
		}
	}
	return kept
}

// newGPUShare makes the plugin once the API server serves GPUNodes: scheduler_perf starts both together.
func newGPUShare(ctx context.Context, args runtime.Object, handle fwk.Handle) (fwk.Plugin, error) {
	if err := installCRD(ctx, handle.KubeConfig()); err != nil {
		return nil, err
	}
	return gpushare.New(ctx, args, handle)
}

// podsPerSecond reads what scheduler_perf measured: the average throughput by "case/workload".
func podsPerSecond(dir string) (map[string]float64, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, err
	}
	rates := map[string]float64{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		var items perf.DataItems
		if err := json.Unmarshal(raw, &items); err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		for _, item := range items.DataItems {
			if item.Labels["Metric"] != "SchedulingThroughput" {
				continue
			}
			_, name, _ := strings.Cut(item.Labels["Name"], "/")
			rates[name] = item.Data["Average"]
		}
	}
	return rates, nil
}
