package bound

import "testing"

// TestRound completes nodes whose first device a pattern has filled in part.
func TestRound(t *testing.T) {
	half := item{kind: 0, width: 1, slots: 5, value: 500, perDevice: .6}
	pair := item{kind: 1, width: 2, slots: 10, value: 2000, perDevice: 1}
	fifth := item{kind: 2, width: 1, slots: 2, value: 200, perDevice: .5}
	for _, c := range []struct {
		name   string
		demand []int
		nodes  float64
		want   float64
	}{
		{"a pod of two devices goes to the free ones", []int{1, 1, 0}, 1, 2500},
		{"a device without memory takes no more", []int{1, 0, 9}, 1, 500 + 2*2*200},
		{"half a node more of a pattern is one node", []int{2, 1, 0}, 1.5, 3000},
		{"pods that do not exist leave their place", []int{0, 1, 0}, 1, 2000},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := fill{types: []nodeType{{count: int(c.nodes + .5), devices: 3, slots: 10, items: []item{half, pair, fifth}}}, demand: c.demand}
			p := f.round([]used{{*newPattern(0, [][]*item{{&half}}), c.nodes}})
			if p.value != c.want {
				t.Errorf("allocates %v, want %v", p.value, c.want)
			}
			p.check(t)
		})
	}
}

// check wants no device above its slots and memory, no node above its resources, and no pod twice.
func (p *plan) check(t interface{ Errorf(string, ...any) }) {
	for i, h := range p.hosts {
		for d := range h.slots {
			if h.slots[d] > h.t.slots || h.memory[d] > full {
				t.Errorf("device %d of node %d has %d of %d slots, %v of the memory", d, i, h.slots[d], h.t.slots, h.memory[d])
			}
		}
		if !h.used.within() {
			t.Errorf("node %d has %v of its resources", i, h.used)
		}
	}
	for k, left := range p.left {
		if left < 0 {
			t.Errorf("kind %d has %d pods left", k, left)
		}
	}
}
