package command

import (
	"bytes"
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

func (o *options) snapshotCommand() *cobra.Command {
	var as form
	var to string
	var anonymous bool
	c := &cobra.Command{
		Use:   "snapshot [-f FILE]",
		Short: "Writes the snapshot of the scheduler",
		Long: `Writes the snapshot of the scheduler: what it goes by at this moment, as you may see it.

The other commands read it with --snapshot FILE. Without -o the bytes are those of the scheduler; docs/guides/snapshot.md has the form.

With --anonymous all names, UIDs and sentences are replaced or left out, for a bug report; amounts, times and GPU models stay.
The other commands give the same answers about it, with other names.`,
		Example: `  kubectl tandem snapshot -f now.json
  kubectl tandem map --snapshot now.json
  kubectl tandem snapshot --anonymous -f report.json
  kubectl tandem snapshot -o yaml | less`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := o.check(); err != nil {
				return err
			}
			if as == wide {
				return usage("-o: wide, legal for a snapshot are json and yaml")
			}
			line := o.line()
			s, raw, err := o.read(c.Context(), line)
			line.Close()
			if err == nil && anonymous {
				s = s.Anonymous()
				raw, err = snapshotjson.Write(s)
			}
			if err != nil {
				return err
			}
			return o.writeSnapshot(s, raw, as, to)
		},
	}
	as.addTo(c)
	c.Flags().BoolVar(&anonymous, "anonymous", false, "replace the names of nodes, namespaces, pods and all else, for a bug report")
	c.Flags().StringVarP(&to, "filename", "f", "", "`file` to write, readable by you alone; without it standard output")
	return c
}

// writeSnapshot writes a snapshot to a file, or to standard output.
func (o *options) writeSnapshot(s *snapshot.Snapshot, raw []byte, as form, to string) error {
	var b bytes.Buffer
	if as.forPrograms() {
		if err := as.write(&b, s); err != nil {
			return err
		}
	} else {
		b.Write(raw)
	}
	var err error
	if to == "" {
		_, err = o.streams.Out.Write(b.Bytes())
	} else {
		err = os.WriteFile(to, b.Bytes(), 0o600)
	}
	if err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	return nil
}
