package preemption

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Prices are exchange rates: how much lost work one of each harm is worth. All are in thousandths of a GPU times
// seconds, 0 to MaxPrice.
//
// Example: with a Violation of 24 hours of a GPU, 86,400,000, a plan violates a budget where that spares more than 24
// GPU-hours of work.
type Prices struct {
	// Violation is the price of one victim beyond what a budget allows. Higher violates budgets for more work only.
	Violation int64
	// Step is the price of each lower priority that other possible victims have, for each victim. Higher keeps pods of
	// a higher priority at a higher loss of others.
	Step int64
	// Broken is the price of a gang that leaves as a whole, beside the work of its members.
	Broken int64
	// Serving is the price of a victim that promises an answer within a time.
	Serving int64
	// Victim is the price of each victim: its start from anew, and the time in which nobody uses its room. Surplus
	// members have none, since their gang runs on. Higher evicts fewer pods, which lose more.
	Victim int64
}

// GPUHour is the work of one GPU in an hour, in thousandths of a GPU times seconds.
const GPUHour = int64(vgpu.WholeGPU) * 3600

// MaxPrice bounds each price: 10,000 GPU-hours.
const MaxPrice = 10_000 * GPUHour

// DefaultPrices are those of a scheduler without settings. docs/decisions/0041 says where they come from.
func DefaultPrices() Prices {
	return Prices{Violation: 24 * GPUHour, Step: GPUHour, Broken: GPUHour, Serving: 24 * GPUHour, Victim: GPUHour / 6}
}

func (p *Prices) validate() error {
	for _, of := range []struct {
		name  string
		price int64
	}{
		{"a violation", p.Violation}, {"a step of priority", p.Step}, {"a broken gang", p.Broken},
		{"a serving pod", p.Serving}, {"a victim", p.Victim},
	} {
		if of.price < 0 || of.price > MaxPrice {
			return fmt.Errorf("the price of %s is %d, legal is 0 to %d", of.name, of.price, MaxPrice)
		}
	}
	return nil
}

// podPrice is what one victim costs without its budgets and the end of its gang, see Cost.Price, Cost.Returns and Cost.Steps.
type podPrice struct {
	price, returns int64
	steps          int32
}

// priceCandidates computes the price of each possible victim. Those of the lowest priority come first, since a victim
// may evict them when it comes back.
func (q *question) priceCandidates() {
	pods := q.candidates.Pods
	q.prices = make([]podPrice, len(pods))
	list, ends := q.byPriority()
	goods, from := market{most: q.largestShare()}, 0
	for step, end := range ends {
		for _, p := range list[from:end] {
			v, of := &pods[p], &q.prices[p]
			if of.steps = int32(step); !v.NeverPreempts {
				of.returns = goods.price(v.Share)
			}
			of.price = vgpu.Sum(vgpu.Sum(v.Lost, of.returns), q.fixedPrice(v, step))
		}
		if step+1 < len(ends) {
			q.sell(&goods, list[from:end])
		}
		from = end
	}
}

// fixedPrice returns the price of a victim that depends neither on its work nor on other victims. The price of each
// victim of a gang comes with the end of the gang.
func (q *question) fixedPrice(v *Pod, step int) int64 {
	price := int64(step) * q.cfg.Prices.Step
	if v.Gang < 0 {
		price += q.cfg.Prices.Victim
	}
	if v.Serving {
		price += q.cfg.Prices.Serving
	}
	return price
}

// largestShare returns the most that a possible victim has of GPUs.
func (q *question) largestShare() (most vgpu.MilliGPU) {
	for p, may := range q.evictable {
		if may {
			most = max(most, q.candidates.Pods[p].Share)
		}
	}
	return most
}

