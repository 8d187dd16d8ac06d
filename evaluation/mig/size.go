package mig

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Bounds of Config.
const (
	// DefaultPermille is ParvaGPU's: half of the SLO for a batch, less a tenth for other work on the request. A larger
	// one admits slower batches and leaves less time for the rest.
	DefaultPermille = 450
	// DefaultSums proves ParvaGPU's sets at three times their rates within 30 ms. A smaller number is faster and may
	// cost a device.
	DefaultSums = 1024
	// MaxDevices bounds a plan.
	MaxDevices = 10_000
)

// Config says how Size decides. Zero values stand for the defaults.
type Config struct {
	// Permille is how many thousandths of its SLO a batch may take, from 1 to 1000.
	Permille int
	// Sums bounds how many choices for the first models the search keeps while it adds the next.
	Sums int
}

// Plan says which instances serve which models, and where.
type Plan struct {
	// Devices with their instances.
	Devices []Device
	// Refused are the models without a fast enough variant, by name; the devices serve the others.
	Refused []Refusal
	// LowerBound is the least number of devices of any plan: every mix of instances needs as many compute slices,
	// memory slices and starts.
	LowerBound int
	// Optimal says that no plan has fewer devices: the plan meets the bound, or the search left nothing out.
	Optimal bool
	Stats   Stats
}

// Stats counts the work of the search.
type Stats struct {
	// Mixes of instances of single models that the search considered, and Sums of them over several models.
	Mixes, Sums int
	// Cut says that the search left something out: the mixes of a model with a very high rate, or sums beyond
	// Config.Sums.
	Cut bool
}

// model is a demand that some variant serves.
type model struct {
	name     string
	want     Rate
	variants usableVariants
	mixes    []mix
	whole    bool // the search left no mix out
}

// Size chooses instances for all demands on the fewest devices; of such plans one with the fewest compute slices. The
// order of demands and of variants does not matter. A model without a fast enough variant gets a refusal, and the plan
// serves the others. The error names a broken demand or two demands of one model, or says that a plan would need more
// than MaxDevices.
func Size(demands []Demand, cfg Config) (*Plan, error) {
	cfg.Permille = cmp.Or(cfg.Permille, DefaultPermille)
	cfg.Sums = cmp.Or(cfg.Sums, DefaultSums)
	if cfg.Permille < 1 || cfg.Permille > 1000 || cfg.Sums < 1 {
		return nil, fmt.Errorf("size replicas: %d thousandths of the SLO and %d sums: legal are 1 to 1000, and 1 or more", cfg.Permille, cfg.Sums)
	}
	demands = slices.Clone(demands)
	slices.SortStableFunc(demands, func(a, b Demand) int { return strings.Compare(a.Model, b.Model) })
	plan := &Plan{}
	var models []model
	for i := range demands {
		d := &demands[i]
		if err := d.validate(); err != nil {
			return nil, fmt.Errorf("size replicas of model %q: %w", d.Model, err)
		}
		if i > 0 && demands[i-1].Model == d.Model {
			return nil, fmt.Errorf("size replicas of model %q: it has two demands", d.Model)
		}
		o, refused := usableOf(d, Limit(d.SLO, cfg.Permille))
		if refused != nil {
			plan.Refused = append(plan.Refused, *refused)
		} else {
			models = append(models, model{name: d.Model, want: d.Rate, variants: o})
		}
	}
	return plan, plan.serve(models, cfg.Sums)
}

// serve adds the devices that serve the models.
func (p *Plan) serve(models []model, most int) error {
	for i := range models {
		m := &models[i]
		if least := boundOf(models[i : i+1]); least > MaxDevices {
			return tooMany(least)
		}
		m.mixes, m.whole = mixesOf(&m.variants, m.want)
		p.Stats.Mixes += len(m.mixes)
		p.Stats.Cut = p.Stats.Cut || !m.whole
	}
	p.LowerBound = boundOf(models)
	best := p.sum(models, min(firstSums, most), most)
	if devices := best.used.devices(); devices > MaxDevices {
		return tooMany(devices)
	}
	var instances []Instance
	for i, m := len(models)-1, best; i >= 0; i, m = i-1, m.from {
		for s, n := range m.own {
			if n > 0 {
				one := Instance{Model: models[i].name, Variant: *models[i].variants[s]}
				instances = append(instances, slices.Repeat([]Instance{one}, n)...)
			}
		}
	}
	var err error
	p.Devices, err = Pack(instances)
	return err
}

func tooMany(devices int) error {
	return fmt.Errorf("size replicas: %d devices or more are needed, at most %d are legal", devices, MaxDevices)
}
