package gpushare

import "time"

// load is what the nodes hold, as the last refresh found them.
type load struct {
	// healthy devices, and those of them that no pod uses.
	healthy, idle int64
	// promises is the number of running pods with a max-slowdown.
	promises int
}

func (l load) plus(o *occupancy) load {
	return load{l.healthy + int64(o.healthy), l.idle + int64(o.idle), l.promises + o.promises}
}

// scarcity decides whether GPUs are scarce: while at most percent of the healthy devices are idle, or a pod waits for
// room.
//
// The scarcity ends when neither was so for scarcePause and half as many again are idle. Each change has all nodes
// scored anew, some 20 ms at 20,000 nodes; without the two, every pod that comes or goes at the limit would be a
// change.
type scarcity struct {
	percent int64
	scarce  bool
	// last is when they were scarce by the plain rule.
	last time.Time
}

// scarcePause is how long GPUs stay scarce after they are so for the last time. Longer leaves devices idle that pods could
// have for themselves, shorter has scores computed more often.
const scarcePause = time.Minute

// look takes in a new load and reports whether GPUs are scarce. Without healthy devices nothing changes.
func (s *scarcity) look(now time.Time, l load, waits bool) bool {
	switch {
	case l.healthy == 0:
	case waits || 100*l.idle <= s.percent*l.healthy:
		s.scarce, s.last = true, now
	case 200*l.idle > 3*s.percent*l.healthy && now.Sub(s.last) >= scarcePause:
		s.scarce = false
	}
	return s.scarce
}
