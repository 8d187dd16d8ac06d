package benchmark

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// PodsPerSecond reads the files that scheduler_perf wrote into a folder: the measured pods of a workload divided by the
// time until the last of them was scheduled, by "case/workload", and of several rounds the median. The average throughput
// that scheduler_perf gives too is the mean of samples of a second each: times the duration it is up to a fifth more than
// the pods that there are.
func PodsPerSecond(dir string, pods map[string]int) (map[string]float64, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		return nil, fmt.Errorf("read measurements: %w", err)
	}
	rounds := map[string][]float64{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read measurements: %w", err)
		}
		var content struct {
			DataItems []struct {
				Data   map[string]float64 `json:"data"`
				Labels map[string]string  `json:"labels"`
			} `json:"dataItems"`
		}
		if err := json.Unmarshal(raw, &content); err != nil {
			return nil, fmt.Errorf("read measurements: %s: %w", file, err)
		}
		for _, item := range content.DataItems {
			if item.Labels["Metric"] == "SchedulingDuration" {
				// The name is that of the benchmark, of the case and of the workload, and the topic where there is one.
				parts := strings.Split(item.Labels["Name"], "/")
				if len(parts) >= 3 && item.Data["Duration"] > 0 {
					name := parts[1] + "/" + parts[2]
					rounds[name] = append(rounds[name], float64(pods[parts[2]])/item.Data["Duration"])
				}
			}
		}
	}
	rates := map[string]float64{}
	for name, all := range rounds {
		rates[name] = median(all)
	}
	return rates, nil
}

// Pods reads the description of the workloads: the number of measured pods by workload.
func Pods(path string) (map[string]int, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read workloads: %w", err)
	}
	var cases []struct {
		Workloads []struct {
			Name   string
			Params struct{ Pods int }
		}
	}
	if err := yaml.Unmarshal(raw, &cases); err != nil {
		return nil, fmt.Errorf("read workloads: %s: %w", path, err)
	}
	pods := map[string]int{}
	for _, c := range cases {
		for _, w := range c.Workloads {
			pods[w.Name] = w.Params.Pods
		}
	}
	return pods, nil
}

// median returns the middle value, of an even number of values the mean of the two in the middle.
func median(values []float64) float64 {
	slices.Sort(values)
	n := len(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// benchmarkLine is a result as `go test -bench` prints it: BenchmarkOnePod/nodes=500-2  1000  123456 ns/op …
var benchmarkLine = regexp.MustCompile(`(?m)^(Benchmark\S+?)(?:-\d+)?\s+\d+\s+([0-9.]+) ns/op`)

// Milliseconds reads the output of `go test -bench`: the time of one operation by the name of the benchmark.
func Milliseconds(output string) (map[string]float64, error) {
	result := map[string]float64{}
	for _, match := range benchmarkLine.FindAllStringSubmatch(output, -1) {
		nanoseconds, err := strconv.ParseFloat(match[2], 64)
		if err != nil {
			return nil, fmt.Errorf("read result of %s: %w", match[1], err)
		}
		result[match[1]] = nanoseconds / 1e6
	}
	return result, nil
}
