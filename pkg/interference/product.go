package interference

import "math"

// product is the default model: how much a tenant suffers times how much its neighbours press, each as the profile says
// and corrected by what was observed of the workload.
//
//	log speed = Offset − e^Sensitivity · Σ over neighbours of e^Pressure′ · x + Σ over neighbours of the pair's rest
//
//	x = c0 + c1·√SM³·√(SM′·B′)   where the tenants may use the same SMs
//	x = c2 + c3·Brisk·B′         where each has SMs of its own
//
// SM and Brisk are the tenant's, SM′, B′ and Pressure′ the neighbour's. Between the two cases, where the caps add up to
// more than one device and less than two, x is the mean in proportion. So the slowdowns of two pairs multiply where three
// run together. A kernel that waits for SMs waits the longer the more its neighbour is busy and moves, and the more often
// it has one to run; beside a neighbour with other SMs it waits for memory, and short steps wait most.
//
// Example, shared SMs, c0 = 0, c1 = .5: SM .81 beside SM .9 and B .4: x = .5·.729·.6 = .219, speed .804.
var product = Model{
	Name: "default", Coefficients: []float64{.0064, .6217, .0696, .3695}, learns: true, form: byProduct,
}

// rank1 knows no profiles: every workload is as sensitive and presses as much as any, until it is observed.
//
//	log speed = Offset − e^Sensitivity · Σ over neighbours of e^Pressure′ · c0
//
// For small losses that is 1 − speed = S·ΣP.
var rank1 = Model{
	Name: "rank1", Coefficients: []float64{.0763, 0, .0763, 0}, learns: true, form: byProduct,
}

// table knows measured pairs, and is the default model for those that were not measured.
var table = Model{Name: "table", Coefficients: product.Coefficients, learns: true, form: byProduct}

// Variances before any co-run, in logarithms: of the traits of a workload over all workloads, and of what the model leaves
// of one pair. They were chosen on Lucid and Gavel, and on seeds 1 to 10 of docs/experiments/colocation.md; by how much
// pairs differ on a GPU model is then learned, from there. The level is the mean sensitivity on a GPU model,
// which moves little: where it is free, it follows the few pairs that suffer most, and new families are predicted worse.
const (
	varianceOfOffset = .0025
	varianceOfLevel  = .01
	// varianceOfTrait is that of sensitivity and of pressure where the profile is known; where it is a guess, guessFactor
	// times as much. Smaller starts with fewer doubts, but where profiles are wrong it takes most rows for surprises: with
	// half of it, what is learned then depends on the order in which the workloads are gone over.
	varianceOfTrait = .15
	// varianceOfPair is the variance that is assumed for a pair before its first observation. The real deviation from the
	// estimate by traits is smaller for most pairs, and much larger for a few. With a smaller value the scheduler tries more
	// pairs that turn out badly. With a larger value it shares fewer GPUs until pairs have been observed.
	varianceOfPair = .01
	// typical is the part of the pairs' scatter by which traits are fitted. Pairs have heavy tails: with all of it, every
	// row is believed as little as the worst. Larger learns traits later, smaller takes one pair for what is usual.
	typical = .3
	// varianceOfSpeed is what nothing explains and no observation removes; varianceOfNoise that of one observation, and
	// varianceOfSum that for each neighbour beyond the first, since losses do not add up exactly.
	varianceOfSpeed = .0006
	varianceOfNoise = .0004
	varianceOfSum   = .0025
)

// unproven is the part that counts as a variance, of the square of what a workload was seen to lose less than its profile says,
// beside a neighbour that it was not seen with: a workload that hardly suffers beside seven neighbours may want what the eighth
// wants. Less tries more pairs that turn out badly, more shares little until pairs are known.
const unproven = 1.

// guessFactor is by how much the variance of traits, and so that of an expected loss, grows where a profile is a guess.
const guessFactor = 2

// presses is what all tenants together press with.
type presses struct{ one, both, memory float64 }

func (p *presses) add(t *Tenant) { p.plus(pressOf(t), 1) }

func (p *presses) plus(o presses, sign float64) {
	p.one, p.both, p.memory = p.one+sign*o.one, p.both+sign*o.both, p.memory+sign*o.memory
}

// pressOf returns what one tenant presses with.
func pressOf(t *Tenant) presses {
	force := math.Exp(t.Pressure)
	return presses{force, force * rootProduct(t.SM, t.Bandwidth), force * t.Bandwidth}
}

// loss returns the sum of x over the neighbours whose pressure is p.
func (p *presses) loss(c []float64, t *Tenant, crowded float64) float64 {
	shared := c[0]*p.one + c[1]*t.SM*math.Sqrt(t.SM)*p.both
	apart := c[2]*p.one + c[3]*t.Brisk*p.memory
	return crowded*shared + (1-crowded)*apart
}

func predictProduct(c []float64, on []Tenant, out []Prediction) {
	crowded := total(on).crowded()
	var all, plain presses // plain is by the profiles alone
	var few [16]presses    // of the first tenants, so that they are worked out once
	for i := range on {
		p := pressOf(&on[i])
		if i < len(few) {
			few[i] = p
		}
		all.plus(p, 1)
		plain.plus(p, 1/p.one)
	}
	for i := range on {
		t := &on[i]
		var own presses
		if i < len(few) {
			own = few[i]
		} else {
			own = pressOf(t)
		}
		others, plainly, pressure, rest, pair := all, plain, 0., 0., 0.
		others.plus(own, -1)
		plainly.plus(own, -1/own.one)
		for j := range on {
			if j != i {
				left, doubt := t.Pairs.of(on[j].Workload)
				pressure, rest, pair = pressure+1-on[j].SurePressure, rest+left, pair+doubt*alike(on, i, j)
			}
		}
		loss, n := others.loss(c, t, crowded)*math.Exp(t.Sensitivity), float64(len(on)-1)
		easier := plainly.loss(c, t, crowded)*math.Exp(t.Level) - loss
		out[i].Speed = math.Exp(t.Offset - loss + rest)
		out[i].Error = math.Sqrt(varianceOfSpeed + varianceOfPair*pair + pair/n*doubtOf(on, t, loss, easier, pressure/n))
	}
}

// alike returns how many of the neighbours of a tenant are of the workload of one of them: their errors are the same error.
func alike(on []Tenant, of, j int) float64 {
	n := 0.
	for k := range on {
		if k != of && (k == j || on[k].Workload == on[j].Workload && on[k].Workload != 0) {
			n++
		}
	}
	return n
}

// doubtOf returns the variance of the logarithm of a speed that is due to the doubt about offset, sensitivity and pressure; easier
// is by how much less the tenant loses than by the profiles alone. A pair that was observed has the less of it: whatever they
// are, together they make what was seen.
func doubtOf(on []Tenant, t *Tenant, loss, easier, pressure float64) float64 {
	offset, of := varianceOfOffset*(1-t.SureOffset), loss*loss*varianceOfTrait*(1-t.SureSensitivity+pressure)
	for i := range on {
		if on[i].Guessed {
			return offset + guessFactor*of
		}
	}
	if easier > 0 {
		of += unproven * easier * easier
	}
	return offset + of
}
