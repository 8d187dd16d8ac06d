package resize

import (
	"time"

	"github.com/tandem-gpu/tandem/pkg/elastic"
)

// View is what the API shows of a gang.
type View struct {
	// Sizes are the legal numbers of members, ascending. Possible are those for which there are members, or will be.
	Sizes, Possible []int
	// Number is that of the target, 0 where there is no target. Since is when it got the number, zero where that is unknown.
	Number int
	Since  time.Time
	// Members are those that exist, in the order of their ranks. Pods that members left when they ended are among them.
	Members []Member
	// Running counts the members that run.
	Running int
	// Reach is the least number that counts as many members as must run, 0 where any number does.
	Reach int
	// Lacks says why further members have no places, "" where that is unknown.
	Lacks string
	// Fixed says that the number must not change for a reason that is not of this package. Unread says that the owner could not be read.
	Fixed, Unread bool
	// Paused has the number, the members and the owner's field stay as they are. Pin is the number that a user wants, one of Sizes, 0 for none.
	Paused bool
	Pin    int
	// Owner is the object whose field says how many members there are, nil where the gang has none, or may not use it.
	Owner *Owner
	// Before is the refusal of this owner that an earlier process found, nil for none.
	Before *Refusal
}

// Member is a member of a gang, or a pod that one left.
type Member struct {
	ID string
	// Within is the least number that counts the member: with a smaller one it leaves. It is 0 for a member that no number has leave.
	Within int
	// Running: the member has a node and no deletion timestamp. Waits: it has neither. Unfinished: it has a deletion timestamp or finalizers,
	// so that its owner still counts it.
	Running, Waits, Unfinished bool
	// Notified: the member has a notice. Leaves is the time in it, zero where it has none that can be read.
	Notified bool
	Leaves   time.Time
}

// Owner is the object whose field says how many members there are.
type Owner struct {
	UID        string
	Generation int64
	// Number is that of the field.
	Number int
}

// Size returns the size that a gang has by its target, or by what runs where it has none.
func (v *View) Size() int {
	if v.Number > 0 {
		return elastic.SizeBelow(v.Sizes, v.Number)
	}
	return elastic.SizeBelow(v.Sizes, v.Running)
}

// Kept returns the size of a gang that must not change: that of its target while it runs, since members that are missing come
// back; else its least number. While it is paused, members that run do not leave. If an owner refuses the number, it is the size that its field still allows.
func (v *View) Kept() int {
	switch {
	case v.Paused && v.Number > 0:
		return elastic.SizeBelow(v.Sizes, max(v.Number, v.Running))
	case v.Number == 0 || v.Running == 0:
		return elastic.SizeBelow(v.Sizes, max(v.Running, 1))
	case v.Owner != nil:
		return elastic.SizeBelow(v.Sizes, min(v.Owner.Number, max(v.Size(), v.Running)))
	}
	return v.Size()
}

// Beyond returns the members that run and leave with a number.
func (v *View) Beyond(number int) (all []Member) {
	for _, m := range v.Members {
		if m.Running && m.Within > number {
			all = append(all, m)
		}
	}
	return all
}

// surplus counts the members beyond the owner's number that its controller has not begun to delete.
func (v *View) surplus(number int) (count int) {
	for _, m := range v.Members {
		if m.Within > number && (m.Running || m.Waits) {
			count++
		}
	}
	return count
}

// counts returns the least size that counts all members that do not end, the largest one where there is none.
func (v *View) counts() int {
	most := 0
	for _, m := range v.Members {
		if m.Running || m.Waits {
			most = max(most, m.Within)
		}
	}
	for _, size := range v.Sizes {
		if size >= most {
			return size
		}
	}
	return v.Sizes[len(v.Sizes)-1]
}

// ending reports whether members beyond the owner's number have not quite ended.
func (v *View) ending() bool {
	for _, m := range v.Members {
		if m.Within > v.Owner.Number && m.Unfinished {
			return true
		}
	}
	return false
}
