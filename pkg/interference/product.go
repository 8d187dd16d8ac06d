package interference

import "math"

// product is the default model: how much a tenant suffers times how much its neighbours press. The profiles give both,
// and observations of the workload correct them.
//
//	log speed = Offset − e^Sensitivity · Σ over neighbours of e^Pressure′ · x + Σ over neighbours of the pair's rest
//
//	x = c0 + c1·√SM³·√(SM′·B′)   where the tenants may use the same SMs
//	x = c2 + c3·Brisk·B′         where each has SMs of its own
//
// SM and Brisk are the tenant's, SM′, B′ and Pressure′ the neighbour's. Between the two cases, where the caps add up to
// more than one device and less than two, x is the mean in proportion. So the slowdowns of two pairs multiply where
// three tenants run together. On shared SMs a kernel waits the longer, the busier its neighbour is and the more data it
// moves. A tenant with more kernels waits more often. Beside a neighbour with other SMs a kernel waits for memory, and
// short steps wait most.
//
// Example, shared SMs, c0 = 0, c1 = 0.5: SM 0.81 beside SM 0.9 and B 0.4: x = 0.5·0.729·0.6 = 0.219, speed 0.804.
var product = Model{
	Name: "default", Coefficients: []float64{.0064, .6217, .0696, .3695}, learns: true, form: byProduct,
}

// rank1 uses no profiles: every workload is as sensitive and presses as much as any other, before its first
// observation.
//
//	log speed = Offset − e^Sensitivity · Σ over neighbours of e^Pressure′ · c0
//
// For small losses that is 1 − speed = S·ΣP.
var rank1 = Model{
	Name: "rank1", Coefficients: []float64{.0763, 0, .0763, 0}, learns: true, form: byProduct,
}

// table uses measured pairs, and the default model for others.
var table = Model{Name: "table", Coefficients: product.Coefficients, learns: true, form: byProduct}

// Variances before any co-run, in logarithms: of the traits of a workload over all workloads, and of what the model
// does not explain of one pair. The values come from Lucid and Gavel, and from seeds 1 to 10 of
// docs/experiments/colocation.md. From there the book learns by how much pairs differ on a GPU model. The level is the
// mean sensitivity on a GPU model, with a small variance. A larger one follows the few pairs that suffer most, and
// predicts new families worse.
const (
	varianceOfOffset = .0025
	varianceOfLevel  = .01
	// varianceOfTrait is the variance of sensitivity and of pressure with a known profile; with a guess it is
	// guessFactor times as much. A smaller value starts with fewer doubts, but takes most rows for surprises where
	// profiles are wrong. With half of it, the result depends on the order of the workloads in settle.
	varianceOfTrait = .15
	// varianceOfPair is the variance of a pair before its first observation. The real deviation from the estimate by
	// traits is smaller for most pairs, and much larger for a few. With a smaller value the scheduler tries more pairs
	// that turn out badly. With a larger value it shares fewer GPUs until it has observed pairs.
	varianceOfPair = .01
	// typical is the part of the pairs' scatter by which traits are fitted. Pairs have heavy tails: with all of the
	// scatter, every row would count as little as the worst. A larger part learns traits later, a smaller one takes one
	// pair for the usual.
	typical = .3
	// varianceOfSpeed is the variance that nothing explains and no observation removes. The variance of one observation
	// is varianceOfNoise. Each neighbour beyond the first adds varianceOfSum, since losses do not add up exactly.
	varianceOfSpeed = .0006
	varianceOfNoise = .0004
	varianceOfSum   = .0025
)

// unproven concerns a workload that lost less than its profile says, and a neighbour that is new to it. A part of the
// square of the difference counts as a variance: a workload that hardly suffers beside seven neighbours may need what
// the eighth needs. A smaller part tries more pairs that turn out badly, a larger one shares little until it knows
// pairs.
const unproven = 1.

// guessFactor multiplies the variance of traits, and so that of an expected loss, where a profile is a guess. A larger
// factor is more careful with guesses.
const guessFactor = 2

// pressures are the sums of the pressure of tenants.
type pressures struct{ one, both, memory float64 }

func (p *pressures) add(t *Tenant) { p.plus(pressureOf(t), 1) }

func (p *pressures) plus(o pressures, sign float64) {
	p.one, p.both, p.memory = p.one+sign*o.one, p.both+sign*o.both, p.memory+sign*o.memory
}

// pressureOf returns the pressure of one tenant.
func pressureOf(t *Tenant) pressures {
	force := math.Exp(t.Pressure)
	return pressures{force, force * rootProduct(t.SM, t.Bandwidth), force * t.Bandwidth}
}

// loss returns the sum of x over the neighbours whose pressure is p.
func (p *pressures) loss(c []float64, t *Tenant, crowded float64) float64 {
	shared := c[0]*p.one + c[1]*t.SM*math.Sqrt(t.SM)*p.both
	apart := c[2]*p.one + c[3]*t.Brisk*p.memory
	return crowded*shared + (1-crowded)*apart
}

func predictProduct(c []float64, on []Tenant, out []Prediction) {
	crowded := total(on).overlap()
	var all, plain pressures // plain uses the profiles alone
	var few [16]pressures    // the pressures of the first tenants, computed once
	for i := range on {
		p := pressureOf(&on[i])
		if i < len(few) {
			few[i] = p
		}
		all.plus(p, 1)
		plain.plus(p, 1/p.one)
	}
	for i := range on {
		t := &on[i]
		var own pressures
		if i < len(few) {
			own = few[i]
		} else {
			own = pressureOf(t)
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

// alike returns how many of the neighbours of a tenant are of the same workload as one of them: they have the same
// error.
func alike(on []Tenant, of, j int) float64 {
	n := 0.
	for k := range on {
		if k != of && (k == j || on[k].Workload == on[j].Workload && on[k].Workload != 0) {
			n++
		}
	}
	return n
}

// doubtOf returns the variance of the logarithm of a speed that comes from the doubt about offset, sensitivity and
// pressure. The argument easier is by how much less the tenant loses than by the profiles alone. An observed pair has
// less of this doubt, since its traits together explain the observations.
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
