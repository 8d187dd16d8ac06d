// Package command has the common parts of the command lines of the simulator and of the laboratory (evaluation). These
// are the end of a program, the arguments of a command, the forms of the results, and the display of the progress.
//
// The exit code is 0, or Failed when an expectation does not hold. It is Broken for a request that the program cannot
// meet, with one line on stderr.
package command
