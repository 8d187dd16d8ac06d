package measurements

import (
	"fmt"
	"math"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/csvtable"
	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// CoRun is one measurement of two workloads that shared a device.
type CoRun struct {
	// Line of the file, from 1.
	Line int
	// Set is the measurement that the row is from, where the file has several: "oracle", say.
	Set string
	// GPU is the model of the device. If the file does not say it, it is the one on which its authors measured.
	GPU  string
	A, B CoRunner
	// Memory of the device that both together held, 0 where the file does not say it.
	Memory vgpu.Bytes
	// Fits says that both ran. Two that do not fit in the memory of the device have no speeds.
	Fits bool
}

// CoRunner is one of the two workloads of a CoRun.
type CoRunner struct {
	// Workload is a measured configuration: a model with its data set, batch size and precision.
	Workload string
	// Family is the model without what distinguishes its sizes: see Family.
	Family string
	// Share is the part of the SMs that it might use at most, 1000 without a cap.
	Share vgpu.MilliGPU
	// Speed is its throughput beside the other ÷ its throughput alone under the same Share: 0.001 to 10, or 0 where the
	// two do not fit. A speed above 1 is noise of the two measurements.
	Speed float64
}

// Solo is one measurement of a workload that had a device, or a part of it, to itself. A missing utilisation is NaN,
// another missing value 0.
type Solo struct {
	// Line of the file, from 1.
	Line int
	// GPU, Workload and Family are as in CoRun and CoRunner.
	GPU, Workload, Family string
	// Batch is the samples of a step.
	Batch int64
	// Share is the part of the device, or of its SMs, that it might use: 1000 for all.
	Share vgpu.MilliGPU
	// SM, Bandwidth and L2 are parts from 0 to 1. SM is the part of the time in which a kernel ran (NVML's GPU
	// utilisation, or the SMs' throughput by a profiler). Bandwidth and L2 are parts of what the device memory and the
	// L2 cache can move. The file of MISO has them for the whole device, whatever the Share.
	SM, Bandwidth, L2 float64
	// Memory of the device that it held.
	Memory vgpu.Bytes
	// Rate is samples per second (steps per second in MISO), Latency how long a step took.
	Rate    float64
	Latency time.Duration
}

// modelSize matches a name that ends in a size or a version, after at least three letters: "ResNet18", "VGG11",
// "EfficientNetB0", "MobileNetV3", "mobilenet_v2", "llama-7b".
var modelSize = regexp.MustCompile(`^(.*?[A-Za-z]{3})[-_]?[vVbB]?[0-9][0-9._]*[bB]?$`)

// Family returns the name of a model without its size and version, by which sizes of one model count as alike. Examples
// are ResNet of ResNet18 and ResNet50, EfficientNet of EfficientNetB0, llama of llama-7b. Names of less than three
// letters before the digits stay as they are: TD3.
func Family(model string) string {
	if m := modelSize.FindStringSubmatch(model); m != nil {
		return m[1]
	}
	return model
}

// maxRate bounds steps and samples per second, at least eight times what the published files have.
const maxRate = 1_000_000

// Bounds of the speed of a co-run, those of interference.Observation. The published speeds are between 0.2 and 1.5.
const (
	leastSpeed = .001
	maxSpeed   = 10
)

// unknown is a utilisation that a file does not say.
var unknown = math.NaN()

// percent reads a utilisation in percent as a part from 0 to 1.
func percent(t *csvtable.Table, column string) float64 {
	return t.Decimal(column, 100, "percent") / 100
}

// percentOr reads a utilisation that may be empty, or whose column may be missing: then it is NaN.
func percentOr(t *csvtable.Table, column string) float64 {
	if t.Field(column) == "" {
		return math.NaN()
	}
	return percent(t, column)
}

// sms reads a limit of the SMs in percent.
func sms(t *csvtable.Table, column string) vgpu.MilliGPU {
	return vgpu.MilliGPU(10 * t.Whole(column, 1, 100))
}

// mebibytes reads an amount of device memory.
func mebibytes(t *csvtable.Table, column string) vgpu.Bytes {
	return vgpu.Bytes(math.Round(t.Decimal(column, traces.MaxMemoryMiB, "MiB") * float64(vgpu.MiB)))
}

// positive reads a number above zero.
func positive(t *csvtable.Table, column string, most int64, words string) float64 {
	v := t.Decimal(column, most, words)
	if v == 0 {
		t.Fail(column, "a number above 0 ("+words+")")
	}
	return v
}

// latency reads a duration above zero; one of less than a nanosecond counts as one.
func latency(t *csvtable.Table, column string, unit time.Duration) time.Duration {
	if positive(t, column, csvtable.MaxSeconds, csvtable.Unit(unit)) == 0 {
		return 0
	}
	return csvtable.Lasting(t.Time(column, unit), time.Nanosecond)
}

// speed returns part ÷ whole, and blames the column for one that no co-run has. The other column is the measure.
func speed(t *csvtable.Table, column, measure string, part, whole float64) float64 {
	if t.Err() != nil {
		return 0
	}
	v := part / whole
	if !legalSpeed(v) {
		t.Fail(column, fmt.Sprintf("a speed together ÷ alone from %v to %d; %s is %s", leastSpeed, maxSpeed, measure, t.Field(measure)))
	}
	return v
}

func legalSpeed(v float64) bool { return v >= leastSpeed && v <= maxSpeed }

// prefixOf returns what stands in the name of a file before an ending, "" if it has another: "2080ti" of
// "glet/2080ti_UTIL.csv" and "_UTIL.csv".
func prefixOf(file, ending string) string {
	name, ok := strings.CutSuffix(strings.TrimSuffix(filepath.Base(file), ".gz"), ending)
	if !ok || !csvtable.Printable(name) {
		return ""
	}
	return name
}
