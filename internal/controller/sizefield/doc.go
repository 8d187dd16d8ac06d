// Package sizefield reads and writes the fields in which objects say how many pods they make.
//
// Find walks from the pods of a gang up to the object that decides how many there are: a Job, or the JobSet of that Job, or the
// TrainJob of that JobSet. The table Kinds says for each kind of object where its number stands, which pods it counts, which of
// them leave when it gets smaller, and who else may own the number. A new kind is a row of that table.
//
// The package does not choose a number, and it does not know when one may be written.
package sizefield
