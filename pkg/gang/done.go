package gang

// Done is what became of the members of a gang that has started and of which some are done.
type Done struct {
	// Succeeded counts the members that ended with success. They do not come again.
	Succeeded int
	// ToCome is the largest number of members that may still run, as the workloads that make them report; −1 for unknown.
	ToCome int
}

// Least returns how many members must run of a gang that declares a number and of which some are done. If the workloads report
// how many members may still run, no more than these can be needed: the last 2 members of a Job with 6 completions and a least
// number of 4 run together after 4 are done. Without a report, the members that are done stand in for as many that must run. The
// least number stays as it is while no member is done, and it is never below 1.
func (d Done) Least(declared int) int {
	switch {
	case d.Succeeded == 0:
		return declared
	case d.ToCome >= 0:
		return min(declared, max(1, d.ToCome))
	}
	return max(1, declared-d.Succeeded)
}
