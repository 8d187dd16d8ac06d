package resize

import "time"

// due brings the members to a number: notices first, then evictions where the gang has no owner to ask, else the owner's field.
func (m *move) due(v *View, number int) {
	if v.Unread { // members that have a notice may still have to leave
		return
	}
	var leave []Member
	if m.Resizable(v) {
		leave = v.Beyond(number)
	}
	over := m.notify(v, leave)
	if v.Owner == nil {
		for _, member := range over {
			m.do(Evict{member.ID})
		}
		return
	}
	if r, is := m.owner.(*returning); is && v.Owner.Number == r.to {
		if !m.now.Before(r.again) {
			m.do(Write{r.from})
		}
		return
	}
	switch to := v.Owner.Number; {
	case !m.Resizable(v) || number == to:
	case number < to && len(over) < len(leave): // the members leave together
	case number > to && v.ending(): // an owner may count them as failed if its field counted them again now
	default:
		m.do(Write{number})
	}
}

// notify tells members when they leave, and takes the notice back from those that may stay. It returns the members whose time has come.
func (m *move) notify(v *View, leave []Member) (over []Member) {
	times := map[string]time.Time{}
	before, _ := m.members.(*leaving)
	for _, member := range leave {
		at, known := time.Time{}, false
		if before != nil {
			at, known = before.at[member.ID]
		}
		if !known {
			at = m.leavesAt(&member)
		}
		times[member.ID] = at
		if !m.now.Before(at) {
			over = append(over, member)
		}
	}
	for _, member := range v.Members {
		at, leaves := times[member.ID]
		switch {
		case leaves && !member.Leaves.Equal(at):
			m.do(Notify{member.ID, at})
		case !leaves && member.Running && member.Notified:
			m.do(Withdraw{member.ID})
		}
	}
	switch {
	case len(times) == 0 && before != nil:
		m.members = following{}
	case len(times) > 0 && before != nil:
		before.at = times
	case len(times) > 0:
		m.members = &leaving{at: times}
	}
	return over
}

// leavesAt returns when a member leaves: as an earlier process told it, else after the notice. Whole seconds, as the notice has them.
func (m *move) leavesAt(member *Member) time.Time {
	if at := member.Leaves; !at.IsZero() && at.Before(m.now.Add(m.cfg.Notice)) {
		return at
	}
	return m.now.Add(m.cfg.Notice).Truncate(time.Second)
}

// evicted takes over why a member stays.
func (m *move) evicted(number int, kept string) {
	l, is := m.members.(*leaving)
	if !is {
		return
	}
	if l.kept = kept; kept != "" && l.warned != number {
		l.warned = number
		m.do(Warn{kept})
	}
}
