package command

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-gpu/tandem/internal/kubectl/progress"
	"github.com/tandem-gpu/tandem/internal/testkit"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

// If the number of steps is known, the line says how many of them are done.
func TestCountedSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		line := progress.Start(&out)
		step := counted(line)
		step("reading nodes", 0, 4)
		time.Sleep(10*time.Second + time.Millisecond) // of the bubble's clock
		step("reading pods", 1, 4)
		time.Sleep(time.Second)
		line.Close()
		if want := "step 2: reading pods, 10 s so far, 25 % done, about 32s left\r"; !strings.Contains(out.String(), want) {
			t.Errorf("wrote %q, which lacks %q", out.String(), want)
		}
	})
}

// The simulation says how many of its plays are complete.
func TestSimulateCounts(t *testing.T) {
	told := 0
	s := &simulation{options: &options{}, length: time.Minute}
	c, err := testkit.Parse("n1: g0 A100")
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	snap := &snapshot.Snapshot{Source: snapshot.FromScheduler, At: at, Nodes: []snapshot.Node{snapshot.NodeOf(c.Nodes()[0])}}
	if _, err := s.answer(snap, func(done, of int) { told += 10*of + done }); err != nil || told != 10 {
		t.Errorf("told %d, %v", told, err)
	}
}

// Nothing of it is on stderr with --quiet, or where stderr is no terminal.
func TestQuiet(t *testing.T) {
	for name, x := range map[string]struct{ quiet, terminal, says bool }{
		"a terminal": {false, true, true}, "quiet": {true, true, false}, "a file": {false, false, false}, "a file, quiet": {true, false, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			var errs strings.Builder
			o := &options{streams: Streams{Errs: &errs, ErrsTerminal: x.terminal}, quiet: x.quiet}
			line := o.line()
			line.Step("reading nodes")
			time.Sleep(time.Minute) // of the bubble's clock
			line.Close()
			if (errs.Len() > 0) != x.says {
				t.Errorf("%s: wrote %q", name, errs.String())
			}
		})
	}
}
