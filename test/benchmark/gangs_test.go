//go:build bench

package benchmark

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/kubernetes/test/utils/client-go/ktesting"
)

// recordGangs writes, at the end of a workload with PodGroups, how long the scheduling algorithm took for them into the
// folder of the results. scheduler_perf itself cannot say: this histogram is never reset between workloads, and attempts
// that failed would lower its average.
func recordGangs(tCtx ktesting.TContext) error {
	before, err := gangAlgorithm()
	if err != nil {
		return err
	}
	tb := tCtx.TB()
	tb.Cleanup(func() {
		after, err := gangAlgorithm()
		if err != nil {
			tb.Errorf("record algorithm time of gangs: %v", err)
			return
		}
		if after.Scheduled == before.Scheduled {
			return // no PodGroups in this workload
		}
		after.Name = tb.Name()
		after.Seconds -= before.Seconds
		after.Attempts -= before.Attempts
		after.Scheduled -= before.Scheduled
		if err := write(after); err != nil {
			tb.Errorf("record algorithm time of gangs: %v", err)
		}
	})
	return nil
}

func write(g GangAlgorithm) error {
	raw, err := json.Marshal(g)
	if err != nil {
		return err
	}
	dir := flag.Lookup("data-items-dir").Value.String()
	if dir == "" {
		fmt.Println(string(raw))
		return nil
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, strings.ReplaceAll(g.Name, "/", "_")+gangSuffix), raw, 0o600)
}

// gangAlgorithm reads the scheduler's metrics of this process.
func gangAlgorithm() (GangAlgorithm, error) {
	var g GangAlgorithm
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return g, err
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			switch family.GetName() {
			case "scheduler_podgroup_scheduling_algorithm_duration_seconds":
				g.Seconds += m.GetHistogram().GetSampleSum()
				g.Attempts += int(m.GetHistogram().GetSampleCount())
			case "scheduler_podgroup_schedule_attempts_total":
				for _, label := range m.GetLabel() {
					if label.GetName() == "result" && label.GetValue() == "scheduled" {
						g.Scheduled += int(m.GetCounter().GetValue())
					}
				}
			}
		}
	}
	return g, nil
}
