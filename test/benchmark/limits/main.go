package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/tandem-gpu/tandem/internal/sandbox"
)

// least is the part of the rate without limits that the deployed scheduler must reach.
const least = 0.9

// variants of the scheduler's limits: those of deploy/, none, and the default of Kubernetes.
var variants = map[string]func(config map[string]any){
	"deployed": func(map[string]any) {},
	"unlimited": func(config map[string]any) {
		limits(config)["qps"] = -1
	},
	"kubernetes": func(config map[string]any) {
		delete(limits(config), "qps")
		delete(limits(config), "burst")
	},
}

func limits(config map[string]any) map[string]any { return config["clientConnection"].(map[string]any) }

func main() {
	rounds := flag.Int("rounds", 5, "how often each is run; the medians count")
	names := flag.String("variants", "deployed,unlimited", "what is compared, of deployed, unlimited and kubernetes")
	nodes := flag.Int("nodes", 500, "nodes of eight GPUs")
	gangs := flag.Int("gangs", 250, "gangs of four")
	pods := flag.Int("pods", 1000, "pods beside the gangs")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, workload{nodes: *nodes, gangs: *gangs, pods: *pods}, strings.Split(*names, ","), *rounds)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "limits:", err)
		os.Exit(1)
	}
}

// result is what one run gave.
type result struct{ podsPerSecond, doubts float64 }

func run(ctx context.Context, w workload, names []string, rounds int) error {
	binary, err := build(ctx)
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(binary))
	results := map[string][]result{}
	for round := range rounds {
		for _, name := range names {
			change, ok := variants[name]
			if !ok {
				return fmt.Errorf("-variants: %q is none of deployed, unlimited, kubernetes", name)
			}
			r, err := w.run(ctx, binary, change)
			if err != nil {
				return fmt.Errorf("round %d, %s: %w", round+1, name, err)
			}
			fmt.Printf("round %d, %s: %.1f pods/s, %.0f binds in doubt\n", round+1, name, r.podsPerSecond, r.doubts)
			results[name] = append(results[name], r)
		}
	}
	return judge(results, names)
}

// judge prints the medians and returns what is out of range.
func judge(results map[string][]result, names []string) error {
	medians := map[string]float64{}
	doubts := map[string]float64{}
	for _, name := range names {
		var rates []float64
		for _, r := range results[name] {
			rates = append(rates, r.podsPerSecond)
			doubts[name] += r.doubts
		}
		slices.Sort(rates)
		medians[name] = (rates[(len(rates)-1)/2] + rates[len(rates)/2]) / 2
		fmt.Printf("%-10s median of %d: %.1f pods/s (%.1f to %.1f), %.0f binds in doubt\n",
			name, len(rates), medians[name], rates[0], rates[len(rates)-1], doubts[name])
	}
	if medians["unlimited"] > 0 && medians["deployed"] > 0 {
		ratio := medians["deployed"] / medians["unlimited"]
		fmt.Printf("deployed / unlimited: %.2f, allowed ≥ %.2f\n", ratio, least)
		if ratio < least {
			return fmt.Errorf("the deployed limits slow the scheduler to %.2f of its speed, and %.2f is allowed", ratio, least)
		}
	}
	if doubts["deployed"] > 0 {
		return fmt.Errorf("%.0f binds of the deployed scheduler were in doubt", doubts["deployed"])
	}
	return nil
}

// build builds the scheduler into a folder of its own.
func build(ctx context.Context) (string, error) {
	root, err := sandbox.Root()
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "tandem-limits-*")
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "scheduler")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", binary, "./cmd/scheduler")
	cmd.Dir = root
	if output, err := cmd.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return "", fmt.Errorf("build the scheduler: %w\n%s", err, output)
	}
	return binary, nil
}
