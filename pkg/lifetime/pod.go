package lifetime

import (
	"cmp"
	"fmt"
	"math"
)

// Pod is what is known of a pod before it ends. Attributes that are not known are empty, or zero.
type Pod struct {
	// User is whose pod it is, such as a namespace. Workload is what runs, such as an image or the name of a job without its number.
	// Model is the GPU model.
	User, Workload, Model string
	// Size is the compute that the pod asks for, all its devices together, in a unit that is the same for all pods: slots, or thousandths of
	// a GPU.
	Size int
	// Declared is the whole length in seconds that the pod declares, and Projected the one that its progress points to: see Progress. For
	// a pod that no longer runs, it is the one by which its words are judged. Zero stands for no such word.
	Declared, Projected float64
}

// Observation is a pod that no longer runs.
type Observation struct {
	Pod
	// Length is how many seconds it ran.
	Length float64
	// Stopped says that it did not end by itself, such as one that was evicted: it would have run longer.
	Stopped bool
}

// longest bounds lengths: 2^30 s are 34 years.
const longest = 1 << 30

// Project returns the length in seconds of a pod that has done a part of its work, 0 to 1, since its start: its age ÷ the part. It returns 0, no
// word, where the part or the age is 0, or the pod would take longer than any.
func Project(age, done float64) float64 {
	if whole := age / done; age > 0 && whole <= longest {
		return whole
	}
	return 0
}

func (p Pod) validate() error {
	if err := cmp.Or(legal("declared", p.Declared), legal("projected", p.Projected)); err != nil {
		return err
	}
	if p.Size < 0 {
		return fmt.Errorf("size %d, legal is 0 or more", p.Size)
	}
	return nil
}

func legal(name string, seconds float64) error {
	if math.IsNaN(seconds) || seconds < 0 || seconds > longest {
		return fmt.Errorf("%s %v seconds, legal is 0 to %d", name, seconds, longest)
	}
	return nil
}

// attributes says by which attributes a group tells pods apart.
type attributes uint8

const (
	byUser attributes = 1 << iota
	bySize
	byModel
	byWorkload
	// declared and projected say that lengths of the group are measured in parts of the word, not in seconds.
	declared
	projected
)

// key names a group of pods alike.
type key struct {
	by                    attributes
	user, workload, model string
	size                  int
}

// known are the attributes that the pod has.
func (p Pod) known() attributes {
	var known attributes
	for _, a := range []struct {
		has bool
		by  attributes
	}{{p.User != "", byUser}, {p.Workload != "", byWorkload}, {p.Model != "", byModel}, {p.Size != 0, bySize}} {
		if a.has {
			known |= a.by
		}
	}
	return known
}

// key returns the group of the pod that the attributes tell apart.
func (p Pod) key(by attributes) key {
	k := key{by: by}
	if by&byUser != 0 {
		k.user = p.User
	}
	if by&byWorkload != 0 {
		k.workload = p.Workload
	}
	if by&byModel != 0 {
		k.model = p.Model
	}
	if by&bySize != 0 {
		k.size = p.Size
	}
	return k
}

// word is a length that the pod itself gives, and the groups that know how right such words are.
type word struct {
	by      attributes
	seconds float64
}

// words are those that the pod gives, the more reliable one last.
func (p Pod) words() []word {
	all := make([]word, 0, 2)
	for _, w := range []word{{declared, p.Declared}, {projected, p.Projected}} {
		if w.seconds > 0 {
			all = append(all, w)
		}
	}
	return all
}
