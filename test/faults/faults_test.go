package faults

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/klog/v2"
)

var (
	sequences = flag.Int("sequences", 6, "how many random sequences of faults are played")
	firstSeed = flag.Uint64("seed", 1, "seed of the first sequence; the others follow")
	together  = flag.Int("together", 6, "how many sequences are played at once: more is faster, until the machine is too slow for the agents' deadlines")
	table     = flag.Bool("table", false, "measure the table of docs/faults.md and print it")
	row       = flag.String("row", "", "of the table measure only rows whose name holds this")
)

// world is made by the first test that needs it.
var world = sync.OnceValues(func() (*World, error) { return NewWorld(context.Background()) })

var worldUsed bool

func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(io.Discard, nil))) // of the played kubelets
	flag.Parse()
	code := m.Run()
	if worldUsed {
		if w, err := world(); err == nil {
			w.Close()
		}
	}
	os.Exit(code)
}

func theWorld(t testing.TB) *World {
	t.Helper()
	worldUsed = true
	w, err := world()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// sequenceSpec is the node of a sequence. With an even seed its kubelet serves no pods.
func sequenceSpec(seed uint64) Spec {
	return Spec{GPUs: 2, SlotsPerGPU: 10, Config: quick, SmallDisk: os.Geteuid() == 0, NoPodsAPI: seed%2 == 0}
}

// After any sequence of faults nothing is lost: every pod has its share and nothing else, every device is healthy and
// serves, and when the pods are gone nothing of them is left.
func TestRandomSequences(t *testing.T) {
	w := theWorld(t)
	if os.Geteuid() != 0 {
		t.Log("not root: no disk is filled")
	}
	count := *sequences
	if testing.Short() {
		count = min(count, 2)
	}
	turn := make(chan struct{}, *together)
	var all sync.WaitGroup
	for i := range count {
		turn <- struct{}{}
		all.Go(func() {
			var once sync.Once
			done := func() { once.Do(func() { <-turn }) }
			defer done()
			s := Plan(*firstSeed+uint64(i), sequenceSpec(*firstSeed+uint64(i)))
			begin := time.Now()
			events, why := try(t.Context(), w, s, done)
			if why != nil {
				t.Errorf("seed %d (repeat it with -sequences=1 -seed=%d): %v\n%v", s.Seed, s.Seed, why, s)
			}
			t.Logf("seed %d: %d steps, %.0f s, programs said %v", s.Seed, len(s.steps), time.Since(begin).Seconds(), events)
		})
	}
	all.Wait()
}

// try plays a sequence on a node of its own and returns what the programs in the containers met. quiet is called when
// nothing remains but to wait.
func try(ctx context.Context, w *World, s Sequence, quiet func()) (events map[string]int, err error) {
	n, err := w.NewNode(ctx, sequenceSpec(s.Seed))
	if err != nil {
		return nil, err
	}
	defer n.Remove()
	if err := examine(ctx, n, s, quiet); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, n.Log())
	}
	return n.tenants.counts(), nil
}

func examine(ctx context.Context, n *Node, s Sequence, quiet func()) error {
	if err := await(ctx, patience, "a node that is whole at the start", n.whole); err != nil {
		return err
	}
	if err := s.play(ctx, n); err != nil {
		return err
	}
	if err := await(ctx, patience, "a node that is whole after all faults", n.whole); err != nil {
		return err
	}
	for _, pod := range n.pods.list() {
		if err := n.pods.remove(ctx, pod.name); err != nil {
			return err
		}
	}
	quiet()
	if err := await(ctx, patience, "nothing of pods that are gone", n.empty); err != nil {
		return err
	}
	if err := await(ctx, patience, "a node that is whole without pods", n.whole); err != nil {
		return err
	}
	n.tenants.stop()
	n.StopAgent(false)
	n.StopKubelet()
	n.endMPS()
	if err := n.unexpected(); err != nil {
		return err
	}
	return await(ctx, patience, "the end", n.awaitNobody)
}

func await(ctx context.Context, limit time.Duration, what string, check func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return poll(ctx, 200*time.Millisecond, what, check)
}

// A sequence is what its seed says, whatever was planned before.
func TestPlanIsRepeatable(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(20) {
		s := Plan(seed, sequenceSpec(seed)).String()
		if again := Plan(seed, sequenceSpec(seed)).String(); again != s {
			t.Errorf("seed %d gives\n%s\nand then\n%s", seed, s, again)
		}
		if seen[s] {
			t.Errorf("seed %d gives the sequence of another", seed)
		}
		seen[s] = true
	}
}

// Every fault comes in 200 sequences, and each fault that can be lifted is lifted.
func TestPlansHaveAllFaults(t *testing.T) {
	struck, lifted := map[string]int{}, map[string]int{}
	for seed := range uint64(200) {
		for _, step := range Plan(1+seed, sequenceSpec(1+seed)).steps {
			what, over := strings.CutSuffix(step.what, " is over")
			for _, f := range Faults() {
				switch {
				case over && strings.HasSuffix(what, ": "+f.Name):
					lifted[f.Name]++
				case strings.Contains(what, ": "+f.Name+" ("):
					struck[f.Name]++
				}
			}
		}
	}
	for _, f := range Faults() {
		if f.root && os.Geteuid() != 0 {
			continue
		}
		if struck[f.Name] < 20 {
			t.Errorf("%s strikes %d times in 200 sequences, want 20 and more", f.Name, struck[f.Name])
		}
		if f.lift != nil && lifted[f.Name] != struck[f.Name] {
			t.Errorf("%s strikes %d times and is lifted %d times", f.Name, struck[f.Name], lifted[f.Name])
		}
	}
}
