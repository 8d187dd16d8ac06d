package passes

import (
	"cmp"
	"slices"
)

// InTurn returns things in the order of their turns: the first one of each namespace before the second one of any, so that a namespace with many of them
// delays its own. Those of one turn stay in their order.
func InTurn[T any](list []T, namespace func(T) string) []T {
	type turn struct{ at, number int }
	turns, before := make([]turn, len(list)), map[string]int{}
	for i := range list {
		name := namespace(list[i])
		turns[i] = turn{i, before[name]}
		before[name]++
	}
	slices.SortStableFunc(turns, func(a, b turn) int { return cmp.Compare(a.number, b.number) })
	out := make([]T, len(list))
	for i, t := range turns {
		out[i] = list[t.at]
	}
	return out
}
