// Package results has the results of the experiments, as tables for people and as JSON for programs.
//
// The package decides which columns a table has and how to write its figures. The numbers come rounded from the
// packages that measured them, and rows keep their order. The keys of the JSON are an interface: they are snake_case,
// carry their unit, and neither vanish nor change their meaning.
package results
