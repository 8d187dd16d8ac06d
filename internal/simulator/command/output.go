package command

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
)

// Output is the form of the results; it is a flag.
type Output string

// Forms of results.
const (
	Table Output = "table"
	JSON  Output = "json"
)

// Outputs lists the forms.
func Outputs() []string { return []string{string(Table), string(JSON)} }

// String returns the form's name.
func (o *Output) String() string { return string(*o) }

// Type is what the help calls the flag's value.
func (*Output) Type() string { return strings.Join(Outputs(), "|") }

// Set takes one of Outputs.
func (o *Output) Set(s string) error {
	if !slices.Contains(Outputs(), s) {
		return fmt.Errorf("unknown form, known are %s", strings.Join(Outputs(), ", "))
	}
	*o = Output(s)
	return nil
}

// AddFlag adds the flag to a command. Without it the form is Table.
func (o *Output) AddFlag(c *cobra.Command) {
	*o = Table
	c.Flags().VarP(o, "output", "o", "what to print: a table for people or JSON for programs")
}

// Write prints results in the chosen form.
func (o *Output) Write(w io.Writer, results interface{ Table(io.Writer) error }) error {
	if *o == JSON {
		return report.JSON(w, results)
	}
	return results.Table(w)
}
