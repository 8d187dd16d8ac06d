package victims

import (
	"math"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	"github.com/tandem-gpu/tandem/pkg/preemption"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/pods"
)

func guards(t testing.TB, args config.GPUPreemptArgs) *Guards {
	t.Helper()
	g, err := NewGuards(&args)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// inClass returns a pod of a priority class.
func inClass(p *v1.Pod, class string) *v1.Pod {
	p.Spec.PriorityClassName = class
	return p
}

func TestGuards(t *testing.T) {
	everything := config.GPUPreemptArgs{
		MinimumRuntime: metav1.Duration{Duration: time.Hour},
		MinimumRuntimes: []config.ClassRuntime{
			{PriorityClassName: "batch", Runtime: &metav1.Duration{}},
			{PriorityClassName: "training", Runtime: &metav1.Duration{Duration: 2 * time.Hour}},
		},
		Protected: config.ProtectedPods{
			Namespaces:    []string{"kube-system"},
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tier": "gold"}},
		},
	}
	system, mirror := ran(3*time.Hour), pods.Annotated(ran(3*time.Hour), v1.MirrorPodAnnotationKey, "")
	system.Namespace = "kube-system"
	foreign := mirror.DeepCopy()
	foreign.Namespace = "kube-system"
	daemon := owned("apps/v1", "DaemonSet", "d")
	daemon.Status.StartTime = ran(3 * time.Hour).Status.StartTime
	for _, test := range []struct {
		name string
		pod  *v1.Pod
		// all is what the arguments above say, none what the least ones do.
		all, none preemption.Guard
	}{
		{"a pod that has run its time", ran(time.Hour), "", ""},
		{"a pod that has not", ran(time.Hour - 1), preemption.TooYoung, ""},
		{"of a class without a minimum", inClass(ran(0), "batch"), "", ""},
		{"of a class that nobody saw start", inClass(pods.New("3"), "batch"), "", ""},
		{"of a class with a longer one", inClass(ran(2*time.Hour-1), "training"), preemption.TooYoung, ""},
		{"of a class with a longer one, later", inClass(ran(2*time.Hour), "training"), "", ""},
		{"of another class", inClass(ran(time.Hour-1), "other"), preemption.TooYoung, ""},
		{"of which nobody saw the start", pods.New("3"), preemption.TooYoung, ""},
		{"that starts in the future, by this clock", ran(-time.Hour), preemption.TooYoung, ""},
		{"that got its node an hour ago", scheduled(time.Hour, v1.ConditionTrue), "", ""},
		{"of a protected namespace", system, preemption.Protected, ""},
		{"with a protected label", labelled(ran(3*time.Hour), "tier", "gold"), preemption.Protected, ""},
		{"with the label of another value", labelled(ran(3*time.Hour), "tier", "lead"), "", ""},
		{"protected and young", labelled(ran(0), "tier", "gold"), preemption.Protected, ""},
		{"a mirror pod", mirror, preemption.Foreign, preemption.Foreign},
		{"a mirror pod of a protected namespace", foreign, preemption.Foreign, preemption.Foreign},
		{"of a DaemonSet", daemon, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := guards(t, everything).Of(test.pod, noon); got != test.all {
				t.Errorf("%q, want %q", got, test.all)
			}
			if got := guards(t, config.GPUPreemptArgs{}).Of(test.pod, noon); got != test.none {
				t.Errorf("without arguments: %q, want %q", got, test.none)
			}
		})
	}
}

// A selector that selects by what is not there protects pods without labels too.
func TestGuardsBySelector(t *testing.T) {
	g := guards(t, config.GPUPreemptArgs{Protected: config.ProtectedPods{LabelSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "evictable", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"yes"}}},
	}}})
	for p, want := range map[*v1.Pod]preemption.Guard{
		pods.New("3"): preemption.Protected,
		labelled(pods.New("3"), "evictable", "no"):  preemption.Protected,
		labelled(pods.New("3"), "evictable", "yes"): "",
	} {
		if got := g.Of(p, noon); got != want {
			t.Errorf("labels %v: %q, want %q", p.Labels, got, want)
		}
	}
	_, err := NewGuards(&config.GPUPreemptArgs{Protected: config.ProtectedPods{LabelSelector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Is"}},
	}}})
	if err == nil {
		t.Error("a selector that is none makes guards")
	}
}

