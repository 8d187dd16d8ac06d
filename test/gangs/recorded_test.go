package gangs

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// record is for comparing two versions of the scheduler: `go test ./test/gangs -run '^TestHistories$' -histories=400 -seed=70001
// -record=FILE` with each, and `join` of the sorted files. Histories whose lines differ between two plays of one version are not
// deterministic, and say nothing.
var record = flag.String("record", "", "file to which each random history adds its seed and the digest of its bindings and evictions")

// keepRecord adds what a history did to the file, where one is asked for.
func keepRecord(t *testing.T, number uint64, log []string) {
	t.Helper()
	if *record == "" {
		return
	}
	file, err := os.OpenFile(*record, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644) //nolint:gosec // a file that all may read
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(file, number, digest(log)); err != nil {
		t.Error(err)
	}
	if err := file.Close(); err != nil {
		t.Error(err)
	}
}

// digest sums up the bindings and evictions of a history. The order of those of one instant does not count.
func digest(log []string) string {
	var lines []string
	for _, line := range log {
		words := strings.Fields(line)
		if len(words) > 1 && (words[1] == "bind" || words[1] == "evict") {
			lines = append(lines, strings.Join(words, " "))
		}
	}
	slices.Sort(lines)
	return fmt.Sprintf("%d %x", len(lines), sha256.Sum256([]byte(strings.Join(lines, "\n"))))
}
