package mps

import (
	"fmt"
	"io"
	"strings"
)

// Verdict is the result of a canary, a small CUDA program, about a device. The canary writes it to its standard output.
// Before that, and after it became a client, it writes a line by Connected and waits for a line on its standard input.
type Verdict string

// Verdicts.
const (
	// VerdictWell: the device did the work.
	VerdictWell Verdict = "well"
	// VerdictFull: the server answered that there is no room for another client, or no memory.
	VerdictFull Verdict = "full"
	// VerdictNoCUDA: there is no CUDA driver library.
	VerdictNoCUDA Verdict = "no-cuda"
	// VerdictNotReady: the server refuses new clients at present. The cause may be a fault, or a server that is
	// starting or is ending a client (NVIDIA MPS documentation, "Troubleshooting").
	VerdictNotReady Verdict = "not-ready"
	// VerdictFault: the server broke this client.
	VerdictFault Verdict = "fault"
	// VerdictFailed: another error.
	VerdictFailed Verdict = "failed"
)

const connectedLine = "connected"

// Connected says that the canary is a client now and has no work in flight.
func Connected(out io.Writer) error {
	_, err := fmt.Fprintln(out, connectedLine)
	return err
}

// Tell says the verdict, with the reason in one line.
func Tell(out io.Writer, v Verdict, why string) error {
	_, err := fmt.Fprintln(out, strings.TrimSpace(string(v)+" "+strings.Join(strings.Fields(why), " ")))
	return err
}

// parseVerdict reads the output of a canary so far.
func parseVerdict(said string) (connected bool, v Verdict, why string) {
	for line := range strings.Lines(said) {
		// A line without its end is not whole yet.
		line, whole := strings.CutSuffix(line, "\n")
		if !whole {
			break
		}
		if line == connectedLine {
			connected = true
			continue
		}
		word, rest, _ := strings.Cut(line, " ")
		v, why = Verdict(word), rest
	}
	return connected, v, why
}
