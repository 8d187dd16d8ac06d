package gangs

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/watch"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/features"
)

var (
	histories = flag.Int("histories", 50, "how many random histories each test plays")
	shrinks   = flag.Duration("shrink", 2*time.Minute, "how long a history that failed is played again and again to make it shorter")
	seed      = flag.Uint64("seed", 1, "the seed of the first history")
)

// shortHistories bounds the histories of each test with -short: make check plays no more.
const shortHistories = 10

func TestMain(m *testing.M) {
	flag.Parse()
	if testing.Short() {
		*histories = min(*histories, shortHistories)
	}
	// The runtime starts its goroutine for signals with the first scheduler that listens to one: not inside of a bubble.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGUSR2)
	// The default handlers sleep under a lock, which stops the clock of a bubble.
	utilruntime.ErrorHandlers = nil
	klog.SetLogger(logr.Discard())
	// This bounds the events that an informer has not read yet. The fake API panics beyond, and each of hundreds of watches takes the
	// memory for it.
	watch.DefaultChanSize = 2_000
	debug.SetGCPercent(400)       // histories make much garbage and keep little
	debug.SetMemoryLimit(4 << 30) // each process; with 400 percent alone it takes twice that
	os.Exit(m.Run())
}

// outcome plays a history in a bubble.
func outcome(t *testing.T, k kit, history []step) (violation string, log []string) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
		defer cancel()
		violation, log = play(ctx, k, history)
	})
	return violation, log
}

// TestHistories plays random histories pod by pod: gangs by label and by the PodGroup of the scheduler plugins.
func TestHistories(t *testing.T) { playMany(t, production(false)) }

// TestNativeHistories plays random histories with the PodGroup of Kubernetes, whose members the scheduler tries in one cycle,
// among gangs by label.
func TestNativeHistories(t *testing.T) {
	withNativeGroups(t)
	playMany(t, production(true))
}

func withNativeGroups(t *testing.T) {
	t.Helper()
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.GenericWorkload, true)
}

// perProcess is how many histories one process plays. More take more memory: the registry of metrics that the components of
// Kubernetes share keeps all that was ever registered, and with it the schedulers and their clients.
const perProcess = 100

// playMany plays random histories on all cores, until one fails.
func playMany(t *testing.T, k kit) {
	if *histories > perProcess {
		playElsewhere(t)
		return
	}
	var next, broken atomic.Int64
	var failed atomic.Bool
	workers := runtime.GOMAXPROCS(0)
	t.Cleanup(func() { checkTallies(t, k) })
	for worker := range workers {
		t.Run(fmt.Sprint(worker), func(t *testing.T) {
			t.Parallel()
			for i := next.Add(1) - 1; i < int64(*histories) && !failed.Load(); i = next.Add(1) - 1 {
				number := *seed + uint64(i)
				violation, log := outcome(t, k, write(number, k))
				keepRecord(t, number, log)
				switch {
				case isPromise(violation) && broken.Add(1) <= int64(mayBreak(*histories)):
					fmt.Printf("%sseed %d of %s: %s\n", brokenPromise, number, strings.Split(t.Name(), "/")[0], violation)
				case violation != "":
					failed.Store(true)
					report(t, k, number, violation, log)
				}
			}
		})
	}
}

// brokenPromise begins the line of a process that says that a history broke the promise. Another process counts these lines.
const brokenPromise = "a promise is broken, which may happen rarely: "

// playElsewhere plays random histories in processes of their own, one for each core at a time, until one fails.
func playElsewhere(t *testing.T) {
	var next, broken atomic.Int64
	var failed atomic.Bool
	for worker := range runtime.GOMAXPROCS(0) {
		t.Run(fmt.Sprint(worker), func(t *testing.T) {
			t.Parallel()
			for !failed.Load() {
				from := next.Add(perProcess) - perProcess
				if from >= int64(*histories) {
					return
				}
				count := min(perProcess, int64(*histories)-from)
				//nolint:gosec // the same program again
				again := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+strings.Split(t.Name(), "/")[0]+"$", "-test.timeout=30m",
					fmt.Sprint("-seed=", *seed+uint64(from)), fmt.Sprint("-histories=", count), fmt.Sprint("-shrink=", *shrinks), "-record="+*record)
				again.Env = append(os.Environ(), "GOMAXPROCS=1")
				out, err := again.CombinedOutput()
				if err != nil {
					failed.Store(true)
					t.Errorf("histories of seeds %d and %d more: %v\n%s", *seed+uint64(from), count-1, err, out)
					return
				}
				for line := range strings.Lines(string(out)) {
					if !strings.Contains(line, brokenPromise) {
						continue
					}
					t.Log(strings.TrimSpace(line))
					if most := mayBreak(*histories); broken.Add(1) > int64(most) {
						failed.Store(true)
						t.Errorf("more than %d of %d histories break a promise", most, *histories)
					}
				}
			}
		})
	}
}

// report prints a failed history as short as it can be made.
func report(t *testing.T, k kit, number uint64, violation string, log []string) {
	t.Helper()
	t.Logf("history of seed %d: %s; making it shorter", number, violation)
	short := violation
	history := shrink(write(number, k), func(shorter []step) bool {
		again, what := outcome(t, k, shorter)
		if again != "" {
			short, log = again, what
		}
		return again != ""
	})
	t.Errorf("history of seed %d: %s\n\nshortest history that fails, native=%v:\n%s\nfails with %q, like this:\n%s\n(again: go test ./test/gangs -run '%s' -seed=%d -histories=1)",
		number, violation, k.native, script(history), short, strings.Join(log, "\n"), strings.Split(t.Name(), "/")[0], number)
}

// TestScripts plays the histories of testdata, in both modes unless the file's name begins with pods- or native-.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no histories in testdata: %v", err)
	}
	for _, native := range []bool{false, true} {
		t.Run(fmt.Sprintf("native=%v", native), func(t *testing.T) {
			if native {
				withNativeGroups(t)
			}
			for _, file := range files {
				if name := filepath.Base(file); native && strings.HasPrefix(name, "pods-") || !native && strings.HasPrefix(name, "native-") {
					continue
				}
				playFile(t, production(native), file)
			}
		})
	}
}

func playFile(t *testing.T, k kit, file string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	history, err := parse(string(text))
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	if violation, log := outcome(t, k, history); violation != "" {
		t.Errorf("%s: %s\n%s", file, violation, strings.Join(log, "\n"))
	}
}
