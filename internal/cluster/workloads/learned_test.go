package workloads

import (
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

func TestLearnedStatus(t *testing.T) {
	at := time.Date(2026, 11, 22, 3, 4, 5, 999, time.UTC)
	before := v1alpha1.WorkloadProfileStatus{
		Workload: &v1alpha1.LearnedWorkload{OwnerKind: "Pod", OwnerName: "x"}, CoRuns: 99,
		Learned: []v1alpha1.LearnedUse{{Model: "forgotten"}}, Conditions: []metav1.Condition{{Type: "Consistent"}},
	}
	got := LearnedStatus(before, []Learned{
		{
			Model: "T4", Known: Known{SM: true, Bandwidth: true, Memory: true}, SM: .804, Bandwidth: 0, Memory: 8 << 30, SoloObservations: 12,
			SoloRate: 120_500_000, SoloShare: 300, LastObserved: at, Neighbours: 3,
			Traits: interference.Traits{Sensitivity: .6931, Pressure: -.25, Offset: .0104, SureSensitivity: .5, SurePressure: 1, SureOffset: .0004, CoRuns: 7},
		},
		{
			Model: "A100", Known: Known{SM: true, Bandwidth: true, Memory: true}, SM: math.NaN(), Bandwidth: 1.5, Memory: -3, SoloObservations: -1, Neighbours: -1,
			Traits: interference.Traits{Sensitivity: math.Inf(1), Pressure: math.NaN(), SureOffset: -1, CoRuns: -5},
		},
	})
	want := v1alpha1.WorkloadProfileStatus{
		Workload: &v1alpha1.LearnedWorkload{OwnerKind: "Pod", OwnerName: "x"}, CoRuns: 7, Conditions: []metav1.Condition{{Type: "Consistent"}},
		Learned: []v1alpha1.LearnedUse{
			{Model: "A100", MemoryBandwidthPercent: new(int32(100)), Memory: new(resource.MustParse("0")), SensitivityMilli: 4000},
			{
				Model: "T4", SMUtilizationPercent: new(int32(80)), MemoryBandwidthPercent: new(int32(0)), Memory: new(resource.MustParse("8Gi")),
				SoloObservations: 12, SoloRate: new(resource.MustParse("120.5")), SoloSharePercent: new(int32(30)), SensitivityMilli: 693, PressureMilli: -250, OffsetMilli: 10,
				SureSensitivityMilli: 500, SurePressureMilli: 1000, CoRuns: 7, Neighbours: 3, LastObserved: new(metav1.NewTime(at.Truncate(time.Second))),
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	got.Conditions[0].Type = "changed"
	if before.Conditions[0].Type != "Consistent" || before.CoRuns != 99 || len(before.Learned) != 1 {
		t.Errorf("the status before was changed: %+v", before)
	}
}

// TestLearnedStatusProperty: learned values survive a restart: written into a status and read again they are the same, as
// exactly as a WorkloadProfile holds them.
func TestLearnedStatusProperty(t *testing.T) {
	milli := func(t *rapid.T, label string, least, most int) float64 {
		return float64(rapid.IntRange(least, most).Draw(t, label)) / 1000
	}
	rapid.Check(t, func(t *rapid.T) {
		models := rapid.SliceOfNDistinct(rapid.StringMatching(`[A-Z][A-Z0-9-]{0,8}`), 0, 5, rapid.ID[string]).Draw(t, "models")
		var list []Learned
		for _, model := range models {
			l := Learned{
				Model: model, SoloObservations: rapid.Int64Range(0, math.MaxInt64).Draw(t, "observations"),
				SoloRate:   placement.Rate(rapid.Int64Range(0, int64(placement.MaxRate)).Draw(t, "rate")),
				Neighbours: rapid.Int32Range(0, math.MaxInt32).Draw(t, "neighbours"),
				Traits: interference.Traits{
					Sensitivity: milli(t, "sensitivity", -4000, 4000), Pressure: milli(t, "pressure", -4000, 4000), Offset: milli(t, "offset", -4000, 4000),
					SureSensitivity: milli(t, "sure", 0, 1000), SurePressure: milli(t, "sure", 0, 1000), SureOffset: milli(t, "sure", 0, 1000),
					CoRuns: rapid.IntRange(0, math.MaxInt32).Draw(t, "co-runs"),
				},
			}
			if l.SoloRate > 0 {
				l.SoloShare = 10 * vgpu.MilliGPU(rapid.IntRange(1, 100).Draw(t, "solo share"))
			}
			if l.Known.SM = rapid.Bool().Draw(t, "SM known"); l.Known.SM {
				l.SM = float64(rapid.IntRange(0, 100).Draw(t, "SM")) / 100
			}
			if l.Known.Bandwidth = rapid.Bool().Draw(t, "bandwidth known"); l.Known.Bandwidth {
				l.Bandwidth = float64(rapid.IntRange(0, 100).Draw(t, "bandwidth")) / 100
			}
			if l.Known.Memory = rapid.Bool().Draw(t, "memory known"); l.Known.Memory {
				l.Memory = vgpu.Bytes(rapid.Int64Range(0, kube.MaxMemory).Draw(t, "memory"))
			}
			if rapid.Bool().Draw(t, "seen") {
				l.LastObserved = time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "seconds"), 0).UTC()
			}
			list = append(list, l)
		}
		p := profileOf(v1alpha1.WorkloadProfileSpec{})
		p.Status = LearnedStatus(p.Status, list)
		w := ReadProfile(p)
		if len(w.Malformed) > 0 {
			t.Fatalf("malformed: %v", w.Malformed)
		}
		if again := LearnedStatus(p.Status, w.Learned()); !cmp.Equal(p.Status, again) {
			t.Fatalf("written again (-before +after):\n%s", cmp.Diff(p.Status, again))
		}
		for i := range list {
			if diff := cmp.Diff(&list[i], w.learnedOn(list[i].Model)); diff != "" {
				t.Fatalf("learned on %s (-written +read):\n%s", list[i].Model, diff)
			}
		}
	})
}
