package command_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tandem-gpu/tandem/internal/cluster/snapshotjson"
	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

// at is the moment of all drawn snapshots.
var at = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// TestDrawn runs commands on drawn clusters. The input of "cluster" draws one as testkit reads it; lines below "----" in it add what a
// drawing cannot say:
//
//	pod NAME priority=N gang=G max-slowdown=N ends=MINUTES owners=KIND/NAME,… reserved=yes
//	pod NAME likely=MINUTES,… known=N ran=MINUTES (the minutes from now on of snapshot.EndParts)
//	hold NAME until=MINUTES
//	node NAME problem=WORDS stray=SLOTS
//	overbooked NAME device=NODE/NAME slots=N
//	device NODE/NAME reason=WORD note=WORDS
//	pending NAME slots=N memory=8Gi containers=C:N/8Gi,… priority=N gang=G models=A|B max-slowdown=N minutes=N refused=REASON:N,…
//	pending NAME cpu=MILLI host-memory=8Gi gates=GATE,… malformed=WORDS illegal=WORDS promise=NODE/DEVICE:SLOWDOWN room-at=SLOWDOWN beside=POD,… owners=KIND/NAME,…
//	gang NAME min=N members=N bound=N required=KEY,… phase=P need=N reason=WORD message=WORDS waits=MINUTES places=POD@NODE,…
//	target NAME workers=N min=N max=N reason=WORD
//	preemption GANG victim=POD
//	on POD device=ID sm=N used=3Gi slowdown=N rate=N
//	preemption pod=POD victim=POD phase=P until=MINUTES
//
// The input of "file NAME" is a file in the folder that the input of "tandem" calls FOLDER.
//
// The input of "tandem" is a command line. "carry-out" carries each change out that the last command found: see carryOut.
func TestDrawn(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var raw, asked string
		folder := t.TempDir()
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "cluster":
				s, err := drawn(d.Input)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				if d.HasArg("redacted") {
					s = s.Redact(func(namespace string) bool { return namespace == "a" })
				}
				written, err := snapshotjson.Write(s)
				if err != nil {
					d.Fatalf(t, "%v", err)
				}
				raw = string(written)
				return ""
			case "carry-out":
				return carryOut(t, raw, asked)
			case "file":
				if err := os.WriteFile(filepath.Join(folder, d.CmdArgs[0].Key), []byte(d.Input), 0o600); err != nil {
					d.Fatalf(t, "%v", err)
				}
				return ""
			case "tandem":
				asked = d.Input
				input := strings.ReplaceAll(d.Input, "FOLDER", folder)
				code, out, errs := run(raw, append(strings.Fields(input), "--snapshot", "-", "--kubeconfig", "/dev/null")...)
				out, errs = strings.ReplaceAll(out, folder, "FOLDER"), strings.ReplaceAll(errs, folder, "FOLDER")
				if code != 0 {
					return fmt.Sprintf("%s%sexit code %d\n", out, errs, code)
				}
				return out + errs
			}
			d.Fatalf(t, "unknown command %s", d.Cmd)
			return ""
		})
	})
}

// drawn reads the input of "cluster".
func drawn(input string) (*snapshot.Snapshot, error) {
	drawing, more, _ := strings.Cut(input, "more:\n")
	c, err := testkit.Parse(drawing)
	if err != nil {
		return nil, err
	}
	s := &snapshot.Snapshot{Source: snapshot.FromScheduler, At: at}
	for _, n := range c.Nodes() {
		s.Nodes = append(s.Nodes, snapshot.NodeOf(n))
	}
	return s, addLines(s, more)
}

// addLines adds what lines say, and checks the snapshot.
func addLines(s *snapshot.Snapshot, lines string) error {
	for _, line := range strings.Split(strings.TrimSpace(lines), "\n") {
		if err := add(s, strings.Fields(line)); err != nil {
			return fmt.Errorf("%q: %w", line, err)
		}
	}
	s.Sort()
	return s.Check()
}
