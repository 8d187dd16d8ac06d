// Command check holds what the benchmarks measured against the allowed ranges. `make bench` runs it.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/test/benchmark"
)

func main() {
	ranges := flag.String("ranges", "test/benchmark/ranges.yaml", "file of the allowed ranges")
	output := flag.String("go-bench", "", "file with the output of go test -bench; empty: costs are not checked")
	perf := flag.String("scheduler-perf", "", "folder with the results of scheduler_perf; empty: ratios are not checked")
	workloads := flag.String("workloads", "", "check only the ratios whose workload has this name, for example 500Nodes")
	flag.Parse()
	r, err := benchmark.LoadRanges(*ranges)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	other := func(r benchmark.Ratio) bool { return *workloads != "" && !strings.HasSuffix(r.Ours, "/"+*workloads) }
	for _, list := range []*[]benchmark.Ratio{&r.Ratios, &r.Gangs, &r.Preemptions} {
		*list = slices.DeleteFunc(*list, other)
	}
	broken, err := check(r, *output, *perf)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	for _, line := range broken {
		fmt.Println("OUT OF RANGE:", line)
	}
	if len(broken) > 0 {
		os.Exit(1)
	}
}

// check prints the tables and returns what is out of range.
func check(ranges benchmark.Ranges, output, perf string) ([]string, error) {
	var broken []string
	if output != "" {
		raw, err := os.ReadFile(output)
		if err != nil {
			return nil, err
		}
		milliseconds, err := benchmark.Milliseconds(string(raw))
		if err != nil {
			return nil, err
		}
		table, out := benchmark.CompareCosts(ranges.Costs, milliseconds)
		fmt.Println(table)
		broken = append(broken, out...)
	}
	if perf == "" {
		return broken, nil
	}
	out, err := compare(ranges, perf)
	return append(broken, out...), err
}

// compare prints the tables of what scheduler_perf measured and returns what is out of range.
func compare(ranges benchmark.Ranges, perf string) ([]string, error) {
	pods, err := benchmark.Pods("test/benchmark/workloads.yaml")
	if err != nil {
		return nil, err
	}
	all, err := benchmark.PodsPerSecond(perf, pods)
	if err != nil {
		return nil, err
	}
	most, err := benchmark.MostPodsPerSecond(perf, pods)
	if err != nil {
		return nil, err
	}
	gangs, err := benchmark.GangsPerSecond(perf)
	if err != nil {
		return nil, err
	}
	var broken []string
	for _, part := range []struct {
		title     string
		ratios    []benchmark.Ratio
		perSecond map[string]float64
	}{
		{"pods per second", ranges.Ratios, all},
		{"with preemption: pods per second until 95 % had their nodes", ranges.Preemptions, most},
		{"gangs per second of algorithm time", ranges.Gangs, gangs},
	} {
		table, out := benchmark.CompareRatios(part.ratios, part.perSecond)
		fmt.Printf("%s\n%s\n", part.title, table)
		broken = append(broken, out...)
	}
	return broken, nil
}
