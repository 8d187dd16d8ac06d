package placement

import "github.com/tandem-gpu/tandem/pkg/vgpu"

// maxOnStack is the number of devices up to which a request of one container allocates nothing. A larger number costs
// stack in every call.
const maxOnStack = 16

// Fit returns nil when the node has devices for all containers of the request at once, else why not. The answer is
// exact: Fit tries all arrangements of several containers, up to Request.Steps. Refusal.Cut says when that limit ended the
// search. An assignment of the pod itself on this node counts like any other.
func Fit(n *vgpu.Node, r *vgpu.Request) *vgpu.Refusal { return fit(n, r, nil) }

// Fit is the function Fit for a policy with neighbours: it also refuses devices where a promise would break.
func (p Policy) Fit(n *vgpu.Node, r *vgpu.Request) *vgpu.Refusal { return fit(n, r, p.neighbours) }

// Fits reports whether Fit returns nil. It is faster on nodes that refuse the request, since it does not say why.
func (p Policy) Fits(n *vgpu.Node, r *vgpu.Request) bool {
	switch len(r.Containers) {
	case 0:
		return true
	case 1:
		return fitsOne(n, r, p.neighbours)
	}
	fits, _ := fitsMany(n, r, p.neighbours)
	return fits
}

func fit(n *vgpu.Node, r *vgpu.Request, among *Neighbours) *vgpu.Refusal {
	switch len(r.Containers) {
	case 0:
		return nil
	case 1:
		if fitsOne(n, r, among) {
			return nil
		}
		return refuseOne(n, r, 0, among)
	}
	return fitMany(n, r, among)
}

// fitsOne is Fit for a request of one container.
func fitsOne(n *vgpu.Node, r *vgpu.Request, among *Neighbours) bool {
	devices := n.Devices()
	var s vgpu.Share
	var use vgpu.Use
	legal := false
	for i := range devices {
		if i == 0 || n.Shape(i) != n.Shape(i-1) {
			s, legal = r.ShareOn(0, &devices[i])
			use = s.Use()
		}
		if !legal || !use.Within(n.FreeFor(i, r)) {
			continue
		}
		if s.Devices > 1 && countFree(n, r, use, i) >= s.Devices || s.Devices == 1 && among.keepsPromises(n, i, r, s.ComputeLimit) {
			return true
		}
	}
	return false
}

// countFree counts the devices from first on that have the shape of first and the use free.
func countFree(n *vgpu.Node, r *vgpu.Request, use vgpu.Use, first int) int {
	count := 0
	for i := first; i < len(n.Devices()); i++ {
		if n.Shape(i) == n.Shape(first) && use.Within(n.FreeFor(i, r)) {
			count++
		}
	}
	return count
}
