package workloads

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/test/must"
)

// profileOf returns a WorkloadProfile ns/bert.
func profileOf(spec v1alpha1.WorkloadProfileSpec, learned ...v1alpha1.LearnedUse) *v1alpha1.WorkloadProfile {
	return &v1alpha1.WorkloadProfile{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "bert"}, Spec: spec,
		Status: v1alpha1.WorkloadProfileStatus{Learned: learned},
	}
}

func usesOf(list ...v1alpha1.DeclaredUse) v1alpha1.WorkloadProfileSpec {
	return v1alpha1.WorkloadProfileSpec{Uses: list}
}

// declared returns a declared use of SM and bandwidth in percent and memory.
func declared(model string, sm, bandwidth int32, memory string) v1alpha1.DeclaredUse {
	return v1alpha1.DeclaredUse{Model: model, SMUtilizationPercent: &sm, MemoryBandwidthPercent: &bandwidth, Memory: new(resource.MustParse(memory))}
}

// learned returns a learned use of SM and bandwidth in percent and memory, observed so often.
func learned(model string, observations int64, sm, bandwidth int32, memory string) v1alpha1.LearnedUse {
	return v1alpha1.LearnedUse{
		Model: model, SoloObservations: observations, SMUtilizationPercent: &sm, MemoryBandwidthPercent: &bandwidth,
		Memory: new(resource.MustParse(memory)),
	}
}

func TestOn(t *testing.T) {
	const gi = 1 << 30
	graph := &v1alpha1.ModelGraph{Parameters: 20_000_000, Activations: 50_000, BatchSize: 64, Depth: 8}
	predictor := interference.FittedPredictor()
	estimate, err := predictor.Predict(interference.Features{Parameters: 20_000_000, Activations: 50_000, Batch: 64, Depth: 8})
	if err != nil || estimate.Profile.Guessed {
		t.Fatalf("%+v, %v, want a network within the measured range", estimate, err)
	}
	graphed := estimate.Profile
	graphed.Declared = true
	full := declared("A100", 80, 40, "8Gi")
	full.PCIeUtilizationPercent, full.Step, full.Class = new(int32(5)), &metav1.Duration{Duration: 40 * time.Millisecond}, "training"
	both := Known{SM: true, Bandwidth: true, Memory: true}
	tests := []struct {
		name    string
		profile *v1alpha1.WorkloadProfile
		want    interference.Profile
		known   Known
	}{
		{"nothing is known", profileOf(usesOf()), interference.Unknown(), Known{}},
		{
			"declared", profileOf(usesOf(declared("*", 1, 1, "1Gi"), full)),
			interference.Profile{SM: .8, Bandwidth: .4, PCIe: .05, Memory: 8 * gi, Step: .04, Class: interference.ClassTraining, Declared: true},
			Known{SM: true, Bandwidth: true, PCIe: true, Memory: true, Step: true, Class: true},
		},
		{"declared for any model", profileOf(usesOf(declared("T4", 1, 1, "1Gi"), declared("*", 80, 40, "8Gi"))), interference.Profile{SM: .8, Bandwidth: .4, Memory: 8 * gi, Declared: true}, both},
		{
			"an entry of the model hides that of any, field by field missing or not",
			profileOf(usesOf(v1alpha1.DeclaredUse{Model: "A100", Memory: new(resource.MustParse("8Gi"))}, declared("*", 80, 40, "9Gi"))),
			interference.Profile{SM: 1, Bandwidth: .5, Memory: 8 * gi, Guessed: true}, Known{Memory: true},
		},
		{"class unknown is nothing known", profileOf(usesOf(v1alpha1.DeclaredUse{Model: "*", Class: "unknown"})), interference.Unknown(), Known{}},
		{"learned", profileOf(usesOf(), learned("A100", 1, 80, 40, "8Gi")), interference.Profile{SM: .8, Bandwidth: .4, Memory: 8 * gi}, both},
		{
			"learned on other models: the one seen most often, a guess",
			profileOf(usesOf(), learned("T4", 3, 80, 40, "8Gi"), learned("V100", 2, 1, 1, "1Gi"), learned("K80", 3, 70, 30, "7Gi")),
			interference.Profile{SM: .7, Bandwidth: .3, Memory: 7 * gi, Guessed: true}, Known{},
		},
		{
			"learned elsewhere comes before the graph",
			profileOf(v1alpha1.WorkloadProfileSpec{Graph: graph}, learned("T4", 3, 80, 40, "8Gi")),
			interference.Profile{SM: .8, Bandwidth: .4, Memory: 8 * gi, Class: estimate.Profile.Class, Guessed: true, Declared: true}, Known{},
		},
		{
			"half learned, half from a graph within the measured range",
			profileOf(v1alpha1.WorkloadProfileSpec{Graph: graph}, v1alpha1.LearnedUse{Model: "A100", SMUtilizationPercent: new(int32(80)), SoloObservations: 3}),
			interference.Profile{SM: .8, Bandwidth: estimate.Profile.Bandwidth, Memory: estimate.Profile.Memory, Class: estimate.Profile.Class, Declared: true}, Known{SM: true},
		},
		{"from the graph", profileOf(v1alpha1.WorkloadProfileSpec{Graph: graph}), graphed, Known{}},
		{
			"the larger memory counts", profileOf(usesOf(declared("A100", 80, 40, "8Gi")), learned("A100", 1, 80, 40, "9Gi")),
			interference.Profile{SM: .8, Bandwidth: .4, Memory: 9 * gi, Declared: true}, both,
		},
		{
			"the larger memory counts, also the declared one", profileOf(usesOf(declared("A100", 80, 40, "8Gi")), learned("A100", 100, 80, 40, "7Gi")),
			interference.Profile{SM: .8, Bandwidth: .4, Memory: 8 * gi}, both,
		},
		{
			"nine observations do not overrule", profileOf(usesOf(declared("A100", 100, 100, "8Gi")), learned("A100", 9, 0, 0, "8Gi")),
			interference.Profile{SM: 1, Bandwidth: 1, Memory: 8 * gi, Declared: true}, both,
		},
		{
			"nor do 25 percent", profileOf(usesOf(declared("A100", 30, 70, "8Gi")), learned("A100", 100, 55, 45, "8Gi")),
			interference.Profile{SM: .3, Bandwidth: .7, Memory: 8 * gi}, both,
		},
		{
			"ten observations of 26 do", profileOf(usesOf(declared("*", 30, 70, "8Gi")), learned("A100", 10, 56, 44, "8Gi")),
			interference.Profile{SM: .56, Bandwidth: .44, Memory: 8 * gi}, both,
		},
		{
			"a step from the latency on the whole device",
			profileOf(v1alpha1.WorkloadProfileSpec{Throughputs: []v1alpha1.ProfileThroughput{latencyPoint("A100", 50, "80ms"), latencyPoint("A100", 100, "40ms")}}),
			interference.Profile{SM: 1, Bandwidth: .5, Step: .04, Guessed: true}, Known{Step: true},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			w := ReadProfile(test.profile)
			got := w.On("A100")
			if diff := cmp.Diff(test.want, got.Profile); diff != "" {
				t.Errorf("profile (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.known, got.Known); diff != "" {
				t.Errorf("known (-want +got):\n%s", diff)
			}
			if len(w.Malformed) > 0 || got.Model != "A100" || (got.Learned != nil) != (w.learnedOn("A100") != nil) {
				t.Errorf("malformed %v, model %s, learned %v", w.Malformed, got.Model, got.Learned)
			}
		})
	}
}

