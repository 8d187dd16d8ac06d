package elasticity

import (
	"testing"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// hold writes the annotation of the target of train, or removes it where it says nothing.
func (w *world) hold(said string) {
	w.Helper()
	target := w.target("train")
	target.Annotations = map[string]string{v1alpha1.AnnotationSize: said}
	if said == "" {
		target.Annotations = nil
	}
	must.OK(w, w.objects.Update(w.Context(), target))
}

// A gang that is paused keeps its number and its members: those that have a notice stay, and a gang that waits gets none of its GPUs. When it is
// not paused any more, it gives them back with a whole notice. A restart in the pause changes nothing.
func TestPause(t *testing.T) {
	w := newWorld(t, 8, members(t, "train", 8, 8, 0)...)
	w.pass(0)
	w.put(rigid(t)...)
	w.pass(20)
	w.same("before the pause", leavers(at25), w.notices())
	w.hold("paused")
	w.pass(22)
	w.check("train", 4, "Paused")
	w.same("in the pause", map[string]string{}, w.notices())
	w.start()
	for after := 30; after < 600; after += 30 {
		w.pass(after)
	}
	w.check("train", 4, "Paused")
	w.same("evicted", []string(nil), w.evicted)
	w.resizable(reasonPaused, "paused by the annotation tandem-gpu.io/size")
	w.hold("")
	w.pass(620)
	w.check("train", 4, "NoRoom")
	w.same("after the pause", leavers("2026-01-31T12:10:25Z"), w.notices())
	w.pass(625)
	w.same("evicted", []string{"train-4", "train-5", "train-6", "train-7"}, w.evicted)
}

// A pinned gang has its number, although GPUs are idle and although others wait.
func TestPin(t *testing.T) {
	w := newWorld(t, 8, members(t, "train", 8, 4, 0)...)
	w.pass(0)
	w.check("train", 8, "Idle")
	w.hold("4")
	w.pass(10)
	w.check("train", 4, "Pinned")
	w.same("why", "the annotation tandem-gpu.io/size of the ElasticTarget pins 4 members", w.target("train").Status.Message)
	w.hold("2")
	w.pass(20)
	w.check("train", 2, "Pinned")
	w.same("notices", map[string]string{"train-2": at25, "train-3": at25}, w.notices())
	w.pass(25)
	w.same("evicted", []string{"train-2", "train-3"}, w.evicted)
	w.put(rigid(t)...)
	w.hold("8")
	w.pass(30)
	w.check("train", 8, "Pinned")
}

// An annotation that is not legal changes nothing: the target stays, and its message names the legal values.
func TestIllegalHold(t *testing.T) {
	for _, said := range []string{"pause", "3", "16", "0", "-4", "4.0", "a100=4", "4,8", "99999999999999999999"} {
		w := newWorld(t, 8, members(t, "train", 8, 8, 0)...)
		w.pass(0)
		w.hold(said)
		w.put(rigid(t)...)
		for after := 10; after < 100; after += 10 {
			w.pass(after)
		}
		w.check("train", 8, "Invalid")
		w.same(said, `metadata.annotations[tandem-gpu.io/size]: "`+said+`" is not legal, legal is paused, or one of the numbers of tandem-gpu.io/elastic-workers: 2, 4, 8; correct it`,
			w.target("train").Status.Message)
	}
}
