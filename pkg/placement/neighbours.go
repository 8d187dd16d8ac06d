package placement

import (
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Neighbours holds what placement knows of pods that share devices. nil predicts nothing and breaks no promise.
type Neighbours struct {
	// Model predicts the speeds of tenants that share a device.
	Model interference.Model
	// Tenant returns a workload as a tenant that may use a part of the SMs of a device of a GPU model. Placement calls
	// it for every tenant of every candidate device. The function must be fast and give the same answer as long as the
	// Neighbours are in use.
	Tenant func(w interference.Workload, model string, part vgpu.MilliGPU) interference.Tenant
	// Known reports whether the learner knows a workload; nil stands for all workloads except 0. All unknown workloads
	// share their scores.
	Known func(w interference.Workload) bool
	// Weights of the losses that a place costs.
	Weights Weights
	// Scarce says that hardly any device is wholly free. While it is false, a pod of a known workload prefers a device
	// without neighbours to all that the policy prefers. Sharing slows pods down, and no other pod needs the device.
	Scarce bool
}

// Weights says, in percent, how much a lost thousandth of a device counts by the cause of the loss: 100 as it is, 0 not
// at all.
type Weights struct {
	// Fragmentation is GPU that the usual requests can no longer use: the policy's rate.
	Fragmentation int64
	// Interference is work that tenants lose beside each other.
	Interference int64
	// Heterogeneity is work that the pod would do beyond this on the GPU model that suits it best.
	Heterogeneity int64
}

// EvenWeights counts all losses equally.
var EvenWeights = Weights{Fragmentation: 100, Interference: 100, Heterogeneity: 100}

// maxWeight bounds a weight, so that sums of losses stay in the range of rates.
const maxWeight = 1000

// Among returns the policy for devices that pods share: it breaks no promise, and counts what neighbours lose. Weights
// count within 0 to 1000.
func (p Policy) Among(n *Neighbours) Policy {
	p.neighbours = nil
	if n != nil {
		within := func(w int64) int64 { return min(maxWeight, max(0, w)) }
		own := *n
		own.Weights = Weights{within(n.Weights.Fragmentation), within(n.Weights.Interference), within(n.Weights.Heterogeneity)}
		p.neighbours = &own
	}
	return p
}

// colocation is the tenants of one device, and as the last one the pod to place.
type colocation struct {
	count     int
	here      [maxColocated]vgpu.Resident
	asTenants [maxColocated]interference.Tenant
	predicted [maxColocated]interference.Prediction
	// more replaces the three arrays where the device has more tenants.
	more *overflow
}

type overflow struct {
	here      []vgpu.Resident
	asTenants []interference.Tenant
	predicted []interference.Prediction
}

// newOverflow allocates for the residents and one more. The slices are its own: slices of a colocation would move every
// colocation to the heap.
func newOverflow(here []vgpu.Resident) *overflow {
	t := &overflow{
		here: make([]vgpu.Resident, len(here)+1), asTenants: make([]interference.Tenant, len(here)+1),
		predicted: make([]interference.Prediction, len(here)+1),
	}
	copy(t.here, here)
	return t
}

// maxColocated is the number of tenants of a device, the pod to place included, up to which loading them allocates
// nothing: ten slots and one more. A larger number costs stack in every call.
const maxColocated = 12

// load sets the tenants of device i, and the pod under the compute limit.
func (c *colocation) load(among *Neighbours, n *vgpu.Node, i int, r *vgpu.Request, compute vgpu.MilliGPU) {
	model := n.Devices()[i].Model
	found := n.Residents(i, c.here[:0])
	if c.count = len(found); c.count >= maxColocated {
		c.more = newOverflow(found)
	}
	here := c.residents()
	kept := here[:0]
	for k := range here {
		if here[k].UID != r.UID {
			kept = append(kept, here[k])
		}
	}
	c.count = len(kept) + 1
	here = c.residents()
	here[len(kept)] = vgpu.Resident{UID: r.UID, Pod: r.Pod, Tenancy: r.Tenancy, Compute: compute}
	on := c.tenants()
	for k := range on {
		on[k] = among.tenant(here[k].Workload, model, here[k].Compute)
	}
}

// residents returns the tenants as the ledger has them. residents, tenants and speeds have the same order.
func (c *colocation) residents() []vgpu.Resident {
	if c.more != nil {
		return c.more.here[:c.count]
	}
	return c.here[:c.count]
}

func (c *colocation) tenants() []interference.Tenant {
	if c.more != nil {
		return c.more.asTenants[:c.count]
	}
	return c.asTenants[:c.count]
}

// speeds predicts the speeds of the first tenants.
func (c *colocation) speeds(among *Neighbours, count int) []interference.Prediction {
	out := c.predicted[:0]
	if c.more != nil {
		out = c.more.predicted[:0]
	}
	return among.Model.Predict(c.tenants()[:count], out)
}

// known returns the number of a workload, 0 for an unknown one.
func (n *Neighbours) known(w uint32) uint32 {
	if n.Known != nil && !n.Known(interference.Workload(w)) {
		return 0
	}
	return w
}

func (n *Neighbours) tenant(w uint32, model string, part vgpu.MilliGPU) interference.Tenant {
	return n.Tenant(interference.Workload(w), model, part).Believed()
}

// brokenPromise returns the tenant whose promise breaks the most when all are together, −1 for none, with its slowdown
// in thousandths. If any profile is a guess, the slowdown is one standard error worse. A promise counts the other
// tenants as Doubted.
func (c *colocation) brokenPromise(among *Neighbours) (at int, slowdown int64) {
	at = -1
	if c.count < 2 || !c.hasPromise() {
		return at, 0
	}
	guessed, declared := false, false
	for _, t := range c.tenants() {
		guessed, declared = guessed || t.Guessed, declared || t.Declared
	}
	speeds := c.speeds(among, c.count)
	worst := int64(0)
	for i := range speeds {
		limit := c.residents()[i].MaxSlowdown
		if limit == 0 {
			continue
		}
		speed := speeds[i]
		if declared {
			speed = c.besideDoubted(among, i)
		}
		if s := thousandths(speed, guessed); s > limit && s*vgpu.NoSlowdown/limit > worst {
			at, slowdown, worst = i, s, s*vgpu.NoSlowdown/limit
		}
	}
	return at, slowdown
}

// besideDoubted predicts the speed of tenant i beside the others, with their declared use as Doubted.
func (c *colocation) besideDoubted(among *Neighbours, i int) interference.Prediction {
	doubted := colocation{count: c.count, asTenants: c.asTenants}
	if c.more != nil {
		doubted.more = &overflow{asTenants: slices.Clone(c.more.asTenants), predicted: make([]interference.Prediction, len(c.more.predicted))}
	}
	on := doubted.tenants()
	for k := range on {
		if k != i {
			on[k] = on[k].Doubted()
		}
	}
	return doubted.speeds(among, doubted.count)[i]
}

// onlyDeclared names the neighbours of tenant at with a declared use that counts for more; "" stands for the pod to
// place.
func (c *colocation) onlyDeclared(at int) []string {
	var names []string
	for k, t := range c.tenants() {
		if d := t.Doubted(); k != at && (d.SM != t.SM || d.Bandwidth != t.Bandwidth) {
			names = append(names, c.residents()[k].Pod)
			if k == c.count-1 {
				names[len(names)-1] = ""
			}
		}
	}
	return names
}

func (c *colocation) hasPromise() bool {
	for i := range c.residents() {
		if c.residents()[i].MaxSlowdown != 0 {
			return true
		}
	}
	return false
}

// thousandths returns a slowdown in thousandths, rounded to the nearest. A guess is one standard error worse.
func thousandths(p interference.Prediction, guessed bool) int64 {
	slow := p.Slowdown()
	if guessed {
		slow *= 1 + p.Error
	}
	return int64(math.Round(min(slow, 1000) * vgpu.NoSlowdown))
}

// harm returns the milli-GPU of work that all lose when the pod, which is the last, joins the others.
func (c *colocation) harm(among *Neighbours) int64 {
	if c.count < 2 {
		return 0
	}
	lost := c.lost(among, c.count) - c.lost(among, c.count-1)
	return int64(math.Round(max(0, lost)))
}

// lost returns the milli-GPU of work that the first tenants lose by each other.
func (c *colocation) lost(among *Neighbours, count int) float64 {
	lost := 0.
	for i, speed := range c.speeds(among, count) {
		lost += float64(c.residents()[i].Compute) * (1 - min(1, speed.Speed))
	}
	return lost
}

// keepsPromises reports whether the pod may use device i beside its tenants, under the compute limit.
func (n *Neighbours) keepsPromises(node *vgpu.Node, i int, r *vgpu.Request, compute vgpu.MilliGPU) bool {
	if n == nil {
		return true
	}
	var c colocation
	c.load(n, node, i, r, compute)
	at, _ := c.brokenPromise(n)
	return at < 0
}

// refusePromise returns the refusal that names the promise which would break on device i, nil where none would.
func (n *Neighbours) refusePromise(node *vgpu.Node, i int, r *vgpu.Request, compute vgpu.MilliGPU) *vgpu.Refusal {
	if n == nil {
		return nil
	}
	var c colocation
	c.load(n, node, i, r, compute)
	at, slowdown := c.brokenPromise(n)
	if at < 0 {
		return nil
	}
	d := &node.Devices()[i]
	f := &vgpu.Refusal{
		Reason: vgpu.PromiseBroken, Helps: vgpu.EvictionHelps, Node: node.Name(), Device: d.Name(), Model: d.Model,
		Unit: vgpu.UnitMilliSlowdown, Want: c.residents()[at].MaxSlowdown, Best: slowdown,
	}
	others := c.residents()[:c.count-1]
	if at < len(others) {
		f.Promised = others[at].Pod
	}
	for k := range others {
		f.Beside = append(f.Beside, others[k].Pod)
	}
	f.Declared = c.onlyDeclared(at)
	return f
}

// cost is what a place costs beside the fragmentation that the policy rates.
type cost struct {
	// lost milli-GPU, times the weights in percent.
	lost int64
	// alone says that the learner knows the workload and no device of the place has a neighbour.
	alone bool
}

// plus adds the cost of a further device.
func (t cost) plus(o cost) cost { return cost{t.lost + o.lost, t.alone && o.alone} }

// costOf returns the cost of a use under a compute limit on each of m devices like device i. Devices are whole where m
// is above 1.
func (p *Policy) costOf(v *view, i, m int, use vgpu.Use, compute vgpu.MilliGPU) cost {
	among := p.neighbours
	if among == nil {
		return cost{}
	}
	d := &v.n.Devices()[i]
	share := int64(m) * int64(vgpu.ComputeOf(use.Slots, d.Slots))
	t := cost{lost: among.Weights.Heterogeneity * share * int64(v.r.Loss(d.Model)) / int64(vgpu.WholeGPU)}
	switch {
	case among.known(v.r.Workload) == 0:
		return t // the work of an unknown workload is no reason to prefer a place
	case v.n.Used(i).Slots == 0:
		t.alone = true
		return t
	}
	var c colocation
	c.load(among, v.n, i, v.r, compute)
	t.lost, t.alone = t.lost+among.Weights.Interference*c.harm(among), c.count == 1
	return t
}

// weigh combines the policy's rate and the cost to a rate of 0 to 2·rateMax + 1. Rates above rateMax are places without
// neighbours, which a known workload gets while GPUs are not scarce.
//
// Both are losses in milli-GPU: one of them is perMilli of the policy's rates, times grain. The largest weight divides
// the weights, so that the sum stays in the range. A rate without a neutral value uses the upper half of the range.
func (p *Policy) weigh(rate int64, t cost) int64 {
	if p.neighbours == nil {
		return rate
	}
	gain := max(1, p.grain)*(rate-p.neutral)*p.neighbours.Weights.Fragmentation - max(1, p.perMilli)*t.lost
	weighed := min(rateMax, max(0, rateMax/2+floorDiv(gain, p.norm())))
	if !p.neighbours.Scarce && t.alone {
		weighed += rateMax + 1
	}
	return weighed
}
