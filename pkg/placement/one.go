package placement

import "github.com/tandem-gpu/tandem/pkg/vgpu"

// choice is where the only container of a request goes on one node.
type choice struct {
	share vgpu.Share
	// device is the only or the first device.
	device int
	// dearer is the rank of its cost, 0 for the cheapest.
	dearer int
	// rate of the policy, links as by average.
	rate, links int64
}

// beats orders choices: the cost, then the policy's rate, then links, then fewer devices. Of equals the first device by index wins,
// since choices are compared in that order.
func (c *choice) beats(o *choice) bool {
	switch {
	case c.dearer != o.dearer:
		return c.dearer < o.dearer
	case c.rate != o.rate:
		return c.rate > o.rate
	case c.links != o.links:
		return c.links > o.links
	}
	return c.share.Devices < o.share.Devices
}

// chooseOne returns the best place for a request of one container, and whether there is one.
func chooseOne(n *vgpu.Node, r *vgpu.Request, p Policy) (best choice, found bool) {
	devices := n.Devices()
	var s vgpu.Share
	var use vgpu.Use
	legal, dearer := false, 0
	for i := range devices {
		d := &devices[i]
		if i == 0 || n.Shape(i) != n.Shape(i-1) {
			s, legal = r.ShareOn(0, d)
			use, dearer = s.Use(), r.CostRank(d.Model)
		}
		if !legal {
			continue
		}
		free := n.Free(i, r.Priority, r.UID)
		if !use.Within(free) {
			continue
		}
		next := choice{share: s, device: i, dearer: dearer, links: bestQuality, rate: p.device(d, free.Minus(use))}
		if s.Devices > 1 && !rateSet(n, r, &next) {
			continue
		}
		if !found || next.beats(&best) {
			best, found = next, true
		}
	}
	return best, found
}

// rateSet rates the links of the best set of whole devices of the shape of the choice's first device. It does so once
// per shape, at the first free device of it, and reports whether there are enough.
func rateSet(n *vgpu.Node, r *vgpu.Request, c *choice) bool {
	var places, set [small]int
	candidates, out := freeSet(n, r, c, places[:0]), set[:]
	m := c.share.Devices
	if len(candidates) < m || candidates[0] != c.device {
		return false
	}
	if m > small {
		out = make([]int, m)
	}
	sum, _ := bestSet(n, candidates, m, out)
	c.links = average(sum, m)
	return true
}

// freeSet appends the devices of the shape of the choice's first device that have its share free, by index.
func freeSet(n *vgpu.Node, r *vgpu.Request, c *choice, list []int) []int {
	for i := range n.Devices() {
		if n.Shape(i) == n.Shape(c.device) && c.share.Use().Within(n.Free(i, r.Priority, r.UID)) {
			list = append(list, i)
		}
	}
	return list
}

// chosen returns the positions of the devices of a choice, and whether all sets were compared.
func (c *choice) chosen(n *vgpu.Node, r *vgpu.Request) (at []int, all bool) {
	if c.share.Devices == 1 {
		return []int{c.device}, true
	}
	at = make([]int, c.share.Devices)
	_, all = bestSet(n, freeSet(n, r, c, nil), c.share.Devices, at)
	return at, all
}
