package preemption_test

import (
	"testing"

	"github.com/tandem-gpu/tandem/internal/testkit"
)

// TestScripts tells the stories of preemptions; see testkit.Script for the language.
func TestScripts(t *testing.T) { testkit.Run(t, "testdata/scripts") }
