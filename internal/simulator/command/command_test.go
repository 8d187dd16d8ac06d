package command_test

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/internal/simulator/command"
)

// --quiet turns the progress off, before the command as well as after it.
func TestQuiet(t *testing.T) {
	for args, shows := range map[string]bool{"play": true, "play --quiet": false, "--quiet play": false, "play --quiet=false": true} {
		var out, errs strings.Builder
		root := command.Program(&cobra.Command{Use: "program"})
		root.AddCommand(&cobra.Command{Use: "play", RunE: func(c *cobra.Command, _ []string) error {
			p := command.Progress(c)
			if (p.Out != nil) != shows {
				t.Errorf("%s: progress goes to %v", args, p.Out)
			}
			p.Step(1, 2) // has somewhere to go, or nowhere
			p.Close()
			return nil
		}})
		if code := command.Execute(root, strings.Fields(args), &out, &errs); code != 0 || out.Len()+errs.Len() > 0 {
			t.Errorf("%s: exit code %d, %q, %q", args, code, out.String(), errs.String())
		}
	}
}
