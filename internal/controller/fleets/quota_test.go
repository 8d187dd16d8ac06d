package fleets

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// refuse is what a ResourceQuota with the given number of pods says of another one.
const refuse = `pods "bert-a100-5d8b-x7x2p" is forbidden: exceeded quota: replicas, requested: requests.tandem-gpu.io/vgpu=10, used: requests.tandem-gpu.io/vgpu=20, limited: requests.tandem-gpu.io/vgpu=20`

// A ResourceQuota lets a100 have two pods, and three are needed: after a minute the fleet plans with two, t4 takes the rest, and the condition names the
// quota. The Deployment keeps its number, so nothing is written again and again. Once the quota is raised, Kubernetes makes the third pod.
func TestQuotaRefusesReplicas(t *testing.T) {
	w := newWorld(t)
	w.quota["bert-a100"] = 2
	w.arrive("120")
	if got := w.settle(15 * time.Second); !slices.Contains(got, "scale bert-a100 1→3") {
		t.Fatalf("the first pass writes %q", got)
	}
	for range 4 { // the pod that an evicted one is replaced by is refused for as long
		if got := w.settle(15 * time.Second); w.replicas["bert-t4"] > 0 {
			t.Fatalf("%v after the refusal the fleet writes %q", w.at, got)
		}
	}
	if got := w.condition(v1alpha1.ConditionScaled); got != "False Loading" {
		t.Error(got)
	}
	w.settle(15 * time.Second)
	if w.replicas["bert-a100"] != 3 || w.replicas["bert-t4"] < 8 {
		t.Fatalf("after a minute the Deployments ask for %v", w.replicas)
	}
	const want = "variant a100: ResourceQuota replicas refuses pods of Deployment bert-a100 beyond 2 (requested: requests.tandem-gpu.io/vgpu=10, " +
		"used: requests.tandem-gpu.io/vgpu=20, limited: requests.tandem-gpu.io/vgpu=20): raise it, or lower maxReplicas"
	if got, text := w.condition(v1alpha1.ConditionScaled), w.message(v1alpha1.ConditionScaled); got != "False QuotaExceeded" || text != want {
		t.Errorf("%s: %s", got, text)
	}
	if got := w.condition(v1alpha1.ConditionFleetReady); got != "True Controlled" {
		t.Error(got)
	}
	if s := w.fleet("bert").Status.Variants[0]; s.Replicas != 2 || len(s.Later) > 0 { // elastic jobs keep GPUs for what stands here
		t.Errorf("%+v", s)
	}
	w.settle(10 * time.Minute)
	if got := w.settle(6 * time.Hour); len(got) > 2 || slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "scale bert-a100") }) {
		t.Errorf("in six hours the fleet writes %q", got)
	}

	w.arrive("30")
	w.settle(time.Hour)
	if w.replicas["bert-a100"] > 1 {
		t.Errorf("fewer requests arrive, and the Deployments ask for %v", w.replicas)
	}
	w.arrive("120")
	w.settle(10 * time.Minute)
	delete(w.quota, "bert-a100")
	w.settle(30 * time.Minute)
	if got := w.condition(v1alpha1.ConditionScaled); got != "True Scaled" || w.replicas["bert-a100"] != 3 || w.replicas["bert-t4"] > 2 {
		t.Errorf("with a higher quota: %s, %v", got, w.replicas)
	}
}

// A quota of nothing leaves a variant without replicas, below its minReplicas, and a fleet whose variants all have their most says which quota helps.
// Neither that nor a number that a user has pinned is written anew.
func TestQuotaBelowTheLeast(t *testing.T) {
	for _, pinned := range []bool{false, true} {
		w := newWorld(t)
		w.quota["bert-a100"], w.quota["bert-t4"] = 0, 4
		if pinned {
			f := w.fleet("bert")
			f.Annotations = map[string]string{v1alpha1.AnnotationSize: "a100=3,t4=6"}
			must.OK(t, w.objects.Update(t.Context(), f))
		}
		w.setReady("bert-a100", 0)
		w.arrive("120")
		w.settle(5 * time.Minute)
		s := w.fleet("bert").Status
		if s.Variants[0].Replicas != 0 || s.Variants[1].Replicas != 4 {
			t.Errorf("pinned %v: %+v", pinned, s.Variants)
		}
		if !pinned && (s.Reason != "AtMost" || !strings.Contains(s.Message, "ResourceQuota replicas refuses pods of Deployment bert-a100 beyond 0 (")) {
			t.Errorf("%s: %s", s.Reason, s.Message)
		}
		if pinned && (w.replicas["bert-a100"] != 3 || w.replicas["bert-t4"] != 6) {
			t.Errorf("the user wants 3 and 6, the Deployments ask for %v", w.replicas)
		}
		if got := w.settle(time.Hour); len(got) > 0 {
			t.Errorf("pinned %v: %q", pinned, got)
		}
	}
}

// A Deployment whose status is about an earlier number bounds nothing.
func TestQuotaOfAnotherNumber(t *testing.T) {
	w := newWorld(t)
	w.quota["bert-a100"], w.stale = 2, true
	w.arrive("120")
	w.settle(5 * time.Minute)
	if got := w.condition(v1alpha1.ConditionScaled); got == "False QuotaExceeded" || w.replicas["bert-t4"] > 0 {
		t.Errorf("%s, %v", got, w.replicas)
	}
}

func TestExceeded(t *testing.T) {
	for message, want := range map[string]string{
		refuse: "replicas|requested: requests.tandem-gpu.io/vgpu=10, used: requests.tandem-gpu.io/vgpu=20, limited: requests.tandem-gpu.io/vgpu=20|true",
		`pods "x" is forbidden: failed quota: memory: must specify limits.memory`: "||false",
		`pods "x" is forbidden: violates PodSecurity "baseline:latest"`:           "||false",
		`pods "x" is forbidden: exceeded quota: a`:                                "a||true",
		"exceeded quota: a":                          "||false",
		"pods is forbidden: exceeded quota: a\nb, c": "||false",
		"": "||false",
	} {
		quota, amounts, is := exceeded(message)
		got := "||false"
		if is {
			got = quota + "|" + amounts + "|true"
		}
		if got != want {
			t.Errorf("%q is %s", message, got)
		}
	}
}
