package podgroup

// Problem says why the scheduler cannot place the members of a gang now.
type Problem struct {
	// Message describes what is wrong and what the user can do.
	Message string
	// Waits says that something is missing that may appear by itself: members, or the PodGroup. Without it a user must
	// correct a pod or a PodGroup.
	Waits bool
}

// Error returns the message.
func (p *Problem) Error() string { return p.Message }
