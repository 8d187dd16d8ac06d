package lifetime

import (
	"cmp"
	"math"
)

const (
	// fromStart bounds the first word of a pod that did all of its work since its start: pods tell each hundredth. A pod whose first word is
	// larger may have resumed the work of another one. Larger takes such a pod for a fast one; smaller waits for a second word more often.
	fromStart = .02
	// judged is how many words of a pod are judged at its end: those that stood when it had reached an eighth to a quarter of its length, twice
	// that, and four times that. More would judge pods by words of their start-up, when little is known; fewer would leave lies out.
	judged = 3
)

// Progress is what a pod has said so far of the part of its work that it has done. The zero value has said nothing. It takes the same memory
// however much the pod says.
type Progress struct {
	// said is that the pod has said something. base is the word from which its speed counts, done the last word.
	said bool
	base struct{ age, done float64 }
	done float64
	// whole is the length to which the words point. claim is the one to which they point if the pod began at its start with nothing done.
	// These differ until the pod has done something since a first word of more than a half.
	whole, claim float64
	// marks are the claims that stood at the ages before next, each half of the one after it. Next is a power of 2, 0 for 1.
	marks [judged]float64
	next  float64
}

// Say notes that the pod says at an age in seconds that it has done a part of its work, 0 to 1, where 0 takes back what it said. Ages grow from
// call to call. A word that the pod says again changes nothing.
//
// The rest is expected to go on at the slower of two speeds: the one since the start, and the one since the first word, by which a pod
// counts that resumed. After the first word only the former is known, and a pod that says more than a half takes as long again as it ran.
//
// Example: a pod says 0.9 at 60 s and 0.91 at 360 s. At first it takes 60 s more. Then it does a hundredth in 300 s, so it takes 2700 s more.
func (p *Progress) Say(age, done float64) {
	p.pass(age)
	before := p.done
	if p.done = done; done == before {
		return
	}
	switch {
	case done <= 0:
		p.whole, p.claim = 0, 0
		return
	case !p.said || done <= p.base.done: // a pod that fell behind its first word begins anew
		p.said = true
		p.base.age, p.base.done = age, done
		if done <= fromStart {
			p.base.age, p.base.done = 0, 0
		}
		p.whole, p.claim = Project(age, min(done, .5)), Project(cmp.Or(age, 1), done)
		return
	case before > 0 && before == p.base.done && done < 1:
		p.unmark(p.base.age) // only now it is known whether it resumed: then it did not claim to be that fast
	}
	p.whole = age + (1-done)*(age-p.base.age)/(done-p.base.done)
	if p.whole = max(p.whole, Project(age, done)); !(p.whole <= longest) {
		p.whole = 0
	}
	p.claim = p.whole
}

// Projected returns the length in seconds to which the words point, as in Pod. It stands until the pod says another word.
func (p *Progress) Projected() float64 { return p.whole }

// Judged returns the Projected by which the words of a pod are learned, given its length at its end: of those that stood in its middle, the one
// that is farthest from the length. A word at the end of a pod is near to its length in any case and counts for nothing. A word that the pod
// has outlived counts as its age. The result is 0 where the pod said nothing by then.
//
// Example: a pod says 0.95 from its first second on, and ends after 1000 s. It said so at 128 s, at 256 s and at 512 s, of which 128 s is farthest
// from 1000 s.
func (p *Progress) Judged(length float64) float64 {
	end, farthest := *p, 0.0
	end.pass(length)
	for _, claim := range end.marks {
		if claim > 0 && (farthest == 0 || math.Abs(math.Log(claim/length)) > math.Abs(math.Log(farthest/length))) {
			farthest = claim
		}
	}
	return farthest
}

// pass notes what the pod claims at each power of 2 seconds up to an age.
func (p *Progress) pass(age float64) {
	for p.next = max(1, p.next); p.next <= min(age, longest); p.next *= 2 {
		copy(p.marks[:], p.marks[1:])
		p.marks[judged-1] = 0
		if p.claim > 0 {
			p.marks[judged-1] = max(p.claim, p.next)
		}
	}
}

// unmark drops what the pod claimed after an age.
func (p *Progress) unmark(age float64) {
	at := p.next
	for i := judged - 1; i >= 0; i-- {
		if at /= 2; at > age {
			p.marks[i] = 0
		}
	}
}
