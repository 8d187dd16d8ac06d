package workloads

import (
	"runtime"
	"strings"
)

// allocated returns the bytes that a function allocates. They are what its arithmetic needs, whatever the machine: a number of
// three million digits has 1.2 MB.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// endless are quantities that the API server accepts and that take seconds or hours to calculate with.
var endless = []string{"1e3000000", "1e2000000000", "0.5e2000000000", "7e31", "1" + strings.Repeat("0", 100_000)}
