package fleets

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// ownReplicas are the replicas that the variants of a fleet declare themselves.
func ownReplicas(f *v1alpha1.InferenceFleet) []description {
	all := make([]description, len(f.Spec.Variants))
	for i := range all {
		all[i].FleetReplica = f.Spec.Variants[i].Replica
	}
	return all
}

// bertProfile says of half an A100 what bert declares of its variant a100.
const bertProfile = `
metadata: {name: bert-large, namespace: ns}
spec:
  serving:
  - model: A100
    sharePercent: 50
    replica: {rate: "50", time: 20ms}
  - model: A100
    sharePercent: 14
    replica: {rate: "10", time: 100ms}
`

// aNode has devices of a model, with so many slots.
func aNode(name, model string, slots int32) *v1alpha1.GPUNode {
	return &v1alpha1.GPUNode{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.GPUNodeStatus{Devices: []v1alpha1.GPUDevice{{Model: model, Slots: slots}}}}
}

// describedByProfile has a100 take its replica from a profile.
func describedByProfile(s *v1alpha1.InferenceFleetSpec) {
	v := &s.Variants[0]
	v.Replica, v.Profile, v.GPUModel, v.Slots = nil, "bert-large", "A100", 5
}

// newProfiled is a world whose variant a100 goes by a profile that is there, on a device that is there.
func newProfiled(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	must.OK(t, w.objects.Create(t.Context(), read[v1alpha1.WorkloadProfile](t, bertProfile)))
	must.OK(t, w.objects.Create(t.Context(), aNode("n1", "A100", 10)))
	w.change(describedByProfile)
	return w
}

// replaceProfile puts another profile in the place of that of bert.
func (w *world) replaceProfile(text string) {
	w.Helper()
	must.OK(w.T, w.objects.Delete(w.Context(), read[v1alpha1.WorkloadProfile](w, bertProfile)))
	must.OK(w.T, w.objects.Create(w.Context(), read[v1alpha1.WorkloadProfile](w, text)))
}

// A fleet by a profile has the sizes of one that declares the same, and follows a change of the profile.
func TestReplicaOfAProfile(t *testing.T) {
	w := newProfiled(t)
	w.arrive("60")
	declares := newWorld(t)
	declares.arrive("60")
	want := declares.pass()
	if len(want) == 0 {
		t.Fatal("the fleet that declares its replicas does not grow")
	}
	wantWrites(t, "by the profile", w.pass(), want...)
	if got, want := w.fleet("bert").Status.Variants[0].Capacity, declares.fleet("bert").Status.Variants[0].Capacity; got != want {
		t.Errorf("a replica by the profile serves %s requests a second, want %s", got, want)
	}

	w.replaceProfile(strings.Replace(bertProfile, `rate: "50"`, `rate: "25"`, 1))
	w.settle(2 * numbersEvery)
	if got := w.fleet("bert").Status.Variants[0].Capacity; got == declares.fleet("bert").Status.Variants[0].Capacity {
		t.Errorf("after the profile has changed a replica still serves %s requests a second", got)
	}
}

// Without the name of a profile, the label of the pods counts.
func TestProfileOfThePods(t *testing.T) {
	w := newProfiled(t)
	w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Variants[0].Profile = "" })
	w.arrive("20")
	w.podLabels = map[string]string{"app": "bert", v1alpha1.LabelProfile: "bert-large"}
	w.pass()
	if got := w.condition(v1alpha1.ConditionFleetReady); got != "True Controlled" {
		t.Errorf("Ready: %s, %s", got, w.message(v1alpha1.ConditionFleetReady))
	}
}

