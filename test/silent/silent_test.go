package silent

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	Logs()
	klog.Info("a line of klog")
	os.Exit(m.Run())
}

// The test binary logs a line before its tests: it shows with -v alone.
func TestLogs(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for flag, want := range map[string]bool{"-test.v=false": false, "-test.v=true": true} {
		output, err := exec.CommandContext(t.Context(), self, "-test.run=^$", flag).CombinedOutput()
		if err != nil {
			t.Fatalf("%v:\n%s", err, output)
		}
		if got := strings.Contains(string(output), "a line of klog"); got != want {
			t.Errorf("with %s the line shows: %v, want %v", flag, got, want)
		}
	}
}
