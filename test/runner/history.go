package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
)

// history is what failed in several rounds.
type history struct {
	rounds, loops int
	failures      []*failure
}

// failure is a test that failed, in so many rounds as it has seeds.
type failure struct {
	suite, test string
	seeds       []string
}

// add takes a round that ended.
func (h *history) add(r *report) {
	for _, s := range r.bad {
		for _, name := range s.failures() {
			f := h.find(r.short(s.name), name)
			f.seeds = append(f.seeds, cmp.Or(s.seed, "none"))
		}
	}
}

func (h *history) find(suite, test string) *failure {
	for _, f := range h.failures {
		if f.suite == suite && f.test == test {
			return f
		}
	}
	f := &failure{suite: suite, test: test}
	h.failures = append(h.failures, f)
	return f
}

// print writes a table, the tests that failed most often first.
func (h *history) print(w io.Writer) {
	beside := fmt.Sprintf("in %d rounds beside %d busy loops on %d processors", h.rounds, h.loops, runtime.NumCPU())
	if len(h.failures) == 0 {
		fmt.Fprintf(w, "\nno test failed %s\n", beside)
		return
	}
	slices.SortFunc(h.failures, func(a, b *failure) int {
		return cmp.Or(cmp.Compare(len(b.seeds), len(a.seeds)), strings.Compare(a.suite, b.suite), strings.Compare(a.test, b.test))
	})
	fmt.Fprintf(w, "\nfailures %s; go test -shuffle=SEED plays an order again\n\n", beside)
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "failed\tpackage\ttest\tseeds of the order")
	for _, f := range h.failures {
		test := cmp.Or(f.test, "(the package itself)")
		fmt.Fprintf(table, "%d of %d\t%s\t%s\t%s\n", len(f.seeds), h.rounds, f.suite, test, strings.Join(f.seeds, " "))
	}
	_ = table.Flush() // w is the standard output, or a buffer
}
