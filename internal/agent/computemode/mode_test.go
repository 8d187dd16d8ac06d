package computemode

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/tandem-gpu/tandem/internal/agent/fixture"
	"github.com/tandem-gpu/tandem/test/must"
)

func TestExclusiveRecordIsBroken(t *testing.T) {
	dir := t.TempDir()
	must.OK(t, os.WriteFile(filepath.Join(dir, modesFile), []byte("{"), 0o600))
	e := Open(t.Context(), &modes{exclusive: map[string]bool{}}, dir)
	if len(e.held()) != 0 {
		t.Errorf("held %v", e.held())
	}
	if err := e.Claim(fixture.G0); err != nil {
		t.Error(err)
	}
	if again := Open(t.Context(), e.driver, dir); len(again.held()) != 1 {
		t.Errorf("remembered %v", again.held())
	}
	e.path = filepath.Join(dir, "absent", modesFile)
	if err := e.Claim(fixture.G1); err == nil || e.driver.(*modes).exclusive[fixture.G1] {
		t.Errorf("%v: what cannot be remembered must not be set", err)
	}
}

// A refusal is an error in the log once, and again when it comes back: the net is not there.
func TestExclusiveSaysOnceThatItIsRefused(t *testing.T) {
	e := &Exclusivity{refused: map[string]string{}}
	refusal := errors.New("no permission")
	for i, step := range []struct {
		err  error
		news bool
	}{{refusal, true}, {refusal, false}, {errors.New("lost"), true}, {nil, false}, {refusal, true}} {
		if got := e.isNews(fixture.G0, step.err); got != step.news {
			t.Errorf("step %d, %v: %t", i, step.err, got)
		}
	}
}

// modes is a driver that knows compute modes.
type modes struct {
	exclusive map[string]bool
	err       error
}

func (m *modes) Exclusive(id string) (bool, error) { return m.exclusive[id], m.err }

func (m *modes) SetExclusive(id string, on bool) error {
	if m.err == nil {
		m.exclusive[id] = on
	}
	return m.err
}

// Exclusivity remembers a mode that could not be put back, so that it is tried again.
func TestModeThatCannotBePutBackIsRemembered(t *testing.T) {
	driver := &modes{exclusive: map[string]bool{}}
	e := Open(t.Context(), driver, t.TempDir())
	must.OK(t, e.Claim(fixture.G0))
	driver.err = errors.New("no permission")
	if err := e.Release(fixture.G0); err == nil || len(e.held()) != 1 {
		t.Errorf("%v, held %v: what could not be put back must be remembered", err, e.held())
	}
}
