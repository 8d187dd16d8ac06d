package placement

import "github.com/tandem-gpu/tandem/pkg/vgpu"

// choice is where one container goes on one node.
type choice struct {
	share vgpu.Share
	// device is the only or the first device; set holds all of them when there are several.
	device int
	set    [small]int
	large  []int // in place of set for more than small devices
	// rate of the policy, links as by average.
	rate, links int64
	greedy      bool
}

// chosen returns the positions of the devices.
func (c *choice) chosen() []int {
	switch {
	case c.share.Devices == 1:
		c.set[0] = c.device
		return c.set[:1]
	case c.large != nil:
		return c.large
	}
	return c.set[:c.share.Devices]
}

// beats orders choices: the policy's rate, then links, then fewer devices. Of equals the first device by index wins,
// since choices are compared in that order.
func (c *choice) beats(o *choice) bool {
	switch {
	case o.share.Devices == 0:
		return true
	case c.rate != o.rate:
		return c.rate > o.rate
	case c.links != o.links:
		return c.links > o.links
	}
	return c.share.Devices < o.share.Devices
}

// chooseOne writes the best place for a request of one container into best, and reports whether there is one.
func chooseOne(n *vgpu.Node, r *vgpu.Request, p *Policy, best *choice) bool {
	c := &r.Containers[0]
	devices := n.Devices()
	for i := range devices {
		s, legal := c.ShareOn(&devices[i], r.ComputeLimit, r.MemoryLimit)
		if !legal {
			continue
		}
		free := n.Free(i, r.Priority, r.UID)
		if !s.Use().Within(free) {
			continue
		}
		next := choice{share: s, device: i, links: bestQuality, rate: p.device(&devices[i], free.Minus(s.Use()))}
		if s.Devices > 1 && !chooseSet(n, r, &next) {
			continue
		}
		if next.beats(best) {
			*best = next
		}
	}
	return best.share.Devices > 0
}

// chooseSet completes a choice of several whole devices with those of the first one's shape whose links are best. It
// does so once per shape, at the first free device of it, and reports whether there are enough.
func chooseSet(n *vgpu.Node, r *vgpu.Request, c *choice) bool {
	var buffer [small]int
	candidates := buffer[:0]
	for i := range n.Devices() {
		if n.Shape(i) != n.Shape(c.device) || !c.share.Use().Within(n.Free(i, r.Priority, r.UID)) {
			continue
		}
		if i < c.device {
			return false // this shape had its turn
		}
		candidates = append(candidates, i)
	}
	if len(candidates) < c.share.Devices {
		return false
	}
	out := c.set[:]
	if c.share.Devices > small {
		c.large = make([]int, c.share.Devices)
		out = c.large
	}
	sum, all := bestSet(n, candidates, c.share.Devices, out)
	c.links, c.greedy = average(sum, c.share.Devices), !all
	return true
}
