package fleets

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// hold writes the annotation of bert, or removes it where it says nothing.
func (w *world) hold(said string) {
	w.Helper()
	f := w.fleet("bert")
	f.Annotations = map[string]string{v1alpha1.AnnotationSize: said}
	if said == "" {
		f.Annotations = nil
	}
	must.OK(w.T, w.objects.Update(w.Context(), f))
}

// A fleet that is paused is measured and reported, and nothing of it is written, whoever scales it. Then it goes on: it grows for what arrives, and
// no replica leaves before the patience is over. A restart in the pause changes nothing.
func TestPause(t *testing.T) {
	w := newWorld(t)
	w.arrive("30")
	w.settle(10 * time.Minute)
	w.hold("paused")
	w.arrive("300")
	wantWrites(t, "while it is paused", w.settle(10*time.Minute))
	w.restart()
	wantWrites(t, "after a restart", w.settle(2*time.Minute))
	s := w.fleet("bert").Status
	if s.Reason != "Paused" || s.Demand == "" || w.condition(v1alpha1.ConditionFleetReady) != "False Paused" ||
		w.condition(v1alpha1.ConditionMeasured) != "True Measured" || w.condition(v1alpha1.ConditionRouted) != "True Paused" || len(s.Variants[0].Later) > 0 {
		t.Errorf("while it is paused: %+v", s)
	}
	if got := w.message(v1alpha1.ConditionFleetReady); got != "paused by the annotation tandem-gpu.io/size: the controller writes neither sizes nor weights; "+
		"330 requests a second are expected, and the replicas serve 45.2 within 1s" {
		t.Error(got)
	}
	for _, n := range []int{9, 3, 8} { // no contest: a user may scale what is paused
		w.replicas["bert-a100"] = n
		w.setReady("bert-a100", n)
		wantWrites(t, "somebody scales it", w.settle(time.Minute))
	}
	w.arrive("30")
	wantWrites(t, "far fewer requests", w.settle(20*time.Minute))
	w.hold("")
	for range 6 {
		wantWrites(t, "in the patience after the pause", w.settle(15*time.Second))
	}
	if got := w.condition(v1alpha1.ConditionFleetReady); got != "True Controlled" {
		t.Errorf("after the pause: Ready is %s", got)
	}
	w.settle(10 * time.Minute)
	if w.replicas["bert-a100"] >= 8 {
		t.Errorf("it still has %d replicas when the patience is over", w.replicas["bert-a100"])
	}
	w.hold("paused")
	w.settle(time.Minute)
	w.arrive("300")
	w.hold("")
	w.settle(2 * time.Minute)
	if w.replicas["bert-a100"] < 7 {
		t.Errorf("it grew to %d replicas for 300 requests a second after the pause", w.replicas["bert-a100"])
	}
}

// A pinned variant has its number, and the other one follows the requests.
func TestPin(t *testing.T) {
	w := newWorld(t)
	w.hold("a100=2")
	w.arrive("20")
	w.settle(10 * time.Minute)
	if w.replicas["bert-a100"] != 2 || w.replicas["bert-t4"] != 0 {
		t.Errorf("for 20 requests a second: %v", w.replicas)
	}
	if got := w.condition(v1alpha1.ConditionFleetReady); got != "True Pinned" {
		t.Errorf("Ready is %s", got)
	}
	w.arrive("120")
	w.settle(10 * time.Minute)
	if w.replicas["bert-a100"] != 2 || w.replicas["bert-t4"] < 6 {
		t.Errorf("for 120 requests a second: %v", w.replicas)
	}
	w.hold("a100=1, t4=0")
	w.settle(10 * time.Minute)
	if w.replicas["bert-a100"] != 1 || w.replicas["bert-t4"] != 0 {
		t.Errorf("both are pinned: %v", w.replicas)
	}
}

// A fleet that cannot be sized needs nothing later: elastic jobs have the GPUs that it does not use.
func TestIllegalHoldReservesNothing(t *testing.T) {
	w := newWorld(t)
	w.arrive("20")
	w.settle(time.Minute)
	f := w.fleet("bert")
	f.Status.Variants[0].Later = []v1alpha1.FleetNeed{{From: metav1.NewTime(noon), Replicas: 9}}
	must.OK(t, w.objects.Status().Update(t.Context(), f))
	w.hold("a100=99")
	w.pass()
	if later := w.fleet("bert").Status.Variants[0].Later; later != nil {
		t.Errorf("it needs %v", later)
	}
}

// An annotation that is not legal changes nothing: sizes and weights stay, and the condition names the legal values.
func TestIllegalHold(t *testing.T) {
	const legal = " is not legal, legal is paused, or replicas of variants with commas between them, such as a100=1: a100 from 1 to 20, t4 from 0 to 20; correct it"
	for _, said := range []string{"pause", "3", "a100", "a100=", "a100=0", "a100=21", "a100=-1", "a100=1.5", "v100=1", "a100=1,a100=2", "a100=1;t4=2", "paused,a100=1", "a100=99999999999999999999"} {
		w := newWorld(t)
		w.hold(said)
		w.arrive("300")
		wantWrites(t, said, w.settle(5*time.Minute))
		want := `metadata.annotations[tandem-gpu.io/size]: "` + said + `"` + legal
		if got := w.condition(v1alpha1.ConditionFleetReady) + ": " + w.message(v1alpha1.ConditionFleetReady); got != "False Invalid: "+want {
			t.Errorf("%s: %s", said, got)
		}
	}
}
