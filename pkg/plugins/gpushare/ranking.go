package gpushare

import (
	"sync"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// ranking remembers, between cycles, what is the same for most of the nodes: between two pods one or two nodes change.
// Without it a cycle at 5,000 nodes spends most of its time on looking nodes up by name and scoring them again.
type ranking struct {
	mu      sync.Mutex
	entries []nodeEntry
	known   int // number of nodes in the state at the time of the entries
	// scores by the rule.
	rule   *rule
	scores *placement.Ranking
	// entrants is the list of the last comparison, for the next.
	entrants []placement.Entrant
	// turn is the place after the last that withoutGPUs looked at.
	turn int
}

// nodeEntry is the plugin's node of one place in the framework's list of nodes, and the state of its ledger.
type nodeEntry struct {
	info   fwk.NodeInfo
	node   *node
	ledger *vgpu.Node
	state  placement.State
}

// nodeEntries returns the entries of the framework's nodes. The caller holds ranking.mu and a lock of the state. The
// framework's NodeInfos stay the same objects while nodes come and go, so that one look-up per object suffices.
func (s *state) nodeEntries(nodes []fwk.NodeInfo) []nodeEntry {
	r := &s.ranking
	if len(r.entries) != len(nodes) || r.known != len(s.nodes) {
		r.entries, r.known = make([]nodeEntry, len(nodes)), len(s.nodes)
	}
	for i, info := range nodes {
		if r.entries[i].info != info {
			r.entries[i] = nodeEntry{info: info, node: s.nodes[info.Node().Name]}
		}
	}
	return r.entries
}

// withoutGPUs returns nodes without GPUs that could meet the demand, up to shortlistSize, from the place where the last call ended.
// Pods strand no GPU there, so the other plugins choose among these nodes, and spread the pods as they would anyway.
func (r *ranking) withoutGPUs(d *demand) []candidate {
	var found []candidate
	for range r.entries {
		entry := &r.entries[r.turn%len(r.entries)]
		r.turn = (r.turn + 1) % len(r.entries)
		if (entry.node == nil || entry.node.problem == noGPUs) && d.couldBeMet(entry.info) {
			found = append(found, candidate{NodeScore: fwk.NodeScore{Name: entry.info.Node().Name, Score: strandsNothing}})
			if len(found) == shortlistSize {
				break
			}
		}
	}
	return found
}

// scoresOf returns what is remembered of requests like r by a rule.
func (r *ranking) scoresOf(request *vgpu.Request, now *rule) *placement.Scores {
	switch {
	case r.rule == nil:
		r.scores = placement.NewRanking(now.Policy)
	case r.rule != now:
		r.scores.Use(now.Policy)
	}
	r.rule = now
	r.scores.Expect(len(r.entries))
	return r.scores.For(request)
}

// stateOf returns the state of an entry's node with the ledger.
func (r *ranking) stateOf(at *nodeEntry, ledger *vgpu.Node) placement.State {
	if at.ledger != ledger || !r.scores.Has(at.state) {
		at.ledger, at.state = ledger, r.scores.State(ledger)
	}
	return at.state
}
