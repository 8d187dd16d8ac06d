package elastic

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
)

// MaxSizes bounds how many sizes a user may list: they cost memory and time in each decision, for everybody. A gang of thousands of members changes
// by steps.
const MaxSizes = 256

// maxLooked bounds the sizes of a job that a decision compares.
const maxLooked = 64

// looked returns the sizes of a job that a decision compares: all of them if there are at most maxLooked. Else it takes the least and the largest
// one, the present one and its neighbours, and some of those for which there is room. Each of these is a part larger than the one before, since a job
// gains by a part what it grows by a part. The next decision compares others, around the size that the job has then. The sizes are ascending, and
// present is one of them or 0.
func looked(sizes []int, present, room int) []int {
	if len(sizes) <= maxLooked {
		return sizes
	}
	const near, apart = 8, maxLooked - 2*8 - 3
	keep := map[int]bool{0: true, len(sizes) - 1: true}
	if at, found := slices.BinarySearch(sizes, present); found {
		for i := max(0, at-near); i <= min(at+near, len(sizes)-1); i++ {
			keep[i] = true
		}
	}
	last, _ := slices.BinarySearch(sizes, max(room, sizes[0])+1)
	for i := range apart {
		n := float64(sizes[0]) * math.Pow(float64(sizes[last-1])/float64(sizes[0]), float64(i+1)/apart)
		at, _ := slices.BinarySearch(sizes[:last], int(n+.5))
		keep[min(at, last-1)] = true
	}
	some := make([]int, 0, len(keep))
	for _, i := range slices.Sorted(maps.Keys(keep)) {
		some = append(some, sizes[i])
	}
	return some
}

// ParseSizes reads legal sizes as users write them: a range such as 2-8, a range in steps such as 2-8/2, or an ascending list
// such as 1,2,4,8. The numbers are from 1 to most, MaxSizes at most; legal is false for any other text.
func ParseSizes(text string, most int) (sizes []int, legal bool) {
	if least, rest, isRange := strings.Cut(text, "-"); isRange {
		last, step, stepped := strings.Cut(rest, "/")
		if !stepped {
			step = "1"
		}
		bounds, legal := parseNumbers(most, least, last, step)
		if !legal || (bounds[1]-bounds[0])/bounds[2] >= MaxSizes {
			return nil, false
		}
		sizes, err := Steps(bounds[0], bounds[1], bounds[2])
		return sizes, err == nil
	}
	if strings.Count(text, ",") >= MaxSizes {
		return nil, false
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

// SizeBelow returns the largest legal size that is at most n, the least one where there is none.
func SizeBelow(sizes []int, n int) int {
	size := sizes[0]
	for _, legal := range sizes {
		if legal <= n {
			size = legal
		}
	}
	return size
}
