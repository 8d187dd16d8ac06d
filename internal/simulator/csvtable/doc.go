// Package csvtable reads CSV files by the names of their columns, and refuses what is wrong in them.
//
// A file is plain or compressed with gzip. The package reads a file as a whole or not at all. A value that is missing,
// doubled, out of bounds or not a number gives an *Error with the file, the line, the column, the value and the legal
// ones. The bounds are far above the published files; they keep a hostile file within memory.
//
// The package decides which of several formats a header has. A Schema, which the caller gives, reads a row of a format.
package csvtable
