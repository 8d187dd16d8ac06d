package main

import (
	"bufio"
	"errors"
	"io"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/internal/agent/cuda"
	"github.com/tandem-gpu/tandem/internal/agent/mps"
)

// canaryCommand is the client that the agent tries each device's MPS server with. The agent starts it with the
// environment of a client.
func canaryCommand() *cobra.Command {
	return &cobra.Command{
		Use: "canary", Hidden: true, Args: cobra.NoArgs, SilenceUsage: true,
		Short: "Does a small piece of work on the first GPU that it sees, after a line on the standard input",
		RunE:  func(c *cobra.Command, _ []string) error { return canary(c.InOrStdin(), c.OutOrStdout()) },
	}
}

// canary becomes a client, works at its parent's command, and writes its verdict. A standard input that ends is a
// parent that is gone: then there is no work.
func canary(in io.Reader, out io.Writer) error {
	library, err := cuda.Open()
	if err == nil {
		err = library.Exercise(func() bool {
			if mps.Connected(out) != nil {
				return false
			}
			_, err := bufio.NewReader(in).ReadString('\n')
			return err == nil
		})
	}
	why := ""
	if err != nil {
		why = err.Error()
	}
	return errors.Join(err, mps.Tell(out, verdict(err), why))
}

func verdict(err error) mps.Verdict {
	var e *cuda.Error
	switch {
	case err == nil:
		return mps.VerdictWell
	case errors.Is(err, cuda.ErrNoLibrary):
		return mps.VerdictNoCUDA
	case !errors.As(err, &e):
		return mps.VerdictFailed
	case e.Stub():
		return mps.VerdictNoCUDA
	case e.Full():
		return mps.VerdictFull
	case e.NotReady():
		return mps.VerdictNotReady
	case e.Fault():
		return mps.VerdictFault
	}
	return mps.VerdictFailed
}
