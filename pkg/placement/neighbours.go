package placement

import (
	"math"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/interference"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Neighbours is what placement goes by of the pods that share a device. nil predicts nothing and breaks no promise.
type Neighbours struct {
	// Model predicts how fast tenants are together.
	Model interference.Model
	// Tenant returns a workload as a tenant that may use a part of the SMs of a device of a GPU model. It is asked for
	// every tenant of every candidate, so it is fast, and gives the same answer as long as the Neighbours are in use.
	Tenant func(w interference.Workload, model string, part vgpu.MilliGPU) interference.Tenant
	// Known reports whether anything is known of a workload; nil where all but 0 are. Those of which nothing is known differ
	// in nothing, and scores are remembered for all of them together.
	Known func(w interference.Workload) bool
	// Weights of what a place costs.
	Weights Weights
	// Scarce says that hardly any device is wholly free. While it is false, a pod of a known workload goes to a device
	// without neighbours where there is one, whatever the policy prefers: sharing slows down, and nobody needs the room.
	Scarce bool
}

// Weights says what a thousandth of a device counts, in percent, when it is lost by each cause: 100 as it is, 0 not at all.
type Weights struct {
	// Fragmentation is GPU that the usual requests cannot use any more: the policy's rate.
	Fragmentation int64
	// Interference is work that tenants do not get done beside each other.
	Interference int64
	// Heterogeneity is what the pod would do more on the GPU model that suits it best.
	Heterogeneity int64
}

// EvenWeights counts all losses alike.
var EvenWeights = Weights{Fragmentation: 100, Interference: 100, Heterogeneity: 100}

// maxWeight bounds a weight, so that sums of losses stay in the range of rates.
const maxWeight = 1000

// Among returns the policy for devices that pods share: it breaks no promise, and counts what neighbours lose. Weights
// outside 0 to 1000 are taken as the nearer of the two.
func (p Policy) Among(n *Neighbours) Policy {
	p.among = nil
	if n != nil {
		within := func(w int64) int64 { return min(maxWeight, max(0, w)) }
		own := *n
		own.Weights = Weights{within(n.Weights.Fragmentation), within(n.Weights.Interference), within(n.Weights.Heterogeneity)}
		p.among = &own
	}
	return p
}

// crowd is the tenants of one device with a pod that may come: the last.
type crowd struct {
	count int
	here  [maxCrowd]vgpu.Resident
	on    [maxCrowd]interference.Tenant
	out   [maxCrowd]interference.Prediction
	// many stands in for the three where the device has more tenants.
	many *throng
}

type throng struct {
	here []vgpu.Resident
	on   []interference.Tenant
	out  []interference.Prediction
}

// newThrong makes room for the residents and one more. The slices are its own: were they those of a crowd, every crowd
// would be on the heap.
func newThrong(here []vgpu.Resident) *throng {
	t := &throng{
		here: make([]vgpu.Resident, len(here)+1), on: make([]interference.Tenant, len(here)+1),
		out: make([]interference.Prediction, len(here)+1),
	}
	copy(t.here, here)
	return t
}

// maxCrowd is the number of tenants of a device, with the one that comes, up to which a look at it costs no allocation:
// ten slots and one more.
const maxCrowd = 12

// gather fills in the tenants of device i, and the pod under the compute limit.
func (c *crowd) gather(among *Neighbours, n *vgpu.Node, i int, r *vgpu.Request, compute vgpu.MilliGPU) {
	model := n.Devices()[i].Model
	found := n.Residents(i, c.here[:0])
	if c.count = len(found); c.count >= maxCrowd {
		c.many = newThrong(found)
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

// residents, tenants and speeds are in the same order.
func (c *crowd) residents() []vgpu.Resident {
	if c.many != nil {
		return c.many.here[:c.count]
	}
	return c.here[:c.count]
}

func (c *crowd) tenants() []interference.Tenant {
	if c.many != nil {
		return c.many.on[:c.count]
	}
	return c.on[:c.count]
}

// speeds predicts for the first tenants.
func (c *crowd) speeds(among *Neighbours, count int) []interference.Prediction {
	out := c.out[:0]
	if c.many != nil {
		out = c.many.out[:0]
	}
	return among.Model.Predict(c.tenants()[:count], out)
}

// known returns the number of a workload, 0 where nothing is known of it.
func (n *Neighbours) known(w uint32) uint32 {
	if n.Known != nil && !n.Known(interference.Workload(w)) {
		return 0
	}
	return w
}

func (n *Neighbours) tenant(w uint32, model string, part vgpu.MilliGPU) interference.Tenant {
	return n.Tenant(interference.Workload(w), model, part).Believed()
}

// broken returns the tenant whose promise breaks the most when all are together, −1 for none, with its slowdown in
// thousandths. Where a profile among them is a guess, the slowdown is taken a standard error worse, and the neighbours of a
// promise are Doubted.
func (c *crowd) broken(among *Neighbours) (at int, slowdown int64) {
	at = -1
	if c.count < 2 || !c.promised() {
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

// besideDoubted predicts for tenant i beside the others as a promise counts them.
func (c *crowd) besideDoubted(among *Neighbours, i int) interference.Prediction {
	doubted := crowd{count: c.count, on: c.on}
	if c.many != nil {
		doubted.many = &throng{on: slices.Clone(c.many.on), out: make([]interference.Prediction, len(c.many.out))}
	}
	on := doubted.tenants()
	for k := range on {
		if k != i {
			on[k] = on[k].Doubted()
		}
	}
	return doubted.speeds(among, doubted.count)[i]
}

// onlyDeclared names the neighbours of tenant at, "" for the pod that comes, whose use is only declared and counts for more.
func (c *crowd) onlyDeclared(at int) []string {
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

func (c *crowd) promised() bool {
	for i := range c.residents() {
		if c.residents()[i].MaxSlowdown != 0 {
			return true
		}
	}
	return false
}

// thousandths returns a slowdown in thousandths, rounded to the nearest, that of a guess a standard error worse.
func thousandths(p interference.Prediction, guessed bool) int64 {
	slow := p.Slowdown()
	if guessed {
		slow *= 1 + p.Error
	}
	return int64(math.Round(min(slow, 1000) * vgpu.NoSlowdown))
}

// harm returns the milli-GPU of work that is lost when the pod, the last of the crowd, comes to the others.
func (c *crowd) harm(among *Neighbours) int64 {
	if c.count < 2 {
		return 0
	}
	lost := c.lost(among, c.count) - c.lost(among, c.count-1)
	return int64(math.Round(max(0, lost)))
}

// lost returns the milli-GPU of work that the first tenants lose by each other.
func (c *crowd) lost(among *Neighbours, count int) float64 {
	lost := 0.
	for i, speed := range c.speeds(among, count) {
		lost += float64(c.residents()[i].Compute) * (1 - min(1, speed.Speed))
	}
	return lost
}

// spares reports whether the pod may be on device i beside those that are there, under the compute limit.
func (n *Neighbours) spares(node *vgpu.Node, i int, r *vgpu.Request, compute vgpu.MilliGPU) bool {
	if n == nil {
		return true
	}
	var c crowd
	c.gather(n, node, i, r, compute)
	at, _ := c.broken(n)
	return at < 0
}

// refusePromise says whose promise would break on device i, nil where none would.
func (n *Neighbours) refusePromise(node *vgpu.Node, i int, r *vgpu.Request, compute vgpu.MilliGPU) *vgpu.Refusal {
	if n == nil {
		return nil
	}
	var c crowd
	c.gather(n, node, i, r, compute)
	at, slowdown := c.broken(n)
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

// toll is what a place costs beside the fragmentation that the policy rates.
type toll struct {
	// lost milli-GPU, times the weights in percent.
	lost int64
	// alone says that no device of the place has a neighbour for a workload that is known.
	alone bool
}

// plus adds the toll of a further device.
func (t toll) plus(o toll) toll { return toll{t.lost + o.lost, t.alone && o.alone} }

// tollOf returns the toll of a use of so much compute on each of m devices like device i, of which m above 1 are whole ones.
func (p *Policy) tollOf(v *view, i, m int, use vgpu.Use, compute vgpu.MilliGPU) toll {
	among := p.among
	if among == nil {
		return toll{}
	}
	d := &v.n.Devices()[i]
	share := int64(m) * int64(vgpu.ComputeOf(use.Slots, d.Slots))
	t := toll{lost: among.Weights.Heterogeneity * share * int64(v.r.Loss(d.Model)) / int64(vgpu.WholeGPU)}
	switch {
	case among.known(v.r.Workload) == 0:
		return t // what a workload of which nothing is known would do is no reason to prefer a place
	case v.n.Used(i).Slots == 0:
		t.alone = true
		return t
	}
	var c crowd
	c.gather(among, v.n, i, v.r, compute)
	t.lost, t.alone = t.lost+among.Weights.Interference*c.harm(among), c.count == 1
	return t
}

// weigh makes one rate of the policy's and of the toll, 0 to 2·rateMax + 1: above rateMax are the places without neighbours
// that a known workload is given while GPUs are not scarce.
//
// Both are losses in milli-GPU: one of them is perMilli of the policy's rates, times grain. The weights are divided by the
// largest, so that the sum stays in the range; a rate that has no neutral value takes the upper half of it.
func (p *Policy) weigh(rate int64, t toll) int64 {
	if p.among == nil {
		return rate
	}
	gain := max(1, p.grain)*(rate-p.neutral)*p.among.Weights.Fragmentation - max(1, p.perMilli)*t.lost
	weighed := min(rateMax, max(0, rateMax/2+floorDiv(gain, p.norm())))
	if !p.among.Scarce && t.alone {
		weighed += rateMax + 1
	}
	return weighed
}
