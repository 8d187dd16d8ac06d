package must

import (
	"errors"
	"fmt"
	"testing"
)

// ends records how a test ends.
type ends struct{ with []any }

func (e *ends) Helper()           {}
func (e *ends) Fatal(args ...any) { e.with = args }

func TestOK(t *testing.T) {
	var e ends
	if OK(&e, nil); e.with != nil {
		t.Errorf("without an error the test ends with %v", e.with)
	}
	if OK(&e, errors.New("broken")); fmt.Sprint(e.with) != "[broken]" {
		t.Errorf("the test ends with %v, want the error", e.with)
	}
}
