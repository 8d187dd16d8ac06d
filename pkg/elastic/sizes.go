package elastic

import (
	"strconv"
	"strings"
)

// ParseSizes reads legal sizes as users write them: a range such as 2-8, a range in steps such as 2-8/2, or an ascending list
// such as 1,2,4,8. The numbers are from 1 to most; legal is false for any other text.
func ParseSizes(text string, most int) (sizes []int, legal bool) {
	if least, rest, isRange := strings.Cut(text, "-"); isRange {
		last, step, stepped := strings.Cut(rest, "/")
		if !stepped {
			step = "1"
		}
		bounds, legal := parseNumbers(most, least, last, step)
		if !legal {
			return nil, false
		}
		sizes, err := Steps(bounds[0], bounds[1], bounds[2])
		return sizes, err == nil
	}
	sizes, legal = parseNumbers(most, strings.Split(text, ",")...)
	return sizes, legal && ascends(sizes)
}

// parseNumbers reads numbers from 1 to most.
func parseNumbers(most int, words ...string) (numbers []int, legal bool) {
	for _, word := range words {
		n, err := strconv.ParseUint(strings.TrimSpace(word), 10, 16)
		if err != nil || n < 1 || int(n) > most {
			return nil, false
		}
		numbers = append(numbers, int(n))
	}
	return numbers, true
}
