package experiment

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/evaluation/results"
	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// ratedRun is one list of prices, policy, choice and seed, and what came of it.
type ratedRun struct {
	rating *Rating
	apps   map[string]map[string]float64
	prices map[string]int64
	policy string
	choice *choice
	seed   int64
	table  *placement.Rates
	offers []vgpu.Offer

	// after is the sum after each number of jobs with a look.
	after []spent
}

// spent is the sum so far: costs in millionths an hour, and jobs.
type spent struct {
	jobs                  int
	shares, devices       int64
	met, missed, unplaced int
}

// cheapestShare requests the share that reaches the rate at the least cost, as the scheduler does for a wanted rate.
func cheapestShare(r *ratedRun, w wanting) (vgpu.Request, bool) {
	variants, miss := r.table.Variants(placement.Wanted{Profile: w.app, Rate: w.rate, Least: 1}, r.offers)
	return ask(1, variants), miss == nil
}

// cheapestModel requests the share that reaches the rate on the model whose devices cost the least, of those that reach
// it.
func cheapestModel(r *ratedRun, w wanting) (vgpu.Request, bool) {
	request, ok := cheapestShare(r, w)
	for i := range request.Variants {
		v := &request.Variants[i]
		v.Cost = r.prices[v.Model]
	}
	return request, ok
}

// anyModel requests the share that reaches the rate on whichever model the policy prefers.
func anyModel(r *ratedRun, w wanting) (vgpu.Request, bool) {
	request, ok := cheapestShare(r, w)
	for i := range request.Variants {
		request.Variants[i].Cost = 0
	}
	return request, ok
}

// sameSlots knows no models: it requests as many slots as reach the rate on every model, a whole device where one does
// not reach it at all.
func sameSlots(r *ratedRun, w wanting) (vgpu.Request, bool) {
	most := vgpu.Slots(1)
	for model := range r.rating.Devices {
		share, ok := r.table.Share(w.app, model, w.rate)
		if !ok {
			share = vgpu.WholeGPU
		}
		most = max(most, vgpu.SlotsOf(share, ratedSlots))
	}
	return ask(most, nil), true
}

// measuredSlots knows no models: it requests the slots of the measurement, on any model.
func measuredSlots(_ *ratedRun, w wanting) (vgpu.Request, bool) { return ask(w.measured, nil), true }

func ask(slots vgpu.Slots, variants []vgpu.Variant) vgpu.Request {
	return vgpu.Request{Containers: []vgpu.ContainerRequest{{Name: "main", Slots: slots}}, Variants: variants}
}

// play gives every job its share and books what it costs.
func (r *ratedRun) play() error {
	c, err := r.rating.cluster()
	if err != nil {
		return err
	}
	r.offers = vgpu.Offers(c.Nodes())
	jobs := r.rating.draw(r.apps, r.seed)
	policy, err := r.ruling(jobs)
	if err != nil {
		return err
	}
	var sum spent
	touched := map[vgpu.DeviceID]bool{}
	for i, w := range jobs {
		request, possible := r.choice.request(r, w)
		request.UID, request.Pod = vgpu.UID(fmt.Sprintf("job-%06d", i)), fmt.Sprintf("jobs/job-%06d", i)
		sum.jobs++
		var place *vgpu.Assignment
		if possible {
			plan, err := placement.Choose(c, &request, placement.Config{Policy: policy})
			if err != nil {
				return err
			}
			place = plan.Place
		}
		if place == nil {
			sum.unplaced++
		} else if err := r.book(c, place, w, &sum, touched); err != nil {
			return err
		}
		if sum.jobs*loadSteps/len(jobs) > (sum.jobs-1)*loadSteps/len(jobs) {
			r.after = append(r.after, sum)
		}
	}
	return c.Check()
}

func (r *ratedRun) ruling(jobs []wanting) (placement.Policy, error) {
	policy, err := placement.ByName(r.policy)
	if err != nil {
		return policy, err
	}
	mix, err := usualShares(jobs)
	return policy.With(mix, r.seed), err
}

// rounding is the part of a rate by which floating-point numbers may differ.
const rounding = 1e-9

// book adds an assignment to the ledger and to the sum. The device and the slots of the assignment and the measured
// rate decide whether the job reaches its rate, not the chooser's belief.
func (r *ratedRun) book(c *vgpu.Cluster, a *vgpu.Assignment, w wanting, sum *spent, touched map[vgpu.DeviceID]bool) error {
	n, share := c.Node(a.Node), a.Containers[0].Share
	for _, id := range a.Containers[0].Devices {
		d := &n.Devices()[n.Index(id)]
		price := r.prices[d.Model]
		sum.shares += price * int64(share.Slots) / int64(d.Slots)
		if !touched[id] {
			touched[id] = true
			sum.devices += price
		}
		reached := r.apps[w.app][d.Model] * float64(share.Slots) / float64(d.Slots)
		if reached*(1+rounding) >= float64(w.rate)/1e6 {
			sum.met++
		} else {
			sum.missed++
		}
	}
	return c.Add(*a)
}

// summed sums the runs of all seeds up, a result per number of jobs.
func summed(runs []ratedRun) []results.RateResult {
	first := &runs[0]
	all := make([]results.RateResult, 0, len(first.after))
	for k := range first.after {
		over := func(figure func(spent) float64) results.Spread {
			figures := make([]float64, 0, len(runs))
			for i := range runs {
				figures = append(figures, figure(runs[i].after[k]))
			}
			return results.SpreadOf(figures)
		}
		all = append(all, results.RateResult{
			Prices: PricesText(first.prices), Policy: first.policy, Choice: first.choice.name, Seeds: first.rating.Seeds, Jobs: first.after[k].jobs,
			CostPerHour:       over(func(s spent) float64 { return float64(s.shares) / 1e6 }),
			DeviceCostPerHour: over(func(s spent) float64 { return float64(s.devices) / 1e6 }),
			Met:               over(func(s spent) float64 { return float64(s.met) }),
			Missed:            over(func(s spent) float64 { return float64(s.missed) }),
			Unplaced:          over(func(s spent) float64 { return float64(s.unplaced) }),
		})
	}
	return all
}

// PricesText writes prices as the command reads them: "k80=0.45,v100=2.48".
func PricesText(prices map[string]int64) string {
	words := make([]string, 0, len(prices))
	for _, model := range slices.Sorted(maps.Keys(prices)) {
		words = append(words, model+"="+placement.Rate(prices[model]).String())
	}
	return strings.Join(words, ",")
}
