package integration

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/sandbox"
)

// startsAtMost is how often a program is started whose first questions the API server does not answer in time.
const startsAtMost = 5

// supervised is a program that starts again when it has ended because the API server did not answer its first questions. It ends after a minute of that
// by design, and its kubelet starts it again. All its starts write one log.
type supervised struct {
	*sandbox.Process // the first of them

	set     *sandbox.Processes
	name    string
	command func() *exec.Cmd
	done    chan struct{}

	mu      sync.Mutex
	now     *sandbox.Process
	stopped bool
}

// supervise starts a program under a name that is unique in the set.
func supervise(set *sandbox.Processes, name string, command func() *exec.Cmd) (*supervised, error) {
	first, err := set.Start(name, command())
	if err != nil {
		return nil, err
	}
	s := &supervised{Process: first, set: set, name: name, command: command, done: make(chan struct{}), now: first}
	go s.run()
	return s, nil
}

func (s *supervised) run() {
	defer close(s.done)
	read := 0
	for starts := 1; ; starts++ {
		s.mu.Lock()
		now := s.now
		s.mu.Unlock()
		<-now.Done()
		log, err := os.ReadFile(now.Log())
		if err != nil || now.Err() == nil || starts == startsAtMost || !strings.Contains(string(log[read:]), "find out what the API server serves") {
			return
		}
		if read = len(log); !s.again() {
			return
		}
	}
}

// again starts the program again unless it was stopped.
func (s *supervised) again() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return false
	}
	next, err := s.set.Start(s.name, s.command())
	if err == nil {
		s.now = next
	}
	return err == nil
}

// Done returns a channel that closes when the program has ended and does not start again.
func (s *supervised) Done() <-chan struct{} { return s.done }

// Err returns how the program ended the last time. The value is valid after Done.
func (s *supervised) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now.Err()
}

// Stop ends the program for good.
func (s *supervised) Stop(grace time.Duration) {
	s.mu.Lock()
	s.stopped = true
	now := s.now
	s.mu.Unlock()
	now.Stop(grace)
	<-s.done
}

// TestSupervised starts a program that ends for one reason or another, which its second start alone does not do.
func TestSupervised(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		says  string
		tries int // how often it starts
	}{
		"the API server did not answer": {"find out what the API server serves: timeout", 2},
		"another failure":               {"the configuration is not legal", 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			set := sandbox.NewProcesses(dir)
			t.Cleanup(func() { set.Stop(0) })
			script := "echo start; if [ -e again ]; then exec sleep 600; fi; touch again; echo '" + test.says + "'; exit 1"
			s, err := supervise(set, "program", func() *exec.Cmd {
				cmd := exec.Command("sh", "-c", script)
				cmd.Dir = dir
				return cmd
			})
			if err != nil {
				t.Fatal(err)
			}
			poll(t, "it has started as often as it should", func(context.Context) (bool, string) {
				select {
				case <-s.Done():
					return true, ""
				default:
					return strings.Count(s.Tail(10), "start") == 2, s.Tail(10)
				}
			})
			s.Stop(0)
			if starts := strings.Count(s.Tail(10), "start"); starts != test.tries || s.Err() == nil {
				t.Errorf("it started %d times, want %d, and ended with %v", starts, test.tries, s.Err())
			}
		})
	}
}
