package elastic

// Follower is a job whose number of workers follows the targets that Workers returns: in a cluster by the controller, in the simulator by its engine.
type Follower struct {
	// Sizes are the legal numbers of workers.
	Sizes []int
	// Size is how many workers the job may have now, Running how many run.
	Size, Running int
	// Stuck says that workers within Size have had no places for too long.
	Stuck bool
}

// Follow returns how many workers the job may have by a target, and whether its size was refused: then it goes back to what runs. Workers that are
// missing come back, so a target that keeps the size that the job has does not take their places.
func (f *Follower) Follow(t *Target) (workers int, refused bool) {
	keeps := t.Why == Steady || t.Why == Settling
	switch {
	case t.Err != nil:
		return f.Size, false
	case f.Running == 0 && t.Why == Waits:
		return f.Sizes[0], false
	case f.Stuck && (t.Workers >= f.Size || keeps):
		return SizeBelow(f.Sizes, f.Running), true
	case keeps:
		return max(f.Size, t.Workers), false
	}
	return t.Workers, false
}

// SizeBelow returns the largest legal size that is at most n, the least one where there is none.
func SizeBelow(sizes []int, n int) int {
	size := sizes[0]
	for _, legal := range sizes {
		if legal <= n {
			size = legal
		}
	}
	return size
}
