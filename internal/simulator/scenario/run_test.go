package scenario_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/internal/simulator/scenario"
	"github.com/tandem-gpu/tandem/test/must"
)

// example returns the scenario of testdata/scripts/read.
func example(t *testing.T) *scenario.Scenario {
	t.Helper()
	raw, err := os.ReadFile("testdata/scripts/read")
	must.OK(t, err)
	_, text, _ := strings.Cut(string(raw), "parse\n")
	text, _, _ = strings.Cut(text, "----")
	s, err := scenario.Parse("example.yaml", []byte(text))
	must.OK(t, err)
	return s
}

// TestPlayIsTheSameOnAnyNumberOfProcessors: all runs, samples and verdicts, byte by byte, on one processor and on eight,
// and when the same scenario is played again.
func TestPlayIsTheSameOnAnyNumberOfProcessors(t *testing.T) {
	var texts []string
	s := example(t)
	for _, processors := range []int{1, 8, 8} {
		func() {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
			var told sync.Map // by the number of steps
			r, err := s.Play(func(done, total int) { told.Store(done, total) })
			must.OK(t, err)
			all := len(r.Runs) * scenario.Hundredths
			if total, _ := told.Load(all); total != all {
				t.Errorf("progress ends with %v of %v steps, want %d", all, total, all)
			}
			steps := 0
			told.Range(func(_, _ any) bool { steps++; return true })
			if steps < 5*len(r.Runs) {
				t.Errorf("progress is told %d times in %d runs, want it while a run goes on", steps, len(r.Runs))
			}
			var b strings.Builder
			for i := range r.Runs {
				m, err := r.Runs[i].History.MapAt(1 << 40)
				must.OK(t, err)
				text, err := json.Marshal([]any{r.Runs[i], m})
				must.OK(t, err)
				b.Write(text)
			}
			fmt.Fprintf(&b, "%+v", r.Assertions)
			texts = append(texts, b.String())
		}()
	}
	for _, other := range texts[1:] {
		if diff := cmp.Diff(texts[0], other); diff != "" {
			t.Fatalf("the results differ:\n%s", diff)
		}
	}
}

// TestPlayKeepsTheOrder: by policy as the scenario names them, then by seed.
func TestPlayKeepsTheOrder(t *testing.T) {
	s := example(t)
	s.Policies, s.Seeds = []string{"spread", "packed", "fgd"}, []int64{9, 3}
	r, err := s.Play(nil)
	must.OK(t, err)
	var got []string
	for i := range r.Runs {
		got = append(got, fmt.Sprint(r.Runs[i].Policy, r.Runs[i].Seed))
	}
	if diff := cmp.Diff([]string{"spread9", "spread3", "packed9", "packed3", "fgd9", "fgd3"}, got); diff != "" {
		t.Errorf("runs (-want +got):\n%s", diff)
	}
}

func TestReadOpensNothing(t *testing.T) {
	if _, err := scenario.Read("testdata/there-is-none.yaml"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Read = %v, want that the file is not there", err)
	}
}

func TestEach(t *testing.T) {
	for _, processors := range []int{1, 8} {
		t.Run(fmt.Sprint(processors), func(t *testing.T) {
			defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
			var squares [20]int
			var steps, most, now atomic.Int64
			err := scenario.Each(len(squares), func(_, total int) { steps.Add(int64(total)) }, func(i int) error {
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				squares[i] = i * i
				now.Add(-1)
				return nil
			})
			if err != nil || squares[19] != 361 || steps.Load() != 20*20 {
				t.Errorf("error %v, squares %v, steps %d", err, squares, steps.Load())
			}
			if most.Load() > int64(processors) {
				t.Errorf("%d tasks ran at once on %d processors", most.Load(), processors)
			}
		})
	}
}

// TestEachFails: the error does not depend on how many tasks run at once, and tasks that have not begun are left.
func TestEachFails(t *testing.T) {
	for _, processors := range []int{1, 8} {
		defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
		var ran atomic.Int64
		err := scenario.Each(1000, nil, func(i int) error {
			ran.Add(1)
			if i >= 3 {
				return fmt.Errorf("task %d: %w", i, errors.ErrUnsupported)
			}
			return nil
		})
		if err == nil || err.Error() != "task 3: unsupported operation" {
			t.Errorf("error %v, want that of task 3", err)
		}
		if ran.Load() > 3+int64(processors) {
			t.Errorf("%d tasks ran after the first error", ran.Load())
		}
	}
}

func TestParseSeeds(t *testing.T) {
	for _, tc := range []struct {
		list string
		want []int64
		err  string
	}{
		{"42", []int64{42}, ""},
		{"42-44", []int64{42, 43, 44}, ""},
		{"7, 1-2,0", []int64{7, 1, 2, 0}, ""},
		{"9223372036854775807", []int64{9223372036854775807}, ""},
		{"9223372036854775806-9223372036854775807", []int64{9223372036854775806, 9223372036854775807}, ""},
		{"", nil, `read seeds "": "" is neither a whole number from 0 nor a range like 42-51`},
		{"42-", nil, `read seeds "42-": "42-" is neither a whole number from 0 nor a range like 42-51`},
		{"-1", nil, `read seeds "-1": "-1" is neither a whole number from 0 nor a range like 42-51`},
		{"51-42", nil, `read seeds "51-42": "51-42" is neither a whole number from 0 nor a range like 42-51`},
		{"1,x", nil, `read seeds "1,x": "x" is neither a whole number from 0 nor a range like 42-51`},
		{"1.5", nil, `read seeds "1.5": "1.5" is neither a whole number from 0 nor a range like 42-51`},
		{"9223372036854775808", nil, `read seeds "9223372036854775808": "9223372036854775808" is neither a whole number from 0 nor a range like 42-51`},
		{"1-3,2", nil, `read seeds "1-3,2": 2 appears twice`},
		{"0-9223372036854775807", nil, `read seeds "0-9223372036854775807": more than 10000`},
		{"0-9999,20000", nil, `read seeds "0-9999,20000": more than 10000`},
	} {
		t.Run(tc.list, func(t *testing.T) {
			got, err := scenario.ParseSeeds(tc.list)
			text := ""
			if err != nil {
				text = err.Error()
			}
			if text != tc.err {
				t.Errorf("error %v, want %s", err, tc.err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("seeds (-want +got):\n%s", diff)
			}
		})
	}
}
