package fragmentation

import (
	"testing"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

// A busy cluster: a million pods in one step weigh more than a Mix may, and keep their proportions.
func TestCounterOfManyPods(t *testing.T) {
	var c Counter
	for i := range 1_000_000 {
		slots := vgpu.Slots(1)
		if i%4 == 0 {
			slots = 2
		}
		c.Observe("team", Kind{Slots: slots}, 7)
	}
	m, err := c.Mix(7)
	must.OK(t, err)
	if k := m.Kinds(); len(k) != 2 || k[0].Weight != 3*k[1].Weight || m.Weight() > MaxWeight {
		t.Errorf("kinds %v, weight %d", k, m.Weight())
	}
}

// An owner whose pods all differ fills its own part of the memory, and four such owners fill all of it.
func TestCounterOfManyKinds(t *testing.T) {
	var c Counter
	flood := func(owner string) {
		for i := range int64(maxOwned + 1000) {
			c.Observe(owner, Kind{MilliCPU: i, Slots: 1}, 0)
		}
	}
	flood("a")
	if c.known != maxOwned || len(c.arrived["a"]) != maxOwned {
		t.Errorf("the counter knows %d kinds, %d of the owner, want %d", c.known, len(c.arrived["a"]), maxOwned)
	}
	c.Observe("victim", Kind{Slots: 2}, 0)
	if len(c.arrived["victim"]) != 1 {
		t.Error("one owner keeps the kinds of another out")
	}
	flood("b")
	flood("c")
	flood("d")
	if c.known != maxKnown {
		t.Errorf("the counter knows %d kinds, want %d", c.known, maxKnown)
	}
	m, err := c.Mix(0)
	if err != nil || len(m.Kinds()) != MaxKinds {
		t.Fatalf("a mix of %d kinds, %v", len(m.Kinds()), err)
	}
	if _, err := c.Mix(maxHalfLives * StepsPerHalfLife); err != nil || len(c.arrived) != 0 || c.known != 0 {
		t.Errorf("%d kinds of %d owners are known after %d half-lives, %v", c.known, len(c.arrived), maxHalfLives, err)
	}
	c.Observe("a", Kind{MilliCPU: 1 << 30, Slots: 1}, maxHalfLives*StepsPerHalfLife)
	if c.known != 1 {
		t.Error("a new kind is not counted although the others are forgotten")
	}
}

// The bound holds for weights that overflow when they are multiplied.
func TestCounterBoundsManyPods(t *testing.T) {
	var c Counter
	for range 300_000 {
		c.Observe("loud", Kind{Slots: 1}, 7)
		c.Observe("loud", Kind{Slots: 2}, 7)
	}
	for range 200_000 {
		c.Observe("calm", Kind{Slots: 3}, 7)
	}
	m, err := c.Mix(7)
	must.OK(t, err)
	if k := m.Kinds(); len(k) != 3 || k[0].Slots != 3 || k[1].Weight != k[2].Weight || k[1].Weight != k[0].Weight/2 {
		t.Errorf("kinds %v, want one of 3 slots and two that weigh half of it each", k)
	}
}
