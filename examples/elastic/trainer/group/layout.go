package group

import (
	"fmt"
	"slices"
)

// ServerID is the number of a parameter server, in the order of arrival from 0. No number is used twice.
type ServerID int

// Range is a range of parameters: those from From to before To.
type Range struct {
	From int `json:"from"`
	To   int `json:"to"`
}

// Len returns the number of parameters of the range.
func (r Range) Len() int { return max(0, r.To-r.From) }

// And returns the parameters that are in both ranges.
func (r Range) And(o Range) Range { return Range{From: max(r.From, o.From), To: min(r.To, o.To)} }

// Holds reports whether all parameters of o are in the range.
func (r Range) Holds(o Range) bool { return r.From <= o.From && o.To <= r.To }

// String returns the range as "from..to".
func (r Range) String() string { return fmt.Sprintf("%d..%d", r.From, r.To) }

// Part is a range of parameters and the server that holds it.
type Part struct {
	Server ServerID
	Range  Range
}

// Layout says which server holds which parameters. The parts are in ascending order, without a gap and without an overlap.
type Layout struct {
	// Version is another one for each layout of a training.
	Version int
	Parts   []Part
}

// even returns the layout that gives each of the servers as many parameters as the others, or one more. Example: 10
// parameters on 3 servers are 0..3, 3..6 and 6..10.
func even(version, params int, servers []ServerID) Layout {
	l := Layout{Version: version, Parts: make([]Part, len(servers))}
	for i, s := range servers {
		l.Parts[i] = Part{Server: s, Range: Range{From: i * params / len(servers), To: (i + 1) * params / len(servers)}}
	}
	return l
}

// servers returns the servers of the layout.
func (l Layout) servers() []ServerID {
	all := make([]ServerID, len(l.Parts))
	for i, p := range l.Parts {
		all[i] = p.Server
	}
	return all
}

// has reports whether a server holds a part.
func (l Layout) has(s ServerID) bool {
	return slices.ContainsFunc(l.Parts, func(p Part) bool { return p.Server == s })
}

// lacking returns the pieces of a part that other servers hold.
func (l Layout) lacking(p Part) []Part {
	var all []Part
	for _, held := range l.Parts {
		if r := held.Range.And(p.Range); held.Server != p.Server && r.Len() > 0 {
			all = append(all, Part{Server: held.Server, Range: r})
		}
	}
	return all
}
