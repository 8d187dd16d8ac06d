package workloads

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Bounds of the learned values of a workload, as in the schema: logarithms, and parts.
const (
	maxLog  = 4
	maxSure = 1
)

// Learned holds the observations of a workload on one GPU model.
type Learned struct {
	// Model is the product name of the devices.
	Model string
	// Known says which of SM, Bandwidth and Memory have observations; the others are 0.
	Known Known
	// SM and Bandwidth are the parts of the time, 0 to 1, that the workload alone keeps them busy. A WorkloadProfile holds
	// whole percents.
	SM, Bandwidth float64
	// Memory that it held at most.
	Memory vgpu.Bytes
	// SoloObservations counts the observations of SM and Bandwidth.
	SoloObservations int64
	// SoloRate is the rate that it reports while it is alone, 0 for none.
	SoloRate placement.Rate
	// SoloShare is the part of the SMs at SoloRate.
	SoloShare vgpu.MilliGPU
	// Traits are what its co-runs taught. A WorkloadProfile holds whole thousandths.
	Traits interference.Traits
	// Neighbours is the number of different workloads in the observations beside others.
	Neighbours int32
	// LastObserved is when it was last observed, to the second; zero for never.
	LastObserved time.Time
}

// readLearned reads what the scheduler wrote.
func (w *Workload) readLearned(path string, l *v1alpha1.LearnedUse) {
	if w.learnedOn(l.Model) != nil || l.Model == "" {
		w.malformed(path+".model", l.Model, "it must be the name of a model that no other entry has")
		return
	}
	out := Learned{Model: l.Model}
	out.SM, out.Known.SM = w.part(path+".smUtilizationPercent", l.SMUtilizationPercent)
	out.Bandwidth, out.Known.Bandwidth = w.part(path+".memoryBandwidthPercent", l.MemoryBandwidthPercent)
	out.Memory, out.Known.Memory = w.memory(path+".memory", l.Memory, 0)
	out.SoloObservations = w.count(path+".soloObservations", l.SoloObservations)
	out.Neighbours = int32(w.count(path+".neighbours", int64(l.Neighbours)))
	out.Traits = interference.Traits{
		Sensitivity:     w.milli(path+".sensitivityMilli", l.SensitivityMilli, -maxLog, maxLog),
		Pressure:        w.milli(path+".pressureMilli", l.PressureMilli, -maxLog, maxLog),
		Offset:          w.milli(path+".offsetMilli", l.OffsetMilli, -maxLog, maxLog),
		SureSensitivity: w.milli(path+".sureSensitivityMilli", l.SureSensitivityMilli, 0, maxSure),
		SurePressure:    w.milli(path+".surePressureMilli", l.SurePressureMilli, 0, maxSure),
		SureOffset:      w.milli(path+".sureOffsetMilli", l.SureOffsetMilli, 0, maxSure),
		CoRuns:          int(min(w.count(path+".coRuns", l.CoRuns), math.MaxInt32)),
	}
	if q := l.SoloRate; q != nil && !q.IsZero() {
		rate, ok := config.Millionths(*q, config.MaxRate)
		if !ok {
			w.malformed(path+".soloRate", kube.ShownQuantity(*q), "it must be a decimal from 0 to 1T, with up to six decimals")
		} else {
			out.SoloRate, out.SoloShare = placement.Rate(rate), w.soloShare(path, l.SoloSharePercent)
		}
	}
	if l.LastObserved != nil {
		out.LastObserved = l.LastObserved.UTC()
	}
	w.learned = append(w.learned, out)
}

// soloShare reads the share of the rate alone; the whole device for a missing or illegal value.
func (w *Workload) soloShare(path string, percent *int32) vgpu.MilliGPU {
	part, known := w.part(path+".soloSharePercent", percent)
	if share := vgpu.MilliGPU(math.Round(part * float64(vgpu.WholeGPU))); known && share > 0 {
		return share
	}
	return vgpu.WholeGPU
}

func (w *Workload) count(path string, value int64) int64 {
	if value < 0 {
		w.malformed(path, value, "it must be 0 or more")
	}
	return max(value, 0)
}

