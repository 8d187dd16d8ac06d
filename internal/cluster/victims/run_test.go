package victims

import (
	"math"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/pods"
)

// workLost returns the work that is lost if a pod with a share of GPUs ends now.
func workLost(pod *v1.Pod, share vgpu.MilliGPU, now time.Time) int64 {
	r := runOf(pod)
	return r.lost(share, now)
}

// ran returns a pod that started so long before noon.
func ran(d time.Duration) *v1.Pod {
	p := pods.New("3")
	p.Status.StartTime = &metav1.Time{Time: noon.Add(-d)}
	return p
}

// scheduled returns a pod that got its node so long before noon, and that its node has said nothing of.
func scheduled(d time.Duration, status v1.ConditionStatus) *v1.Pod {
	p := pods.New("3")
	p.Status.Conditions = []v1.PodCondition{
		{Type: v1.PodReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.Time{Time: noon.Add(-time.Second)}},
		{Type: v1.PodScheduled, Status: status, LastTransitionTime: metav1.Time{Time: noon.Add(-d)}},
	}
	return p
}

func TestLostWork(t *testing.T) {
	at := func(d time.Duration) string { return noon.Add(-d).Format(time.RFC3339Nano) }
	for _, test := range []struct {
		name  string
		pod   *v1.Pod
		share vgpu.MilliGPU
		want  int64
	}{
		{"an hour of a device and a half", ran(time.Hour), 1500, 1500 * 3600},
		{"no GPU", ran(time.Hour), 0, 0},
		{"less than a second", ran(time.Second - 1), 1000, 0},
		{"whole seconds", ran(2*time.Second - 1), 1000, 1000},
		{"it starts in the future, by this clock", ran(-time.Hour), 1000, 0},
		{"nobody saw it start", pods.New("3"), 1000, 0},
		{"its node has not said when", scheduled(time.Minute, v1.ConditionTrue), 1000, 60_000},
		{"it could not be scheduled then", scheduled(time.Minute, v1.ConditionFalse), 1000, 0},
		{"for longer than anything runs", ran(math.MaxInt64), 1000, 10 * 365 * 86400 * 1000},
		{"saved ten minutes ago", saved(ran(time.Hour), at(10*time.Minute)), 1500, 900_000},
		{"saved just now", saved(ran(time.Hour), at(0)), 1000, 0},
		{"saved at the start", saved(ran(time.Hour), at(time.Hour)), 1000, 3_600_000},
		{"saved before the start", saved(ran(time.Hour), at(time.Hour+1)), 1000, 3_600_000},
		{"saved in the future", saved(ran(time.Hour), at(-1)), 1000, 3_600_000},
		{"saved nobody knows when", saved(ran(time.Hour), "yesterday"), 1000, 3_600_000},
		{"saved, and nobody saw it start", saved(pods.New("3"), at(time.Minute)), 1000, 0},
		{"saved since it was scheduled", saved(scheduled(time.Hour, v1.ConditionTrue), at(time.Minute)), 1000, 60_000},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := workLost(test.pod, test.share, noon); got != test.want {
				t.Errorf("%d, want %d", got, test.want)
			}
		})
	}
	both := scheduled(time.Hour, v1.ConditionTrue)
	both.Status.StartTime = &metav1.Time{Time: noon.Add(-time.Minute)}
	if got := workLost(both, 1000, noon); got != 60_000 {
		t.Errorf("scheduled before it started: %d, want the time since it started", got)
	}
}

