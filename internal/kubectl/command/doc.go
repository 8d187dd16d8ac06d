// Package command has the commands of kubectl tandem: their flags, the source of the snapshot, and the forms of the answers.
//
// Answers go to stdout, all else to stderr. The exit code is 0 where the command answered, Failed where it could not, and Misused
// where its flags or arguments are not legal; doctor has codes of its own for what it found. The packages below decide and write: why
// finds reasons, checks finds faults, picture draws devices, connection talks to the scheduler.
package command
