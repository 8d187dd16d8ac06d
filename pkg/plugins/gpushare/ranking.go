package gpushare

import (
	"fmt"
	"sync"

	fwk "k8s.io/kube-scheduler/framework"

	"github.com/tandem-gpu/tandem/pkg/placement"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// ranking remembers, between cycles, what is the same for most of the nodes: between two pods one or two nodes change.
// Without it a cycle at 5,000 nodes spends most of its time on looking nodes up by name and scoring them again.
type ranking struct {
	mu    sync.Mutex
	seats []seat
	known int // nodes of the state when seats were taken
	// scores of a rule by what is asked for.
	scores map[string][]scored
	rule   *rule
	// turn is the place after the last that withoutGPUs looked at.
	turn int
}

// seat is the plugin's node of one place in the framework's list of nodes.
type seat struct {
	info fwk.NodeInfo
	node *node
}

// scored is the score of a request on a node, as long as the node's ledger is the one that it was computed from.
type scored struct {
	ledger *vgpu.Node
	score  int64
}

// maxShapes bounds the memory for scores, 16 bytes for a node and kind of request. More kinds than this in turns, and
// scores are computed anew; that costs time and nothing else.
const maxShapes = 32

// seats returns the plugin's nodes for the framework's. The caller holds ranking.mu and a lock of the state. The
// framework's NodeInfos stay the same objects while nodes come and go, so that a place is looked up once.
func (s *state) seats(nodes []fwk.NodeInfo) []seat {
	r := &s.ranking
	if len(r.seats) != len(nodes) || r.known != len(s.nodes) {
		r.seats, r.known = make([]seat, len(nodes)), len(s.nodes)
	}
	for i, info := range nodes {
		if r.seats[i].info != info {
			r.seats[i] = seat{info: info, node: s.nodes[info.Node().Name]}
		}
	}
	return r.seats
}

// withoutGPUs returns nodes without GPUs that could meet the demand, up to shortlistSize, from the place where the last
// call ended: pods that strand no GPU there are left to the other plugins, and spread as these would spread them.
func (r *ranking) withoutGPUs(d *demand) []fwk.NodeScore {
	var found []fwk.NodeScore
	for range r.seats {
		seat := &r.seats[r.turn%len(r.seats)]
		r.turn = (r.turn + 1) % len(r.seats)
		if (seat.node == nil || seat.node.problem == noGPUs) && d.couldBeMet(seat.info) {
			found = append(found, fwk.NodeScore{Name: seat.info.Node().Name, Score: strandsNothing})
			if len(found) == shortlistSize {
				break
			}
		}
	}
	return found
}

// scoresOf returns the scores of equal requests by one rule, one for each of n places.
func (r *ranking) scoresOf(request *vgpu.Request, now *rule, n int) []scored {
	if r.rule != now {
		r.scores, r.rule = nil, now
	}
	key := fmt.Sprint(request.Containers, request.ComputeLimit, request.MemoryLimit, request.Variants, request.Host)
	scores := r.scores[key]
	if len(scores) == n {
		return scores
	}
	if r.scores == nil || len(r.scores) >= maxShapes {
		r.scores = map[string][]scored{}
	}
	scores = make([]scored, n)
	r.scores[key] = scores
	return scores
}

// of returns the score of the request, −1 where it does not fit. Where there are holds it depends on the pod too, on its
// priority and on what is held for it, and is not remembered.
func (c *scored) of(o *occupancy, r *vgpu.Request, policy placement.Policy) int64 {
	if c.ledger == o.ledger {
		return c.score
	}
	score := placement.Score(o.ledger, r, policy)
	if !o.held {
		*c = scored{ledger: o.ledger, score: score}
	}
	return score
}
