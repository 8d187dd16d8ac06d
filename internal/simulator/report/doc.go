// Package report writes what became of a scenario for people, as aligned tables, and for programs, as JSON.
//
// It decides how results look and nothing about what they are: the numbers come rounded from whoever measured them, and
// rows stay in the order in which they come. The keys of the JSON are an interface: they are snake_case, carry their unit,
// and neither vanish nor change their meaning. It also tells how many runs are done, and has the tables that the
// laboratory's results are written with.
package report
