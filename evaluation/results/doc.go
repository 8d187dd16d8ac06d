// Package results has what the experiments came to, as tables for people and as JSON for programs.
//
// It decides which columns a table has and how its figures are written, and nothing about what they are: the numbers come
// rounded from whoever measured them, and rows stay in the order in which they come. The keys of the JSON are an interface:
// they are snake_case, carry their unit, and neither vanish nor change their meaning.
package results
