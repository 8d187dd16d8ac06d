// Package csvtable reads CSV files by the names of their columns, and refuses what is wrong in them.
//
// A file is plain or compressed with gzip. It is read as a whole or not at all: whatever is missing, doubled, out of bounds or
// not a number gives an *Error that names the file, the line, the column, what stands there and what may. The bounds are far
// above the published files; they keep a hostile file within memory.
//
// The package decides which of several formats a header has. What the columns of a format mean it does not know: a Schema
// says how a row is read.
package csvtable
