package mig

import (
	"cmp"
	"math"
	"slices"
)

// maxOwn bounds the search for the mixes of one model: it tries all mixes of up to about that many instances. A model
// that needs more first gets devices of its own. A larger bound finds better mixes of such models. The time grows with
// its third to fourth power; sets of a dozen models need less than 40.
const maxOwn = 64

// mix is a choice of instances for one model, or the sum of such choices.
type mix struct {
	used      usage
	instances int
	// own are the instances of the last model, from is the sum of the others.
	own  counts
	from *mix
}

// newMix returns the mix of one model.
func newMix(n counts) mix {
	m := mix{used: n.used(), own: n}
	for _, of := range n {
		m.instances += of
	}
	return m
}

// plus returns the sum with the mix of one more model.
func (m *mix) plus(one *mix) mix {
	return mix{used: m.used.plus(one.used), instances: m.instances + one.instances, own: one.own, from: m}
}

// compareMixes orders mixes of the same use: the fewest instances first. Among equal sums the first models decide.
func compareMixes(a, b *mix) int {
	if c := cmp.Compare(a.instances, b.instances); c != 0 {
		return c
	}
	if a.from != nil && a.from != b.from {
		if c := compareMixes(a.from, b.from); c != 0 {
			return c
		}
	}
	return slices.Compare(a.own[:], b.own[:])
}

// leading returns the mixes such that no other mix uses less of every law, up to most of them. Those come first that
// leave the laws the most room when rest is used too. If mixes have the same usage, it keeps one. leading overwrites
// the list.
func leading(all []mix, rest usage, most int) []mix {
	slices.SortFunc(all, func(a, b mix) int {
		return cmp.Or(cmp.Compare(a.used.plus(rest).tightness(), b.used.plus(rest).tightness()),
			slices.Compare(a.used[:], b.used[:]), compareMixes(&a, &b))
	})
	kept := all[:0]
	for i := range all {
		m := all[i] // a copy: the list keeps mixes that use less at earlier places
		if slices.ContainsFunc(kept, func(k mix) bool { return k.used.within(m.used) }) {
			continue
		}
		if kept = append(kept, m); len(kept) == most {
			break
		}
	}
	return kept
}

// mixesOf returns the leading mixes that reach a rate, and whether it left none out.
func mixesOf(o *usableVariants, want Rate) (all []mix, whole bool) {
	known := o.known()
	var aside counts
	rest := want
	if most := o[known[len(known)-1]].Rate * maxOwn; want > most {
		full := o.fullest()
		n := (want - most) / o.rate(full)
		for s := range aside {
			aside[s] = int(n) * full[s]
		}
		rest -= n * o.rate(full)
	}
	o.each(known, rest, aside, func(n counts) {
		if all = append(all, newMix(n)); len(all) == cap(all) {
			all = leading(all, usage{}, math.MaxInt) // this keeps the list short
		}
	})
	return leading(all, usage{}, math.MaxInt), rest == want
}

// each calls found for all mixes of the known sizes that, with the instances in have, reach a rate. No mix has more of
// the smallest instances than needed.
func (o *usableVariants) each(known []int, want Rate, have counts, found func(counts)) {
	s, before := known[0], have[known[0]]
	most := ceil(want, o[s].Rate)
	for n := range most {
		have[s] = before + n
		if len(known) > 1 {
			o.each(known[1:], want-Rate(n)*o[s].Rate, have, found)
		}
	}
	have[s] = before + most
	found(have)
}

// fullest returns the instances on one device that reach the highest rate.
func (o *usableVariants) fullest() counts {
	var best counts
	o.fill(o.known(), counts{}, func(n counts) {
		if o.rate(n) > o.rate(best) {
			best = n
		}
	})
	return best
}

// fill calls found for all mixes of the known sizes that fit on one device.
func (o *usableVariants) fill(known []int, have counts, found func(counts)) {
	if len(known) == 0 {
		found(have)
		return
	}
	for ; have.used().devices() <= 1; have[known[0]]++ {
		o.fill(known[1:], have, found)
	}
}

// ceil returns a/b rounded up, for a ≥ 0.
func ceil(a, b Rate) int { return int((a + b - 1) / b) }