// byPriority returns the possible victims by their priority, the lowest first, and where the list of each priority
// ends.
func (q *question) byPriority() (list []int32, ends []int) {
	pods := q.candidates.Pods
	var priorities []int32
	var counts []int
	for p, may := range q.evictable {
		if !may {
			continue
		}
		at, known := slices.BinarySearch(priorities, pods[p].Priority)
		if !known {
			priorities, counts = slices.Insert(priorities, at, pods[p].Priority), slices.Insert(counts, at, 0)
		}
		counts[at]++
	}
	next, total := make([]int, len(counts)), 0
	for at, count := range counts {
		next[at] = total
		total += count
	}
	list = make([]int32, total)
	for p, may := range q.evictable {
		if may {
			at, _ := slices.BinarySearch(priorities, pods[p].Priority)
			list[next[at]] = int32(p)
			next[at]++
		}
	}
	return list, next
}

// sell offers candidates of one priority to pods of higher ones that come back. A gang is offered as a whole, with its
// members of the highest priority, unless it has surplus.
func (q *question) sell(m *market, level []int32) {
	for _, p := range level {
		v := &q.candidates.Pods[p]
		if v.Gang < 0 || q.gangs[v.Gang].surplus > 0 {
			if !m.isTooDear(v.Share, q.prices[p].price) {
				m.offer(v.Share, q.costAlone(p).Price)
			}
			continue
		}
		share, last := vgpu.MilliGPU(0), p
		for _, o := range q.gangs[v.Gang].running {
			share += q.candidates.Pods[o].Share
			if other := &q.candidates.Pods[o]; other.Priority > q.candidates.Pods[last].Priority || other.Priority == q.candidates.Pods[last].Priority && o < last {
				last = o
			}
		}
		if last == p {
			m.offer(share, q.costOfGang(v.Gang).Price)
		}
	}
}

// market holds the cheapest pods that others may evict when they come back: as many as give the largest share.
type market struct {
	// most is the largest share that is asked for, total what all goods give.
	most, total vgpu.MilliGPU
	// goods are ordered by the price of a thousandth of a GPU.
	goods []good
	// known is the prices that were asked for.
	known map[vgpu.MilliGPU]int64
}

// good is a pod, or a gang, with what it gives back.
type good struct {
	rate, price int64
	share       vgpu.MilliGPU
}

func (a good) compare(b good) int {
	return cmp.Or(cmp.Compare(a.rate, b.rate), cmp.Compare(a.share, b.share), cmp.Compare(a.price, b.price))
}

// isTooDear reports whether a pod with a share is none of the cheapest, at a price or a higher one.
func (m *market) isTooDear(share vgpu.MilliGPU, price int64) bool {
	return share <= 0 || m.total >= m.most && price/int64(share) > m.goods[len(m.goods)-1].rate
}

// offer adds a good if it is among the cheapest.
func (m *market) offer(share vgpu.MilliGPU, price int64) {
	if share <= 0 {
		return
	}
	g := good{price / int64(share), price, share}
	if m.total >= m.most && g.compare(m.goods[len(m.goods)-1]) >= 0 {
		return
	}
	at, _ := slices.BinarySearchFunc(m.goods, g, good.compare)
	m.goods, m.total, m.known = slices.Insert(m.goods, at, g), m.total+share, nil
	for last := len(m.goods) - 1; m.total-m.goods[last].share >= m.most; last-- {
		m.total -= m.goods[last].share
		m.goods = m.goods[:last]
	}
}

// price returns the least that goods cost which give a share, the last of them in part. It is 0 where all goods give
// less, since nobody is evicted in vain.
func (m *market) price(share vgpu.MilliGPU) (price int64) {
	if share <= 0 || share > m.total {
		return 0
	}
	if price, known := m.known[share]; known {
		return price
	}
	left := share
	for _, g := range m.goods {
		if g.share >= left {
			price = vgpu.Sum(price, g.rate*int64(left))
			break
		}
		price, left = vgpu.Sum(price, g.price), left-g.share
	}
	if m.known == nil {
		m.known = map[vgpu.MilliGPU]int64{}
	}
	m.known[share] = price
	return price
}
