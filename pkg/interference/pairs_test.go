package interference_test

import (
	"testing"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// doubt is the standard error of what the book expects of a workload beside another.
func doubt(b *interference.Book, of, beside interference.Workload) float64 {
	m, _ := interference.ByName("default")
	return m.Predict([]interference.Tenant{b.Tenant(of, 1, vgpu.WholeGPU), b.Tenant(beside, 1, vgpu.WholeGPU)}, nil)[0].Error
}

// A pair that is seen again and again is believed, although it is far from what the other pairs of both let expect.
func TestPairThatIsFarOff(t *testing.T) {
	b := newBook(t, 100)
	for w := range interference.Workload(8) {
		if err := b.Declare(w+1, 1, interference.Profile{SM: .8, Bandwidth: .3}); err != nil {
			t.Fatal(err)
		}
	}
	for range 30 {
		for of := range interference.Workload(8) {
			for other := range interference.Workload(8) {
				seen := .92
				if of == 0 && other == 1 {
					seen = .55
				}
				if of != other {
					observe(t, b, beside(seen, of+1, other+1), 1)
				}
			}
		}
	}
	b.Settle(30)
	near(t, "the pair that is far off", speed(b, 1, 2), .55, .04)
	near(t, "another pair of the first", speed(b, 1, 3), .92, .03)
	near(t, "another pair of the second", speed(b, 3, 2), .92, .03)
}

// A pair stays known after its row has made room for others.
func TestPairWithoutARow(t *testing.T) {
	b := newBook(t, 100)
	observe(t, b, beside(.6, 1, 2), 3)
	b.Settle(1)
	for w := range interference.Workload(20) {
		observe(t, b, beside(.9, 1, w+10), 5)
	}
	b.Settle(1)
	if known, unseen := doubt(b, 1, 2), doubt(b, 1, 90); known > .8*unseen {
		t.Errorf("the doubt about the pair is %v, that about one that nobody has seen %v", known, unseen)
	}
	if known, unseen := speed(b, 1, 2), speed(b, 1, 90); known > unseen-.05 {
		t.Errorf("the pair is expected at %v, one that nobody has seen at %v", known, unseen)
	}
}