func TestWith(t *testing.T) {
	before := ReadProfile(profileOf(usesOf(), learned("A100", 1, 80, 40, "8Gi")))
	after := before.With([]Learned{{Model: "A100", Known: Known{SM: true}, SM: .3}})
	if got := after.On("A100").Profile.SM; got != .3 {
		t.Errorf("SM is %v, want what was learned since", got)
	}
	if got := before.On("A100").Profile.SM; got != .8 {
		t.Errorf("the workload before has SM %v, it must not change", got)
	}
}

func TestCondition(t *testing.T) {
	spec := usesOf(declared("A100", 20, 90, "4Gi"))
	tests := []struct {
		name    string
		profile *v1alpha1.WorkloadProfile
		want    metav1.Condition
	}{
		{"nothing learned", profileOf(spec), metav1.Condition{
			Status: metav1.ConditionTrue, Reason: "Agrees", Message: "nothing learned contradicts what is declared",
		}},
		{"not sure yet", profileOf(spec, learned("A100", 9, 80, 5, "4Gi")), metav1.Condition{
			Status: metav1.ConditionTrue, Reason: "Agrees", Message: "nothing learned contradicts what is declared",
		}},
		{"contradictions", profileOf(spec, learned("A100", 14, 80, 5, "6Gi")), metav1.Condition{
			Status: metav1.ConditionFalse, Reason: "Contradicts",
			Message: "smUtilizationPercent on A100: declared 20, learned 80; the learned one, of 14 observations, counts; " +
				"memoryBandwidthPercent on A100: declared 90, learned 5; the learned one, of 14 observations, counts; " +
				"memory on A100: declared 4Gi, learned 6Gi; the larger one counts",
		}},
		{"malformed beside contradictions", profileOf(usesOf(declared("A100", 20, 101, "4Gi")), learned("A100", 14, 80, 5, "4Gi")), metav1.Condition{
			Status: metav1.ConditionFalse, Reason: "Malformed",
			Message: `spec.uses[0].memoryBandwidthPercent: "101" is not legal, it must be from 0 to 100; ` +
				"smUtilizationPercent on A100: declared 20, learned 80; the learned one, of 14 observations, counts",
		}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.want.Type, test.want.ObservedGeneration = "Consistent", 7
			if diff := cmp.Diff(test.want, ReadProfile(test.profile).Condition(7)); diff != "" {
				t.Errorf("condition (-want +got):\n%s", diff)
			}
		})
	}
	var many []v1alpha1.DeclaredUse
	for range 100 {
		many = append(many, declared("*", 101, 101, "1Gi"))
	}
	if got := ReadProfile(profileOf(usesOf(many...))).Condition(1).Message; len(got) > maxMessage+32 || !strings.Contains(got, "; and ") {
		t.Errorf("a message of %d letters: %s", len(got), got)
	}
}