func TestLingers(t *testing.T) {
	for after, want := range map[time.Duration]bool{
		-math.MaxInt64: true, -10*time.Minute - 1: true, -10 * time.Minute: false, -time.Minute: false, 0: false,
		30 * time.Second: false, 30*time.Second + 1: true, time.Hour: true,
	} {
		p := pods.New("3")
		p.DeletionTimestamp = &metav1.Time{Time: noon.Add(-after)}
		if got := Lingers(p, noon); got != want {
			t.Errorf("%v after the end of its grace period: %v", after, got)
		}
	}
	if Lingers(ran(time.Hour), noon) {
		t.Error("a pod that nobody deletes lingers")
	}
}

func TestGracePeriod(t *testing.T) {
	const most = math.MaxInt64 / int64(time.Second)
	cut := guards(t, config.GPUPreemptArgs{MaximumGracePeriod: metav1.Duration{Duration: time.Minute}})
	free := guards(t, config.GPUPreemptArgs{})
	p := pods.New("3")
	for _, c := range []struct {
		seconds *int64
		want    time.Duration
		cut     bool
	}{
		{nil, 30 * time.Second, false}, {new(int64(0)), 0, false}, {new(int64(-5)), 0, false}, {new(int64(60)), time.Minute, false},
		{new(int64(61)), 61 * time.Second, true}, {new(most), time.Duration(most) * time.Second, true},
		{new(most + 1), math.MaxInt64, true}, {new(int64(math.MaxInt64)), math.MaxInt64, true},
	} {
		p.Spec.TerminationGracePeriodSeconds = c.seconds
		if got, short := free.GracePeriod(p); got != c.want || short {
			t.Errorf("%v: %v, cut %v, want %v", c.seconds, got, short, c.want)
		}
		if got, short := cut.GracePeriod(p); got != min(c.want, time.Minute) || short != c.cut {
			t.Errorf("%v, at most a minute: %v, cut %v", c.seconds, got, short)
		}
		if slow := free.TraitsOf(p, vgpu.Room{}).as.Slow; slow != (c.want > kube.LeavingWithin) {
			t.Errorf("%v: slow %v", c.seconds, slow)
		}
		if cut.TraitsOf(p, vgpu.Room{}).as.Slow {
			t.Errorf("%v, at most a minute: slow", c.seconds)
		}
	}
}

// A pod is too young until it is old enough.
func TestOldEnough(t *testing.T) {
	g := guards(t, config.GPUPreemptArgs{
		MinimumRuntime:  metav1.Duration{Duration: time.Hour},
		MinimumRuntimes: []config.ClassRuntime{{PriorityClassName: "training", Runtime: &metav1.Duration{Duration: 2 * time.Hour}}},
	})
	for p, want := range map[*v1.Pod]time.Time{
		ran(time.Minute):                          noon.Add(59 * time.Minute),
		inClass(ran(time.Minute), "training"):     noon.Add(119 * time.Minute),
		scheduled(3*time.Hour, v1.ConditionTrue):  noon.Add(-2 * time.Hour),
		scheduled(3*time.Hour, v1.ConditionFalse): {},
		inClass(pods.New("3"), "training"):        {},
		inClass(ran(-time.Hour), "another"):       noon.Add(2 * time.Hour),
	} {
		got := g.OldEnough(p)
		if !got.Equal(want) {
			t.Errorf("started %v, class %q: old enough at %v, want %v", p.Status.StartTime, p.Spec.PriorityClassName, got, want)
		}
		if !want.IsZero() && (g.Of(p, got.Add(-1)) != preemption.TooYoung || g.Of(p, got) != "") {
			t.Errorf("started %v, class %q: guards %q before and %q at %v", p.Status.StartTime, p.Spec.PriorityClassName, g.Of(p, got.Add(-1)), g.Of(p, got), got)
		}
	}
}
