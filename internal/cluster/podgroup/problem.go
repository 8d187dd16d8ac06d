package podgroup

// Problem is why the members of a gang cannot be placed now.
type Problem struct {
	// Message says what is wrong and what to do.
	Message string
	// Waits reports that something is missing that may appear by itself: members, or the PodGroup. Without it somebody must
	// correct a pod or a PodGroup.
	Waits bool
}

// Error returns the message.
func (p *Problem) Error() string { return p.Message }
