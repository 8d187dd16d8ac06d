package reservation

import (
	"cmp"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Source says which API declares a gang.
type Source string

// Ref names a gang.
type Ref struct {
	Source    Source
	Namespace string
	Name      string
}

// String returns "namespace/name".
func (r Ref) String() string { return r.Namespace + "/" + r.Name }

// Compare orders refs by source, namespace and name.
func (r Ref) Compare(o Ref) int {
	return cmp.Or(cmp.Compare(r.Source, o.Source), cmp.Compare(r.Namespace, o.Namespace), cmp.Compare(r.Name, o.Name))
}

// Facts are what the API says of a gang at the moment of an event.
type Facts struct {
	Ref
	// MinCount is the least number of members that may run, 0 for unknown.
	MinCount int
	// Members exist and have not ended, by rank. Members with a deletion timestamp are among them.
	Members []Member
	// Queued says that the scheduler's queue knows the gang itself, and gates its members as a whole.
	Queued bool
	// Problem is what is wrong with the gang, nil where nothing is.
	Problem *Problem
}

// Problem is why the scheduler cannot place a gang, whatever room there is.
type Problem struct {
	Message string
	// Waits reports that something is missing that may appear by itself: members, or the PodGroup.
	Waits bool
}

// Member is a pod of a gang.
type Member struct {
	UID vgpu.UID
	// Pod is "namespace/name".
	Pod string
	// Node is the member's node in the API, "" for none.
	Node string
	// Deleted says that the member has a deletion timestamp, Gated that its scheduling gates keep it out of the queue.
	Deleted, Gated bool
	// Created and Scheduled are Unix times in seconds: of the pod's creation, and of when it got its node, 0 where it has none.
	Created, Scheduled int64
}

// Waits reports whether a member needs a place and may get one.
func (m *Member) Waits() bool { return m.Node == "" && !m.Deleted && !m.Gated }

// Leads reports whether a pod is the leader of its gang: the first by rank that waits. If no member waits, any pod is.
func (f *Facts) Leads(uid vgpu.UID) bool {
	for i := range f.Members {
		if f.Members[i].Waits() {
			return f.Members[i].UID == uid
		}
	}
	return true
}

// firstBound returns when the first of the bound members got its node, in Unix seconds, 0 for unknown.
func (f *Facts) firstBound() int64 {
	first := int64(0)
	for i := range f.Members {
		if at := f.Members[i].Scheduled; at != 0 && (first == 0 || at < first) {
			first = at
		}
	}
	return first
}

// waitedAt reports whether a member that waits existed at a time. Both times are in whole seconds.
func (f *Facts) waitedAt(at int64) bool {
	for i := range f.Members {
		if m := &f.Members[i]; m.Node == "" && !m.Deleted && m.Created <= at {
			return true
		}
	}
	return false
}
