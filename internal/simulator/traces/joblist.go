package traces

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Columns of a JobList.
var (
	jobListNeeds   = []string{"name", "submitted", "gpus"}
	jobListColumns = append(slices.Clone(jobListNeeds),
		"namespace", "duration_seconds", "members", "cpus", "memory_gib", "gpu_memory_gib", "gpu_models", "priority")
)

const (
	// maxClock bounds seconds since 1970: the year 2255. More does not fit a time.Duration.
	maxClock = 9_000_000_000
	// maxMemoryGiB bounds memory of a host and of devices: 64 TiB.
	maxMemoryGiB = MaxMemoryMiB >> 10
	// fuzzy is how far thousandths of GPUs may be from whole numbers: programs write 0.3 as 0.30000000000000004.
	fuzzy = 1e-6
)

// likeJobList reports whether a header was probably meant for a JobList: it has two of its columns.
func likeJobList(header []string) bool {
	count := 0
	for _, name := range jobListColumns {
		if slices.Contains(header, name) {
			count++
		}
	}
	return count >= 2
}

// listedJob reads a row of a list of jobs of a user's own cluster. Arrivals count from the earliest.
func listedJob(t *csvtable.Table, all *Trace) {
	name := t.Text("name")
	tenant := t.TextOr("namespace")
	if tenant != "" {
		name = tenant + "/" + name
	}
	j := job(t, name)
	t.Unique("name", j.Name, "name")
	j.Tenant = tenant
	j.Arrive = moment(t, "submitted")
	if t.Field("duration_seconds") != "" {
		j.Duration = csvtable.Lasting(t.Time("duration_seconds", time.Second), time.Second)
	}
	if t.Field("members") != "" {
		j.Workers = int(t.Whole("members", 1, MaxWorkers))
	}
	gpus(t, &j)
	j.Host = vgpu.Room{MilliCPU: int64(math.Round(1000 * t.DecimalOr("cpus", maxMilliCPU/1000, "cores"))), Memory: gibibytes(t, "memory_gib")}
	if t.Field("priority") != "" {
		j.Priority = int32(t.Whole("priority", math.MinInt32, math.MaxInt32))
	}
	all.Jobs = append(all.Jobs, j)
}

// gpus reads the GPU request of each member of a job: a part of one, whole ones, or none.
func gpus(t *csvtable.Table, j *Job) {
	exact := 1000 * t.Decimal("gpus", MaxDevices, "GPUs")
	milli := int64(math.Round(exact))
	switch whole := milli / 1000; {
	case math.Abs(exact-float64(milli)) > fuzzy, milli > 1000 && milli%1000 != 0:
		t.Fail("gpus", fmt.Sprintf("a part of one GPU in thousandths, for example 0.25, or a whole number up to %d", MaxDevices))
	case milli > 0:
		j.Devices, j.Compute = int(max(1, whole)), vgpu.MilliGPU(min(milli, 1000))
	}
	j.DeviceMemory, j.Models = gibibytes(t, "gpu_memory_gib"), models(t, "gpu_models")
	for _, column := range []string{"gpu_memory_gib", "gpu_models"} {
		if milli == 0 && t.Field(column) != "" && (column == "gpu_models" || j.DeviceMemory > 0) {
			t.Fail(column, "nothing, since gpus is 0")
		}
	}
}

// moment reads a time: seconds, or a date and time as in RFC 3339, which counts as seconds since 1970.
func moment(t *csvtable.Table, column string) time.Duration {
	text := t.Field(column)
	if at, err := time.Parse(time.RFC3339, text); err == nil && at.Unix() >= 0 && at.Unix() <= maxClock {
		return time.Duration(at.UnixNano())
	}
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v > maxClock || strings.Trim(text, "0123456789.eE+-") != "" || strings.HasPrefix(text, "-") {
		t.Fail(column, fmt.Sprintf("seconds from 0 to %d, or a time such as 2026-01-31T12:00:00Z (RFC 3339)", maxClock))
		return 0
	}
	whole, part := math.Modf(v) // apart, since seconds since 1970 leave no digits for nanoseconds
	return time.Duration(whole)*time.Second + time.Duration(math.Round(part*1e6))*time.Microsecond
}

// gibibytes reads an amount of memory, rounded up to whole MiB.
func gibibytes(t *csvtable.Table, column string) vgpu.Bytes {
	return vgpu.Bytes(math.Ceil(1024*t.DecimalOr(column, maxMemoryGiB, "GiB"))) * vgpu.MiB
}

// jobListOrigin: the first job arrives at time 0, and none so long after it that a list mixes two clocks.
func jobListOrigin(t *csvtable.Table, all *Trace) {
	first, last := all.Jobs[0].Arrive, all.Jobs[0].Arrive
	for i := range all.Jobs {
		first, last = min(first, all.Jobs[i].Arrive), max(last, all.Jobs[i].Arrive)
	}
	if last-first > csvtable.MaxSeconds*time.Second {
		t.Refuse("submitted", fmt.Sprintf("%v between the first and the last job", last-first),
			fmt.Sprintf("at most %d seconds: all rows by one clock", csvtable.MaxSeconds))
		return
	}
	for i := range all.Jobs {
		all.Jobs[i].Arrive -= first
	}
}
