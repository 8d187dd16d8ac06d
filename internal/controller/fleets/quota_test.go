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

// A ResourceQuota lets a100 have two pods, and three are needed: the fleet goes on with two, t4 takes the rest, and the status and one event name the quota.
// Each five minutes the fleet tries again, and gives the replicas of the status no GPUs meanwhile. Once the quota is raised, the next try has its pods.
func TestQuotaRefusesReplicas(t *testing.T) {
	w := newWorld(t)
	w.quota["bert-a100"] = 2
	w.arrive("120")
	if got := w.settle(15 * time.Second); !slices.Contains(got, "scale bert-a100 1→3") {
		t.Fatalf("the first pass writes %q", got)
	}
	w.events()
	if got := w.settle(15 * time.Second); !slices.Contains(got, "scale bert-a100 3→2") || w.replicas["bert-t4"] < 8 {
		t.Fatalf("the quota refuses the third pod, and the next pass writes %q", got)
	}
	refused := w.at.Add(-15 * time.Second)
	const want = "variant a100: ResourceQuota replicas refuses pods of Deployment bert-a100 beyond 2 (requested: requests.tandem-gpu.io/vgpu=10, " +
		"used: requests.tandem-gpu.io/vgpu=20, limited: requests.tandem-gpu.io/vgpu=20): raise it, or lower maxReplicas; the controller asks for more at 12:05 UTC"
	if got, text := w.condition(v1alpha1.ConditionScaled), w.message(v1alpha1.ConditionScaled); got != "False QuotaExceeded" || text != want {
		t.Errorf("%s: %s", got, text)
	}
	if got := w.condition(v1alpha1.ConditionFleetReady); got != "True Controlled" {
		t.Error(got)
	}
	if told := w.events(); !slices.ContainsFunc(told, func(e string) bool {
		return strings.HasPrefix(e, "Warning QuotaExceeded takes a100 back from 3 to 2 replicas: ResourceQuota replicas refuses")
	}) {
		t.Errorf("%q", told)
	}
	s := w.fleet("bert").Status.Variants
	if s[0].Replicas != 2 || s[0].RefusedUntil == nil || !s[0].RefusedUntil.Time.Equal(refused.Add(quotaPause)) || s[1].RefusedUntil != nil {
		t.Errorf("%+v", s)
	}

	tries := 0
	for range 4 * 60 {
		got := w.settle(15 * time.Second)
		for _, write := range got {
			if strings.HasPrefix(write, "scale bert-a100 2→") {
				tries++
			}
		}
		if s := w.fleet("bert").Status.Variants[0]; s.RefusedUntil == nil || w.replicas["bert-t4"] < 6 {
			t.Fatalf("%v: %+v, writes %q", w.at, s, got)
		}
	}
	if tries < 6 || tries > 12 {
		t.Errorf("in an hour the fleet tried %d times", tries)
	}

	delete(w.quota, "bert-a100")
	w.settle(quotaPause + time.Minute)
	if s := w.fleet("bert").Status.Variants[0]; w.replicas["bert-a100"] != 3 || s.RefusedUntil != nil {
		t.Errorf("with a higher quota a100 has %d replicas: %+v", w.replicas["bert-a100"], s)
	}
	w.settle(10 * time.Minute)
	if got := w.condition(v1alpha1.ConditionScaled); got != "True Scaled" || w.replicas["bert-t4"] > 2 {
		t.Errorf("%s, %v", got, w.replicas)
	}
}

// A quota of nothing leaves a variant without replicas, below its minReplicas, and a fleet whose variants all have their most says which quota helps. What a user
// scales while the quota has room stays.
func TestQuotaBelowTheLeast(t *testing.T) {
	w := newWorld(t)
	w.quota["bert-a100"], w.quota["bert-t4"] = 0, 4
	w.setReady("bert-a100", 0)
	w.arrive("120")
	w.settle(time.Minute)
	if w.replicas["bert-a100"] != 0 || w.replicas["bert-t4"] != 4 {
		t.Errorf("%v", w.replicas)
	}
	if s := w.fleet("bert").Status; s.Reason != "AtMost" || !strings.Contains(s.Message, "ResourceQuota replicas refuses pods of Deployment bert-a100 beyond 0 (") {
		t.Errorf("%s: %s", s.Reason, s.Message)
	}
	delete(w.quota, "bert-a100")
	w.replicas["bert-a100"] = 5
	wantWrites(t, "a user scales it up", w.settle(15*time.Second))
}

// Another generation of the fleet, and a Deployment whose status is about an earlier number, bound nothing.
func TestQuotaOfAnotherNumber(t *testing.T) {
	w := newWorld(t)
	w.quota["bert-a100"] = 2
	w.arrive("120")
	w.settle(30 * time.Second)
	f := w.fleet("bert")
	f.Generation++
	must.OK(t, w.objects.Update(t.Context(), f))
	w.pass()
	if s := w.fleet("bert").Status.Variants[0]; s.RefusedUntil != nil {
		t.Errorf("after a change of the fleet: %+v", s)
	}
	w.stale = true
	w.replicas["bert-a100"] = 3
	w.settle(15 * time.Second)
	if s := w.fleet("bert").Status.Variants[0]; s.RefusedUntil != nil {
		t.Errorf("the status is about an earlier number: %+v", s)
	}
}

func TestExceeded(t *testing.T) {
	for message, want := range map[string]string{
		refuse: "replicas|requested: requests.tandem-gpu.io/vgpu=10, used: requests.tandem-gpu.io/vgpu=20, limited: requests.tandem-gpu.io/vgpu=20|true",
		`pods "x" is forbidden: failed quota: memory: must specify limits.memory`: "||false",
		`pods "x" is forbidden: violates PodSecurity "baseline:latest"`:           "||false",
		"exceeded quota: a": "a||true",
		"":                  "||false",
	} {
		quota, amounts, is := exceeded(message)
		got := quota + "|" + amounts + "|false"
		if is {
			got = quota + "|" + amounts + "|true"
		}
		if got != want {
			t.Errorf("%q is %s", message, got)
		}
	}
}
