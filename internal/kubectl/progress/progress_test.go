package progress_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-gpu/tandem/internal/kubectl/progress"
)

// A quick command says nothing. A slow one says what it does, and leaves an empty line.
func TestLine(t *testing.T) {
	for _, test := range []struct {
		name string
		runs time.Duration
		want string
	}{
		{"quick", progress.Patience - time.Millisecond, ""},
		{"slow", progress.Patience + 600*time.Millisecond, "\r\x1b[Kstep 2: asking the scheduler, 2 s so far\r\x1b[Kstep 2: asking the scheduler, 2 s so far\r\x1b[K"},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out strings.Builder
				l := progress.Start(&out)
				l.Step("looking for the scheduler")
				l.Step("asking the scheduler")
				time.Sleep(test.runs) // of the bubble's clock
				l.Close()
				if out.String() != test.want {
					t.Errorf("wrote %q, want %q", out.String(), test.want)
				}
			})
		})
	}
}

// Without a terminal, or with --quiet, there is no line.
func TestSilent(t *testing.T) {
	synctest.Test(t, func(*testing.T) {
		l := progress.Start(nil)
		l.Step("asking the scheduler")
		time.Sleep(time.Hour)
		l.Close()
	})
}
