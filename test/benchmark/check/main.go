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
	r.Ratios, r.Gangs = slices.DeleteFunc(r.Ratios, other), slices.DeleteFunc(r.Gangs, other)
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
	if perf != "" {
		pods, err := benchmark.Pods("test/benchmark/workloads.yaml")
		if err != nil {
			return nil, err
		}
		rates, err := benchmark.PodsPerSecond(perf, pods)
		if err != nil {
			return nil, err
		}
		table, out := benchmark.CompareRatios(ranges.Ratios, rates)
		fmt.Println(table)
		broken = append(broken, out...)
		gangs, err := benchmark.GangsPerSecond(perf)
		if err != nil {
			return nil, err
		}
		fmt.Println("gangs per second of algorithm time")
		table, out = benchmark.CompareRatios(ranges.Gangs, gangs)
		fmt.Println(table)
		broken = append(broken, out...)
	}
	return broken, nil
}
