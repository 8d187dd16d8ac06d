package fragmentation

import (
	"testing"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// A busy cluster: a million pods in one step weigh more than a Mix may, and keep their proportions.
func TestCounterOfManyPods(t *testing.T) {
	var c Counter
	for i := range 1_000_000 {
		slots := vgpu.Slots(1)
		if i%4 == 0 {
			slots = 2
		}
		c.Observe(Kind{Slots: slots}, 7)
	}
	m, err := c.Mix(7)
	if err != nil {
		t.Fatal(err)
	}
	if k := m.Kinds(); len(k) != 2 || k[0].Weight != 3*k[1].Weight || m.Weight() > MaxWeight {
		t.Errorf("kinds %v, weight %d", k, m.Weight())
	}
}

// A tenant who asks for something else each time.
func TestCounterOfManyKinds(t *testing.T) {
	var c Counter
	for i := range int64(3 * maxKnown) {
		c.Observe(Kind{MilliCPU: i, Slots: 1}, 0)
	}
	if len(c.arrived) != maxKnown {
		t.Errorf("the counter knows %d kinds, want %d", len(c.arrived), maxKnown)
	}
	m, err := c.Mix(0)
	if err != nil || len(m.Kinds()) != MaxKinds {
		t.Fatalf("a mix of %d kinds, %v", len(m.Kinds()), err)
	}
	if _, err := c.Mix(halves * StepsPerHalfLife); err != nil || len(c.arrived) != 0 {
		t.Errorf("%d kinds are known after %d half-lives, %v", len(c.arrived), halves, err)
	}
	c.Observe(Kind{MilliCPU: 1 << 30, Slots: 1}, halves*StepsPerHalfLife)
	if len(c.arrived) != 1 {
		t.Error("a new kind is not counted although the others are forgotten")
	}
}
