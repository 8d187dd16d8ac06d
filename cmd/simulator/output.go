package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/evaluation/plots"
	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// output is the form of the results; it is a flag.
type output string

const (
	outputTable output = "table"
	outputJSON  output = "json"
)

var outputs = []string{string(outputTable), string(outputJSON)}

// String returns the form's name.
func (o *output) String() string { return string(*o) }

// Type is what the help calls the flag's value.
func (*output) Type() string { return strings.Join(outputs, "|") }

// Set takes one of outputs.
func (o *output) Set(s string) error {
	if !slices.Contains(outputs, s) {
		return fmt.Errorf("unknown form, known are %s", strings.Join(outputs, ", "))
	}
	*o = output(s)
	return nil
}

func (o *output) addFlag(c *cobra.Command) {
	*o = outputTable
	c.Flags().VarP(o, "output", "o", "what to print: a table for people or JSON for programs")
}

// write prints results in the chosen form.
func (o *output) write(w io.Writer, results interface{ Table(io.Writer) error }) error {
	if *o == outputJSON {
		return report.JSON(w, results)
	}
	return results.Table(w)
}

// folder makes the directory that figures will be drawn into, when one is given: before the runs, which may take minutes.
func folder(dir string) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("flag --plot: %w", err)
	}
	return nil
}

// draw writes figures into a directory, when one is given, and tells their paths.
func draw(c *cobra.Command, dir string, figures []plots.Figure) error {
	if dir == "" {
		return nil
	}
	paths, err := plots.Write(dir, figures...)
	for _, p := range paths {
		fmt.Fprintln(c.ErrOrStderr(), "wrote", p)
	}
	return err
}
