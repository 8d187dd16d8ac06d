// Package published finds the published traces and measurements, which are not part of the repository (docs/experiments.md).
package published

import (
	"os"
	"testing"
)

// Data returns the folder of the published files, or skips the test: TANDEM_DATA names it.
func Data(t testing.TB) string {
	t.Helper()
	dir := os.Getenv("TANDEM_DATA")
	if dir == "" {
		t.Skip("TANDEM_DATA is not set: it names the folder of the published traces (docs/experiments.md)")
	}
	return dir
}