// milli reads thousandths from least to most; 0 for those that are illegal.
func (w *Workload) milli(path string, value, least, most int32) float64 {
	if value < 1000*least || value > 1000*most {
		w.malformed(path, value, fmt.Sprintf("it must be from %d to %d", 1000*least, 1000*most))
		return 0
	}
	return float64(value) / 1000
}

// memory reads whole bytes from least to maxMemory.
func (w *Workload) memory(path string, q *resource.Quantity, least int64) (vgpu.Bytes, bool) {
	if q == nil {
		return 0, false
	}
	if q.IsZero() && least == 0 {
		return 0, true
	}
	bytes, ok := kube.Whole(*q, kube.MaxMemory)
	if !ok {
		w.malformed(path, kube.ShownQuantity(*q), fmt.Sprintf("it must be a whole number of bytes from %d to 1Pi", least))
		return 0, false
	}
	return vgpu.Bytes(bytes), true
}

// LearnedStatus returns the status with the learned values of a workload, by model. It keeps values that the schema
// refuses (parts outside 0 to 1, negative counts) within its bounds, and leaves out NaN.
//
// The parts of before that are about nothing learned stay: workload and conditions.
func LearnedStatus(before v1alpha1.WorkloadProfileStatus, learned []Learned) v1alpha1.WorkloadProfileStatus {
	out := *before.DeepCopy()
	out.Learned, out.CoRuns = nil, 0
	for i := range learned {
		l := writeLearned(&learned[i])
		out.CoRuns += l.CoRuns // at most 64 models of 2³¹
		out.Learned = append(out.Learned, l)
	}
	slices.SortFunc(out.Learned, func(a, b v1alpha1.LearnedUse) int { return strings.Compare(a.Model, b.Model) })
	return out
}

func writeLearned(l *Learned) v1alpha1.LearnedUse {
	t := &l.Traits
	out := v1alpha1.LearnedUse{
		Model: l.Model, SoloObservations: max(l.SoloObservations, 0),
		SensitivityMilli: thousandths(t.Sensitivity, -maxLog, maxLog), SureSensitivityMilli: thousandths(t.SureSensitivity, 0, maxSure),
		PressureMilli: thousandths(t.Pressure, -maxLog, maxLog), SurePressureMilli: thousandths(t.SurePressure, 0, maxSure),
		OffsetMilli: thousandths(t.Offset, -maxLog, maxLog), SureOffsetMilli: thousandths(t.SureOffset, 0, maxSure),
		CoRuns: min(max(int64(t.CoRuns), 0), math.MaxInt32), Neighbours: max(l.Neighbours, 0),
	}
	if l.Known.SM && !math.IsNaN(l.SM) {
		out.SMUtilizationPercent = new(percent(l.SM))
	}
	if l.Known.Bandwidth && !math.IsNaN(l.Bandwidth) {
		out.MemoryBandwidthPercent = new(percent(l.Bandwidth))
	}
	if l.Known.Memory {
		out.Memory = resource.NewQuantity(min(max(int64(l.Memory), 0), kube.MaxMemory), resource.BinarySI)
	}
	if l.SoloRate > 0 {
		out.SoloRate = resource.NewScaledQuantity(int64(min(l.SoloRate, placement.MaxRate)), resource.Micro)
		if share := percent(float64(l.SoloShare) / float64(vgpu.WholeGPU)); share > 0 && share < 100 {
			out.SoloSharePercent = &share
		}
	}
	if !l.LastObserved.IsZero() {
		out.LastObserved = new(metav1.NewTime(l.LastObserved.Truncate(time.Second)))
	}
	return out
}

// percent returns a part of a device in whole percents, from 0 to 100.
func percent(part float64) int32 { return int32(math.Round(100 * min(max(part, 0), 1))) }

// thousandths returns a number in thousandths within bounds, 0 for NaN.
func thousandths(value, least, most float64) int32 {
	if math.IsNaN(value) {
		return 0
	}
	return int32(math.Round(1000 * min(max(value, least), most)))
}
