// Package command has what the command lines of the simulator and of the laboratory (evaluation) share: how a program ends,
// which arguments a command takes, in which form it prints its results, and how it tells what is done.
//
// It decides nothing about what a command does. A program ends with 0, with Failed when what was asked for does not hold,
// and with Broken and one line on stderr when it was asked for something that it cannot do.
package command
