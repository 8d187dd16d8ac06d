package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/simulator/report"
	"github.com/tandem-gpu/tandem/test/must"
)

// TestTable: columns are as wide as their widest cell in characters, not bytes, and no line ends with a space.
func TestTable(t *testing.T) {
	table := report.Table{
		Columns: []report.Column{{Head: "name", Text: true}, {Head: "n"}, {Head: "note", Text: true}},
		Rows:    [][]string{{"a–b", "10", "x"}, {"é", "±7", "long note"}, {"", "", ""}},
	}
	var b strings.Builder
	must.OK(t, table.Write(&b))
	want := "name   n  note\na–b   10  x\né     ±7  long note\n\n"
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("table (-want +got):\n%s", diff)
	}
}

// TestProgressOnATerminal: the bar is drawn over, not faster than the eye, and wiped at the end.
func TestProgressOnATerminal(t *testing.T) {
	var out strings.Builder
	now := time.Unix(1000, 0)
	p := report.Progress{Out: &out, Terminal: true, Now: func() time.Time { return now }, What: "runs"}
	for done := range 4 {
		p.Step(done+1, 4)
		now = now.Add(60 * time.Millisecond)
	}
	p.Close()
	want := "\r\x1b[K███████░░░░░░░░░░░░░░░░░░░░░░░ 1/4 runs\r\x1b[K██████████████████████░░░░░░░░ 3/4 runs\r\x1b[K"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("drawn (-want +got):\n%s", diff)
	}
}

// TestProgressEstimates: after two seconds the bar says how long the rest takes, by what came after the first call.
func TestProgressEstimates(t *testing.T) {
	var out strings.Builder
	now := time.Unix(1000, 0)
	p := report.Progress{Out: &out, Terminal: true, Now: func() time.Time { return now }, What: "runs"}
	for _, done := range []int{2, 3, 4, 6} {
		p.Step(done, 6)
		now = now.Add(1500 * time.Millisecond)
	}
	want := []string{"2/6 runs", "3/6 runs", "4/6 runs, about 3s left", "6/6 runs, about 0s left"} // 2 within 3 s leave 2
	for i, line := range strings.Split(out.String(), "\r")[1:] {
		if i >= len(want) || !strings.HasSuffix(line, "░ "+want[i]) && !strings.HasSuffix(line, "█ "+want[i]) {
			t.Errorf("line %d is %q, want %q", i, line, want)
		}
	}
}

// TestProgressInALog: a line every five seconds at most, none for what ends sooner.
func TestProgressInALog(t *testing.T) {
	var out strings.Builder
	now := time.Unix(1000, 0)
	p := report.Progress{Out: &out, Now: func() time.Time { return now }, What: "runs"}
	for done := range 13 {
		p.Step(done+1, 13)
		now = now.Add(time.Second)
	}
	p.Close()
	want := "6 of 13 runs done after 5s\n11 of 13 runs done after 10s\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
	(&report.Progress{}).Step(1, 2) // nowhere to tell it
}

// TestProgressOfParts: runs of several steps are counted with a decimal.
func TestProgressOfParts(t *testing.T) {
	var out strings.Builder
	now := time.Unix(1000, 0)
	p := report.Progress{Out: &out, Now: func() time.Time { return now }, What: "runs", Parts: 100}
	for _, done := range []int{0, 40, 240} {
		p.Step(done, 300)
		now = now.Add(5 * time.Second)
	}
	want := "0.4 of 3 runs done after 5s\n2.4 of 3 runs done after 10s\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}
