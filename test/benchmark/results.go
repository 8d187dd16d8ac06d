package benchmark

import (
	"cmp"
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

// PodsPerSecond reads the files that scheduler_perf wrote into a folder. It returns the measured pods of a workload
// divided by the time until the last of them had its node, by "case/workload", and of several rounds the median. The
// average throughput in the same files is the mean of samples of a second each. Times the duration it is up to a fifth
// more than the pods that there are.
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
					rounds[name] = append(rounds[name], float64(pods[name])/item.Data["Duration"])
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

// most is the part of the pods that MostPodsPerSecond counts.
const most = 0.95

// MostPodsPerSecond reads how the pods of each workload got their nodes over time, which scheduler_perf wrote into a
// folder once a second. It returns the pods that had one when 95 % had, per second until then, by "case/workload", and
// of several rounds the median. The function is for preemptors. One that misses the event of its room waits for up to
// five minutes until the scheduler looks at all that wait, and would hide the time of all others. If the last second
// had more than 5 %, rates of all pods count.
func MostPodsPerSecond(dir string, pods map[string]int) (map[string]float64, error) {
	rates, err := PodsPerSecond(dir, pods)
	if err != nil {
		return nil, err
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.dat"))
	if err != nil {
		return nil, fmt.Errorf("read progress: %w", err)
	}
	rounds := map[string][]float64{}
	for _, file := range files {
		// The name is that of the case, of the workload, of the topic and of the run.
		parts := strings.Split(filepath.Base(file), "_")
		if len(parts) < 3 {
			continue
		}
		name := parts[0] + "/" + parts[1]
		rate, err := until(file, most*float64(pods[name]))
		if err != nil {
			return nil, err
		}
		rounds[name] = append(rounds[name], cmp.Or(rate, rates[name]))
	}
	for name, all := range rounds {
		rates[name] = median(all)
	}
	return rates, nil
}

// until returns the pods per second until so many had their nodes, 0 where no line of the file has as many. A line is: the
// time, attempts that succeeded and all attempts since the scheduler's start, the pods that have nodes, and more.
func until(file string, least float64) (float64, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return 0, fmt.Errorf("read progress: %w", err)
	}
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(line)
		if len(fields) < 4 {
			return 0, fmt.Errorf("read progress: %s: line %q", file, line)
		}
		seconds, err := strconv.ParseFloat(strings.TrimSuffix(fields[0], "s"), 64)
		if err != nil {
			return 0, fmt.Errorf("read progress: %s: %w", file, err)
		}
		count, err := strconv.ParseFloat(fields[3], 64)
		if err != nil {
			return 0, fmt.Errorf("read progress: %s: %w", file, err)
		}
		if count >= least && seconds > 0 {
			return count / seconds, nil
		}
	}
	return 0, nil
}

// GangAlgorithm is the time that the scheduling algorithm took for the gangs of one workload, warm-up included.
type GangAlgorithm struct {
	// Name is that of the benchmark, of the case and of the workload.
	Name string `json:"name"`
	// Seconds of all attempts together, failed ones too.
	Seconds float64 `json:"seconds"`
	// Attempts to schedule a gang, and Scheduled the gangs that one of them scheduled.
	Attempts  int `json:"attempts"`
	Scheduled int `json:"scheduled"`
}

// gangSuffix marks the files of a GangAlgorithm beside those of scheduler_perf.
const gangSuffix = ".gangs"

// GangsPerSecond reads what was recorded of gangs into a folder: how many gangs a second of algorithm time schedules,
// by "case/workload". The time that gangs wait between attempts and the time of their binds are no part of it.
func GangsPerSecond(dir string) (map[string]float64, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*"+gangSuffix))
	if err != nil {
		return nil, fmt.Errorf("read gangs: %w", err)
	}
	rates := map[string]float64{}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("read gangs: %w", err)
		}
		var g GangAlgorithm
		if err := json.Unmarshal(raw, &g); err != nil {
			return nil, fmt.Errorf("read gangs: %s: %w", file, err)
		}
		if parts := strings.Split(g.Name, "/"); len(parts) >= 3 && g.Seconds > 0 {
			rates[parts[1]+"/"+parts[2]] = float64(g.Scheduled) / g.Seconds
		}
	}
	return rates, nil
}

// Pods reads the description of the workloads: the number of measured pods by "case/workload".
func Pods(path string) (map[string]int, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read workloads: %w", err)
	}
	var cases []struct {
		Name      string
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
			pods[c.Name+"/"+w.Name] = w.Params.Pods
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
var benchmarkLine = regexp.MustCompile(`(?m)^(Benchmark\S+?)(?:-\d+)?\s+\d+\s+([0-9.]+) ns/op(?:\s+([0-9.]+) cpu-ms/op|.*\s([0-9.]+) p99-ms)?`)

// Milliseconds reads the output of `go test -bench`: the time of one operation by the name of the benchmark. If a
// benchmark reports its processor time as cpu-ms/op, that counts: it is the time on one core without other load. If it
// reports p99-ms, that counts: 99 of 100 operations take no longer.
func Milliseconds(output string) (map[string]float64, error) {
	result := map[string]float64{}
	for _, match := range benchmarkLine.FindAllStringSubmatch(output, -1) {
		raw, divisor := match[2], 1e6
		if other := match[3] + match[4]; other != "" {
			raw, divisor = other, 1
		}
		value, err := strconv.ParseFloat(raw, 64)
		if err != nil {
			return nil, fmt.Errorf("read result of %s: %w", match[1], err)
		}
		result[match[1]] = value / divisor
	}
	return result, nil
}
