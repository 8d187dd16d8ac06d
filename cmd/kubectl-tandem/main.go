// Command kubectl-tandem is the plugin of kubectl that shows who has which part of which GPU, and why pods wait.
//
// kubectl runs it as `kubectl tandem` where it is in the PATH. docs/guides/kubectl.md has the commands.
package main

import (
	"os"

	"golang.org/x/term"

	"github.com/tandem-gpu/tandem/internal/kubectl/command"
)

func main() {
	os.Exit(command.Execute(os.Args[1:], command.Streams{
		In: os.Stdin, Out: os.Stdout, Errs: os.Stderr, Env: os.Getenv,
		Terminal: term.IsTerminal(int(os.Stdout.Fd())), ErrsTerminal: term.IsTerminal(int(os.Stderr.Fd())),
	}))
}
