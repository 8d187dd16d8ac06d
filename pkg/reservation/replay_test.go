package reservation

import (
	"encoding/json"
	"flag"
	"os"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tandem-gpu/tandem/pkg/gang"
)

var (
	replayDump   = flag.String("dump", filepathOf("dump.json"), "state to replay events on: a dump of a scheduler")
	replayEvents = flag.String("events", filepathOf("events.txt"), "events in the language of the scenarios")
)

func filepathOf(name string) string { return "testdata/replay/" + name }

// recorded is a dump as a scheduler writes it.
type recorded struct {
	At    time.Time
	State Dump
}

// TestReplay plays events on a dumped state: those of testdata, or others to find out what a scheduler would do next. See
// docs/debugging.md.
func TestReplay(t *testing.T) {
	data, err := os.ReadFile(*replayDump)
	if err != nil {
		t.Fatal(err)
	}
	var r recorded
	if err := json.Unmarshal(data, &r); err != nil {
		t.Fatalf("%s: %v", *replayDump, err)
	}
	w := newWorld(t, gang.AllDrains)
	if w.state, err = Restore(&r.State); err != nil {
		t.Fatalf("%s: %v", *replayDump, err)
	}
	w.now = r.At
	for _, ref := range w.state.Refs() {
		w.gangs[titleOf(ref)] = &Facts{Ref: ref}
	}
	datadriven.RunTest(t, *replayEvents, func(t *testing.T, d *datadriven.TestData) string {
		w.t = t
		return w.run(d)
	})
}
