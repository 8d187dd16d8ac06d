package faults

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/test/must"
)

const (
	// settle is how long the agent runs with all pods before it is measured: start and first probes are over then.
	settle = 30 * time.Second
	// measured is how long one measurement takes: two rounds of the canary.
	measured = 60 * time.Second
)

// within fails the benchmark if a value is above its range.
func within(b *testing.B, unit string, value float64) {
	b.Helper()
	b.ReportMetric(value, unit)
	b.Logf("%.3g %s", value, unit) // a benchmark that fails prints no metrics
	ranges, err := LoadRanges("ranges.yaml")
	must.OK(b, err)
	r, ok := ranges[unit]
	switch {
	case !ok:
		b.Fatalf("ranges.yaml knows no %s", unit)
	case value > r.Max:
		b.Errorf("%s: %.3g, at most %.3g is allowed", r.Name, value, r.Max)
	}
}

// BenchmarkAgent measures what the agent costs with 8 GPUs × 10 slots and 80 pods at the default intervals.
func BenchmarkAgent(b *testing.B) {
	w := theWorld(b)
	n, err := w.NewNode(b.Context(), Spec{GPUs: 8, SlotsPerGPU: 10, Config: "{}"})
	must.OK(b, err)
	defer n.Remove()
	if err := await(b.Context(), patience, "a node that is whole", n.whole); err != nil {
		b.Fatalf("%v\n%s", err, n.Log())
	}
	for i := range 80 {
		if _, err := n.pods.create(b.Context(), fmt.Sprintf("p%d", i), n.uuids[i%8], 1); err != nil {
			b.Fatal(err)
		}
	}
	if err := await(b.Context(), patience, "80 pods that work", n.whole); err != nil {
		b.Fatalf("%v\n%s", err, n.Log())
	}
	pid := n.agentProcess().PID()
	time.Sleep(settle) // not for anything to happen: what came before is not to be measured
	var own, children time.Duration
	b.ResetTimer()
	for range b.N {
		o, c := used(b, pid)
		own, children = own+o, children+c
	}
	b.StopTimer()
	anonymous, all, err := resident(pid)
	must.OK(b, err)
	span := measured.Seconds() * float64(b.N)
	within(b, "percent-of-core", 100*own.Seconds()/span)
	within(b, "MiB-resident", float64(all)/(1<<20))
	b.ReportMetric(float64(anonymous)/(1<<20), "MiB-anonymous")
	b.ReportMetric(100*children.Seconds()/span, "percent-of-core-of-children")
	b.ReportMetric(0, "ns/op")
	if err := n.whole(b.Context()); err != nil {
		b.Errorf("the node at the end: %v", err)
	}
}

// used returns the processor time that a process uses in one measurement.
func used(b *testing.B, pid int) (own, children time.Duration) {
	b.Helper()
	beforeOwn, beforeChildren, err := cpu(pid)
	must.OK(b, err)
	select {
	case <-time.After(measured):
	case <-b.Context().Done():
	}
	own, children, err = cpu(pid)
	must.OK(b, err)
	return own - beforeOwn, children - beforeChildren
}

// BenchmarkRegistration measures the way from the kubelet's new socket to its first list of 8 GPUs × 100 slots.
func BenchmarkRegistration(b *testing.B) {
	w := theWorld(b)
	n, err := w.NewNode(b.Context(), Spec{GPUs: 8, SlotsPerGPU: 100, Config: "slots: {default: 100}", Mute: true})
	must.OK(b, err)
	defer n.Remove()
	err = await(b.Context(), patience, "an agent that waits for the kubelet", func(ctx context.Context) error {
		_, err := n.Metric(ctx, "tandem_agent_registered")
		return err
	})
	if err != nil {
		b.Fatalf("%v\n%s", err, n.Log())
	}
	var all []time.Duration
	for range b.N {
		one, err := n.register(800)
		must.OK(b, err)
		all = append(all, one)
	}
	slices.Sort(all)
	within(b, "ms-to-list", float64(all[len(all)/2])/float64(time.Millisecond))
	b.ReportMetric(float64(all[len(all)-1])/float64(time.Millisecond), "ms-to-list-slowest")
	b.ReportMetric(0, "ns/op")
}

func TestRanges(t *testing.T) {
	ranges, err := LoadRanges("ranges.yaml")
	must.OK(t, err)
	for _, unit := range []string{"MiB-resident", "percent-of-core", "ms-to-list"} {
		if r := ranges[unit]; r.Name == "" || r.Max <= 0 || r.Measured > r.Max {
			t.Errorf("%s: %+v is incomplete, or was measured above what is allowed", unit, r)
		}
	}
	if _, err := LoadRanges(filepath.Join(t.TempDir(), "none.yaml")); err == nil {
		t.Error("a file that is not there gives no error")
	}
}

func TestSumOfSeries(t *testing.T) {
	const page = "# HELP a x\na{b=\"1\",c=\"2\"} 3\na{b=\"2\"} 4\nab 100\na_total 7\n"
	for _, c := range []struct {
		labels []string
		want   float64
	}{{nil, 7}, {[]string{`b="1"`}, 3}, {[]string{`b="1"`, `c="2"`}, 3}, {[]string{`b="9"`}, 0}} {
		if got, err := sum(strings.NewReader(page), "a", c.labels); err != nil || got != c.want {
			t.Errorf("labels %v: %v, %v, want %v", c.labels, got, err, c.want)
		}
	}
	if _, err := sum(strings.NewReader(page), "none", nil); err == nil {
		t.Error("a metric that is not there gives no error")
	}
}