// An entry that the schema should have kept out is passed over, named, and does not keep the rest from counting.
func TestReadProfilePassesOver(t *testing.T) {
	use := func(f func(*v1alpha1.DeclaredUse)) *v1alpha1.WorkloadProfile {
		d := declared("*", 80, 40, "8Gi")
		f(&d)
		return profileOf(usesOf(d))
	}
	was := func(f func(*v1alpha1.LearnedUse)) *v1alpha1.WorkloadProfile {
		l := learned("A100", 1, 80, 40, "8Gi")
		f(&l)
		return profileOf(usesOf(), l)
	}
	graph := func(g v1alpha1.ModelGraph) *v1alpha1.WorkloadProfile {
		return profileOf(v1alpha1.WorkloadProfileSpec{Uses: []v1alpha1.DeclaredUse{declared("*", 80, 40, "8Gi")}, Graph: &g})
	}
	tests := map[string]*v1alpha1.WorkloadProfile{
		`spec.uses[0].smUtilizationPercent: "101" is not legal, it must be from 0 to 100`:         use(func(d *v1alpha1.DeclaredUse) { d.SMUtilizationPercent = new(int32(101)) }),
		`spec.uses[0].memoryBandwidthPercent: "-1" is not legal, it must be from 0 to 100`:        use(func(d *v1alpha1.DeclaredUse) { d.MemoryBandwidthPercent = new(int32(-1)) }),
		`spec.uses[0].pcieUtilizationPercent: "-1" is not legal, it must be from 0 to 100`:        use(func(d *v1alpha1.DeclaredUse) { d.PCIeUtilizationPercent = new(int32(-1)) }),
		`spec.uses[0].memory: "0" is not legal, it must be a whole number of bytes from 1 to 1Pi`: use(func(d *v1alpha1.DeclaredUse) { d.Memory = new(resource.MustParse("0")) }),
		`spec.uses[0].memory: "2Pi" is not legal`:                                                 use(func(d *v1alpha1.DeclaredUse) { d.Memory = new(resource.MustParse("2Pi")) }),
		`spec.uses[0].memory: "1e999999999" is not legal`:                                         use(func(d *v1alpha1.DeclaredUse) { d.Memory = new(resource.MustParse("1e999999999")) }),
		`spec.uses[0].memory: "500m" is not legal`:                                                use(func(d *v1alpha1.DeclaredUse) { d.Memory = new(resource.MustParse("500m")) }),
		`spec.uses[0].step: "0s" is not legal, it must be from 1us to 1h`:                         use(func(d *v1alpha1.DeclaredUse) { d.Step = &metav1.Duration{} }),
		`spec.uses[0].step: "1h0m0.000000001s" is not legal`:                                      use(func(d *v1alpha1.DeclaredUse) { d.Step = &metav1.Duration{Duration: time.Hour + 1} }),
		`spec.uses[0].class: "mining" is not legal, it must be one of unknown, light,`:            use(func(d *v1alpha1.DeclaredUse) { d.Class = "mining" }),
		`spec.uses[0].model: "" is not legal`:                                                     use(func(d *v1alpha1.DeclaredUse) { d.Model = "" }),
		`spec.uses[1].model: "*" is not legal, it must be the name of a model that no other`:      profileOf(usesOf(declared("*", 80, 40, "8Gi"), declared("*", 1, 1, "1Gi"))),
		`status.learned[0].smUtilizationPercent: "300" is not legal`:                              was(func(l *v1alpha1.LearnedUse) { l.SMUtilizationPercent = new(int32(300)) }),
		`status.learned[0].memory: "-1" is not legal, it must be a whole number of bytes from 0`:  was(func(l *v1alpha1.LearnedUse) { l.Memory = new(resource.MustParse("-1")) }),
		`status.learned[0].soloObservations: "-1" is not legal, it must be 0 or more`:             was(func(l *v1alpha1.LearnedUse) { l.SoloObservations = -1 }),
		`status.learned[0].coRuns: "-2" is not legal, it must be 0 or more`:                       was(func(l *v1alpha1.LearnedUse) { l.CoRuns = -2 }),
		`status.learned[0].neighbours: "-3" is not legal, it must be 0 or more`:                   was(func(l *v1alpha1.LearnedUse) { l.Neighbours = -3 }),
		`status.learned[0].sensitivityMilli: "4001" is not legal, it must be from -4000 to 4000`:  was(func(l *v1alpha1.LearnedUse) { l.SensitivityMilli = 4001 }),
		`status.learned[0].pressureMilli: "-4001" is not legal, it must be from -4000 to 4000`:    was(func(l *v1alpha1.LearnedUse) { l.PressureMilli = -4001 }),
		`status.learned[0].sureOffsetMilli: "1001" is not legal, it must be from 0 to 1000`:       was(func(l *v1alpha1.LearnedUse) { l.SureOffsetMilli = 1001 }),
		`status.learned[0].soloRate: "-1" is not legal, it must be a decimal from 0 to 1T`:        was(func(l *v1alpha1.LearnedUse) { l.SoloRate = new(resource.MustParse("-1")) }),
		`status.learned[0].soloSharePercent: "101" is not legal, it must be from 0 to 100`: was(func(l *v1alpha1.LearnedUse) {
			l.SoloRate, l.SoloSharePercent = new(resource.MustParse("1")), new(int32(101))
		}),
		`status.learned[0].model: "" is not legal`:                        was(func(l *v1alpha1.LearnedUse) { l.Model = "" }),
		`status.learned[1].model: "A100" is not legal`:                    profileOf(usesOf(), learned("A100", 1, 80, 40, "8Gi"), learned("A100", 1, 1, 1, "1Gi")),
		`spec.graph: validate features: Depth is 0, legal is 1 to 100000`: graph(v1alpha1.ModelGraph{Parameters: 1, Activations: 1, BatchSize: 1}),
	}
	for want, p := range tests {
		w := ReadProfile(p)
		if len(w.Malformed) != 1 || !strings.HasPrefix(w.Malformed[0], want) {
			t.Errorf("malformed %q, want %q", w.Malformed, want)
		}
		got := w.On("A100").Profile
		if err := got.Validate(); err != nil {
			t.Errorf("%s: %v", want, err)
		}
		kept := 0
		for _, ok := range []bool{got.SM == .8, got.Bandwidth == .4, got.Memory == 8<<30} {
			if ok {
				kept++
			}
		}
		if whole := strings.Contains(want, `.model: ""`); !whole && kept < 2 {
			t.Errorf("%s: the rest does not count: %+v", want, got)
		}
	}
}