// A missing part of a profile leaves the fleet as it is, and the message says what helps.
func TestProfilesThatSayTooLittle(t *testing.T) {
	for _, test := range []struct {
		name      string
		change    func(w *world)
		want, say string
	}{
		{"no such profile", func(w *world) { w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Variants[0].Profile = "bart" }) },
			"ProfileMissing", "variant a100: WorkloadProfile bart does not exist: create it, correct profile, or declare replica"},
		{"another model", func(w *world) {
			must.OK(w.T, w.objects.Create(w.Context(), aNode("n2", "H100", 10)))
			w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Variants[0].GPUModel = "H100" })
		}, "ProfileIncomplete", "variant a100: WorkloadProfile bert-large does not say how a replica serves on H100 at 50 percent, which 5 slots of 10 are. It has A100 at 50 percent, A100 at 14 percent: add"},
		{"another share", func(w *world) { w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Variants[0].Slots = 20 }) },
			"ProfileIncomplete", "on A100 at 200 percent, which 20 slots of 10 are."},
		{"a model that no node has", func(w *world) { w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Variants[0].GPUModel = "V100" }) },
			"ModelUnknown", "variant a100: no GPUNode has a device of the model V100, so that it is unknown which share of it 5 slots are: correct gpuModel"},
		{"a profile of another namespace", func(w *world) {
			w.replaceProfile(strings.Replace(bertProfile, "namespace: ns", "namespace: other", 1))
		}, "ProfileMissing", "variant a100: WorkloadProfile bert-large does not exist"},
		{"a profile without serving", func(w *world) {
			w.replaceProfile("metadata: {name: bert-large, namespace: ns}")
		}, "ProfileIncomplete", "It has no spec.serving: add"},
		{"a promise that the profile does not cover", func(w *world) {
			w.change(func(s *v1alpha1.InferenceFleetSpec) {
				s.Variants[0].Replica = &v1alpha1.FleetReplica{}
				llm(s)
				describedByProfile(s)
			})
		},
			"Invalid", `variant "a100": WorkloadProfile bert-large, A100 at 50 percent: replica.firstToken is missing: the promise is of FirstToken`},
		{"pods without a label", func(w *world) { w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Variants[0].Profile = "" }) },
			"ProfileUnnamed", "variant a100: it has neither replica nor profile, and the pod template of Deployment bert-a100 has no label tandem-gpu.io/profile: add one of the three"},
		{"pods that the controller may not see", func(w *world) {
			w.change(func(s *v1alpha1.InferenceFleetSpec) { s.Variants[0].Profile = "" })
			w.scaleErr["bert-a100"] = apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments"}, "bert-a100", nil)
		}, "NotAllowed", "variant a100: the controller may not get deployments, whose pods name the profile: bind a ClusterRole"},
		{"a Deployment that is not there", func(w *world) {
			w.change(func(s *v1alpha1.InferenceFleetSpec) {
				s.Variants[0].Profile = ""
				s.Variants[0].ScaleTargetRef.Name = "bart"
			})
		}, "ScaleTargetMissing", "variant a100: Deployment bart does not exist: create it, or correct scaleTargetRef"},
		{"a kind that is not there", func(w *world) {
			w.change(func(s *v1alpha1.InferenceFleetSpec) {
				s.Variants[0].Profile = ""
				s.Variants[0].ScaleTargetRef.Kind = "Rollout"
			})
		}, "UnknownKind", "variant a100: the API server does not serve Rollout of apps/v1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			w := newProfiled(t)
			w.T = t
			test.change(w)
			w.arrive("60")
			wantWrites(t, "a fleet whose profile says too little", w.pass())
			if got := w.condition(v1alpha1.ConditionFleetReady); got != "False "+test.want {
				t.Errorf("Ready: %s", got)
			}
			if got := w.message(v1alpha1.ConditionFleetReady); !strings.Contains(got, test.say) {
				t.Errorf("message: %s", got)
			}
			if got := w.condition(v1alpha1.ConditionScaled); got != "Unknown "+test.want {
				t.Errorf("Scaled: %s", got)
			}
		})
	}
}

// A node that leaves takes the number of slots of its devices along; the fleet is sized as before.
func TestSlotsOfAModelWhoseNodesLeave(t *testing.T) {
	w := newProfiled(t)
	w.arrive("20")
	w.pass()
	must.OK(t, w.objects.Delete(t.Context(), aNode("n1", "A100", 10)))
	w.pass()
	if got := w.condition(v1alpha1.ConditionFleetReady); got != "True Controlled" {
		t.Errorf("without the node: %s, %s", got, w.message(v1alpha1.ConditionFleetReady))
	}
	// 5 slots of 35 are 14.3 percent.
	must.OK(t, w.objects.Create(t.Context(), aNode("n1", "A100", 35)))
	must.OK(t, w.objects.Create(t.Context(), aNode("n2", "A100", 7)))
	w.settle(2 * numbersEvery)
	if got := w.fleet("bert").Status.Variants[0].Capacity; got != w.fleet("bert").Status.Variants[1].Capacity {
		t.Errorf("at 14 percent a replica serves %s requests a second, want as one of t4: %s", got, w.fleet("bert").Status.Variants[1].Capacity)
	}
}

func TestPercent(t *testing.T) {
	for _, test := range []struct{ slots, of, want int32 }{
		{5, 10, 50}, {10, 10, 100}, {80, 10, 800}, {1, 7, 14}, {2, 7, 29}, {1, 1000, 1}, {1, 200, 1}, {100000, 1, 10_000_000},
	} {
		if got := percent(test.slots, test.of); got != test.want {
			t.Errorf("%d slots of %d are %d percent, want %d", test.slots, test.of, got, test.want)
		}
	}
}

// A message lists some shares and counts the others.
func TestListed(t *testing.T) {
	all := make([]v1alpha1.ProfileServing, mostListed+2)
	for i := range all {
		all[i] = v1alpha1.ProfileServing{Model: "T4", SharePercent: int32(i + 1)}
	}
	if got := listed(all); !strings.HasSuffix(got, "T4 at 6 percent, and 2 more") {
		t.Error(got)
	}
	if got := listed(all[:mostListed]); !strings.HasSuffix(got, "T4 at 5 percent, T4 at 6 percent") {
		t.Error(got)
	}
}
