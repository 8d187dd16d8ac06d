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

// A command that counts its parts says how many of them are done, and how long the others take at that speed. The time before the first part
// does not count.
func TestPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out strings.Builder
		l := progress.Start(&out)
		l.Step("looking for the scheduler")
		time.Sleep(10 * time.Second) // of the bubble's clock, as below
		for done, doing := range []string{"reading nodes", "reading pods", "reading leases", "reading policies"} {
			l.Part(done, 4)
			l.Step(doing)
			time.Sleep(5*time.Second + time.Millisecond)
		}
		l.Part(5, 4)
		time.Sleep(time.Second)
		l.Close()
		for _, want := range []string{
			"step 2: reading nodes, 12 s so far\r", "step 3: reading pods, 17 s so far, 25 % done, about 21s left\r",
			"step 4: reading leases, 22 s so far, 50 % done, about 12s left\r", "step 5: reading policies, 30 s so far, 100 % done, about 0s left\r",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("wrote %q, which lacks %q", out.String(), want)
			}
		}
	})
}
