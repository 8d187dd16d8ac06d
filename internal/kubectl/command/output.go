package command

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"
)

// form is how an answer is written; it is a flag.
type form string

// Forms of answers.
const (
	text     form = ""
	wide     form = "wide"
	jsonForm form = "json"
	yamlForm form = "yaml"
)

var forms = []string{string(jsonForm), string(yamlForm), string(wide)}

// String returns the name of the form.
func (f *form) String() string { return string(*f) }

// Type is what the help calls the value.
func (*form) Type() string { return strings.Join(forms, "|") }

// Set takes one of the forms.
func (f *form) Set(s string) error {
	if !slices.Contains(forms, s) {
		return fmt.Errorf("unknown form, known are %s", strings.Join(forms, ", "))
	}
	*f = form(s)
	return nil
}

// addTo adds the flag to a command.
func (f *form) addTo(c *cobra.Command) {
	c.Flags().VarP(f, "output", "o", "form of the answer, without it text for people")
	_ = c.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(forms, cobra.ShellCompDirectiveNoFileComp)) // fails without the flag only
}

// forPrograms reports whether the answer is JSON or YAML.
func (f *form) forPrograms() bool { return *f == jsonForm || *f == yamlForm }

// write writes an answer for programs.
func (f *form) write(w io.Writer, answer any) error {
	raw, err := json.MarshalIndent(answer, "", "  ")
	if err != nil {
		return fmt.Errorf("write answer: %w", err)
	}
	if *f == yamlForm {
		if raw, err = yaml.JSONToYAML(raw); err != nil {
			return fmt.Errorf("write answer: %w", err)
		}
	}
	_, err = fmt.Fprintf(w, "%s\n", strings.TrimRight(string(raw), "\n"))
	return err
}
