// Package report writes what became of a scenario for people, as aligned tables, and for programs, as JSON.
//
// The package decides how results look: the numbers come rounded from the packages that measured them, and rows keep
// their order. The keys of the JSON are an interface: they are snake_case, carry their unit, and neither vanish nor
// change their meaning. The package also shows how many runs are complete, and has the tables of the laboratory's
// results.
package report