func FuzzReadProfile(f *testing.F) {
	f.Add(int32(80), int32(40), int64(8<<30), int64(10), int32(20), int32(-7), int64(40_000_000), "training", int64(1e6))
	f.Add(int32(-1), int32(math.MaxInt32), int64(math.MinInt64), int64(-1), int32(math.MinInt32), int32(math.MaxInt32), int64(math.MinInt64), "", int64(0))
	f.Fuzz(func(t *testing.T, sm, bandwidth int32, memory, observations int64, seen, milli int32, step int64, class string, parameters int64) {
		spec := usesOf(v1alpha1.DeclaredUse{
			Model: "*", SMUtilizationPercent: &sm, MemoryBandwidthPercent: &bandwidth, Memory: resource.NewQuantity(memory, resource.BinarySI),
			Step: &metav1.Duration{Duration: time.Duration(step)}, Class: v1alpha1.WorkClass(class),
		})
		spec.Graph = &v1alpha1.ModelGraph{Parameters: parameters, Activations: memory, BatchSize: seen, Depth: bandwidth, MegaFLOPs: step}
		w := ReadProfile(profileOf(spec, v1alpha1.LearnedUse{
			Model: "A100", SMUtilizationPercent: &seen, Memory: resource.NewQuantity(memory/2, resource.BinarySI), SoloObservations: observations,
			SensitivityMilli: milli, PressureMilli: seen, SureOffsetMilli: milli, CoRuns: step, Neighbours: milli,
		}))
		for _, model := range []string{"A100", "T4", ""} {
			u := w.On(model)
			must.OK(t, u.Profile.Validate())
			if u.Known.SM && u.Known.Bandwidth && u.Profile.Guessed {
				t.Fatalf("%+v is a guess", u)
			}
		}
		book := interference.NewBook(interference.Model{}, 1)
		must.OK(t, book.Restore(1, 1, w.Learned()[0].Traits))
		if c := w.Condition(1); (c.Status == metav1.ConditionTrue) != (len(w.Malformed)+len(w.Contradictions) == 0) || len(c.Message) > maxMessage+64 {
			t.Fatalf("%+v", c)
		}
	})
}
