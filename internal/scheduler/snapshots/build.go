package snapshots

import (
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

// Shares knows nodes, devices, and the pods that wait: the plugin GPUShare.
type Shares interface {
	SnapshotNodes(gangOf func(*v1.Pod) *snapshot.GangName) []snapshot.Node
	SnapshotPending(most int, gangOf func(*v1.Pod) *snapshot.GangName) (pending []snapshot.Pending, leftOut int)
}

// Groups knows gangs and preemptions: a *machine.Machine.
type Groups interface {
	SnapshotGang(pod *v1.Pod) *snapshot.GangName
	SnapshotGangs() ([]snapshot.Gang, []snapshot.Preemption)
	SnapshotTargets() []snapshot.ElasticTarget
}

// mostPending bounds the pods that wait in a snapshot. With more, a cluster in which a user has made 100,000 pods would have a
// snapshot that is mostly about these.
const mostPending = 1000

// Sources are what a snapshot is made from.
type Sources struct {
	Shares Shares
	Groups Groups
	// Fleets returns the InferenceFleets, sorted.
	Fleets func() []snapshot.InferenceFleet
}

// build makes a snapshot without a time.
func (s *Sources) build() *snapshot.Snapshot {
	out := &snapshot.Snapshot{Source: snapshot.FromScheduler, At: time.Time{}}
	out.Nodes = s.Shares.SnapshotNodes(s.Groups.SnapshotGang)
	out.Pending, out.PendingLeftOut = s.Shares.SnapshotPending(mostPending, s.Groups.SnapshotGang)
	out.Gangs, out.Preemptions = s.Groups.SnapshotGangs()
	out.ElasticTargets = s.Groups.SnapshotTargets()
	out.InferenceFleets = s.Fleets()
	return out
}
