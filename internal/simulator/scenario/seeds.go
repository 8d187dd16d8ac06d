package scenario

import (
	"fmt"
	"strconv"
	"strings"
)

// maxSeeds bounds a list of seeds: a typing error in a range is not to take days.
const maxSeeds = 10000

// ParseSeeds reads a list of seeds and ranges of them, as "42-51" or "1,3,7-9". Seeds are whole numbers from 0, each once,
// and come back in the order in which they stand.
func ParseSeeds(list string) ([]int64, error) {
	var seeds []int64
	seen := map[int64]bool{}
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		from, err := parseSeed(first)
		if err != nil {
			return nil, seedError(list, part)
		}
		to := from
		if isRange {
			if to, err = parseSeed(last); err != nil || to < from {
				return nil, seedError(list, part)
			}
		}
		if to-from >= int64(maxSeeds-len(seeds)) {
			return nil, fmt.Errorf("read seeds %q: more than %d", list, maxSeeds)
		}
		for k := range to - from + 1 {
			if seen[from+k] {
				return nil, fmt.Errorf("read seeds %q: %d appears twice", list, from+k)
			}
			seen[from+k] = true
			seeds = append(seeds, from+k)
		}
	}
	return seeds, nil
}

func parseSeed(s string) (int64, error) {
	u, err := strconv.ParseUint(s, 10, 63)
	return int64(u), err
}

func seedError(list, part string) error {
	return fmt.Errorf("read seeds %q: %q is neither a whole number from 0 nor a range like 42-51", list, part)
}