// Work that is lost is never negative, never more than since the start, grows as time passes, and shrinks as the checkpoint
// comes later, until it lies in the future.
func TestLostWorkProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		share := vgpu.MilliGPU(rapid.Int64Range(0, 128_000).Draw(t, "share"))
		p := ran(time.Duration(rapid.Int64Range(-1e10, 1e16).Draw(t, "ran")))
		whole := workLost(p, share, noon)
		before := rapid.Int64Range(-1e10, 1e16).Draw(t, "before")
		earlier := noon.Add(-time.Duration(before)).UTC()
		p = saved(p, earlier.Format(time.RFC3339Nano))
		lost := workLost(p, share, noon)
		if lost < 0 || lost > whole {
			t.Fatalf("%d is lost, %d since the start", lost, whole)
		}
		if later := workLost(p, share, noon.Add(time.Hour)); later < lost && before >= 0 {
			t.Fatalf("%d is lost an hour later, %d now", later, lost)
		}
		if start := p.Status.StartTime.Time; earlier.After(start) && before >= 0 {
			if want := int64(share) * int64(noon.Sub(earlier)/time.Second); lost != want {
				t.Fatalf("%d is lost, want %d", lost, want)
			}
			next := saved(p, earlier.Add(time.Duration(before/2)).Format(time.RFC3339Nano))
			if got := workLost(next, share, noon); got > lost {
				t.Fatalf("%d is lost after a later checkpoint, %d before", got, lost)
			}
		} else if lost != whole {
			t.Fatalf("%d is lost, want all %d since the start", lost, whole)
		}
	})
}

func FuzzCheckpointTime(f *testing.F) {
	for _, raw := range []string{
		"2026-01-31T12:00:00Z", "2026-01-31T12:00:00.123456789+01:00", "0000-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59", "2026-02-29T00:00:00Z",
		"2026-01-31T12:00:00,5Z", "2026-01-31", "now", "",
	} {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		p := saved(ran(time.Hour), raw)
		at, ok, err := kube.CheckpointTime(p)
		if !ok {
			t.Fatalf("%q is no checkpoint", raw)
		}
		lost := workLost(p, 1000, noon)
		if lost < 0 || lost > 3_600_000 {
			t.Fatalf("%q: %d is lost of 3600000", raw, lost)
		}
		if err != nil {
			if lost != 3_600_000 || len(err.Error()) > 1024 {
				t.Fatalf("%q: %d is lost, %v", raw, lost, err)
			}
			return
		}
		if again, _, err := kube.CheckpointTime(saved(p, at.Format(time.RFC3339Nano))); err != nil || !again.Equal(at) {
			t.Fatalf("%q is %v, which is read as %v, %v", raw, at, again, err)
		}
	})
}

// A pod ends soon if the end that its activeDeadlineSeconds give it is ahead, within its grace period, and leaves
// time for that within the longest wait.
func TestEndsSoon(t *testing.T) {
	g := guards(t, config.GPUPreemptArgs{MaximumGracePeriod: metav1.Duration{Duration: 10 * time.Minute}})
	for name, x := range map[string]struct {
		deadline, grace int64
		ran             time.Duration
		soon            bool
	}{
		"in 30s, as long as its grace":   {3600, 30, time.Hour - 30*time.Second, true},
		"in 31s":                         {3600, 30, time.Hour - 31*time.Second, false},
		"now":                            {3600, 30, time.Hour, true},
		"it should have ended":           {3600, 30, time.Hour + time.Second, false},
		"in 4m, and up to 6m after that": {3600, 360, 56 * time.Minute, true},
		"in 5m, and up to 6m after that": {3600, 360, 55 * time.Minute, false},
		"now, and up to 1h after that":   {3600, 3600, time.Hour, false},
		"a grace that is cut, in 50s":    {3600, 1200, time.Hour - 50*time.Second, false},
		"a grace of 0 and an end in 1s":  {3600, 0, time.Hour - time.Second, false},
		"an end that no clock can write": {1 << 62, 30, time.Hour, false},
	} {
		p := ran(x.ran)
		p.Spec.ActiveDeadlineSeconds, p.Spec.TerminationGracePeriodSeconds = &x.deadline, &x.grace
		of := g.TraitsOf(p, vgpu.Room{})
		if got := of.EndsSoon(noon); got != x.soon {
			t.Errorf("%s: ends soon %v, want %v", name, got, x.soon)
		}
	}
	if _, soon := g.EndsSoon(ran(time.Hour), noon); soon {
		t.Error("a pod without a deadline ends soon")
	}
}
