package traces

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Bounds of fields, each at least eight times what the published traces have.
const (
	// MaxDevices bounds the devices of a node, and so of a pod.
	MaxDevices = 64
	// MaxWorkers bounds the workers of a job.
	MaxWorkers = 10_000
	// maxMilliCPU bounds the CPU of a node or a pod: 10,000 cores.
	maxMilliCPU = 10_000_000
	// MaxMemoryMiB bounds the memory of a node, a pod or a device: 64 TiB.
	MaxMemoryMiB = 64 << 20
	// MaxSteps bounds the steps of a job.
	MaxSteps = 1_000_000_000_000
	// MaxBatch bounds the samples of a step.
	MaxBatch = 1_000_000_000
)

// life reads when a pod came and how long it ran from three columns in seconds, each of which may be empty. A pod
// without a creation was there at time 0. The pod runs from scheduled_time to deletion_time, without the latter to the
// end of the trace. Its duration is unknown if the pod has a creation and no scheduled_time. Unknown durations are 0.
func life(t *csvtable.Table) (arrive, duration time.Duration) {
	created, hasCreation := t.TimeOr("creation_time")
	scheduled, ran := t.TimeOr("scheduled_time")
	deleted, ended := t.TimeOr("deletion_time")
	start, column := created, "creation_time"
	if ran {
		start, column = scheduled, "scheduled_time"
	}
	if ran && scheduled < created {
		t.Fail("scheduled_time", fmt.Sprintf("nothing, or a time from creation_time (%s) on", t.Field("creation_time")))
	}
	if ended && deleted < start {
		t.Fail("deletion_time", fmt.Sprintf("nothing, or a time from %s (%s) on", column, t.Field(column)))
	}
	if !ended || (hasCreation && !ran) {
		return created, 0
	}
	return created, csvtable.Lasting(deleted-start, time.Second)
}

// models reads the GPU models that a pod may use, "A|B": sorted, each once; nil for any.
func models(t *csvtable.Table, column string) []string {
	text := t.Field(column)
	if text == "" {
		return nil
	}
	list := strings.Split(text, "|")
	for _, m := range list {
		if !csvtable.Printable(m) {
			t.Fail(column, `names of GPU models with "|" between them, or nothing`)
			return nil
		}
	}
	slices.Sort(list)
	if list = slices.Compact(list); len(list) > vgpu.MaxVariants {
		t.Fail(column, fmt.Sprintf("at most %d GPU models", vgpu.MaxVariants))
	}
	return list
}

// room reads CPU and memory in thousandths of a core and MiB. Least is the least of each.
func room(t *csvtable.Table, least int64) vgpu.Room {
	return vgpu.Room{
		MilliCPU: t.Whole("cpu_milli", least, maxMilliCPU),
		Memory:   vgpu.Bytes(t.Whole("memory_mib", least, MaxMemoryMiB)) * vgpu.MiB,
	}
}
