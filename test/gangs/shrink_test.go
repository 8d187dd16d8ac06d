package gangs

import (
	"slices"
	"time"
)

// shrink returns a shorter history that still fails, as often as it is played twice: the order of goroutines is not fixed.
func shrink(history []step, fails func([]step) bool) []step {
	begin := time.Now()
	for size := len(history) / 2; size > 0; size /= 2 {
		for from := 0; from+size <= len(history) && time.Since(begin) < *shrinks; {
			shorter := slices.Delete(slices.Clone(history), from, from+size)
			failed := fails(shorter)
			if !failed {
				failed = fails(shorter)
			}
			if failed {
				history = shorter
				continue
			}
			from += size
		}
	}
	return history
}
