package lifetimes

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/tandem-gpu/tandem/internal/simulator/traces"
	"github.com/tandem-gpu/tandem/pkg/lifetime"
	"github.com/tandem-gpu/tandem/test/must"
)

// trace returns jobs of two users in turn, an hour and a half apart: ann's run for 100 s and every fourth of bob's for six hours, else for one.
func trace(t testing.TB, jobs int) *traces.Trace {
	var text strings.Builder
	text.WriteString("timestamp,duration,num_gpus,cluster\n")
	for i := range jobs {
		user, length := "ann", 100
		if i%2 == 1 {
			user, length = "bob", 3600
		}
		if i%8 == 3 {
			length *= 6
		}
		fmt.Fprintf(&text, "2017-10-%02d %02d:%02d:00,%d,1,%s\n", 1+i/16, i%16*90/60, i%2*30, length, user)
	}
	out, err := traces.Read(strings.NewReader(text.String()), "jobs.csv")
	must.OK(t, err)
	return out
}

// Predictions know no job that had not ended, and rivals neither.
func TestOnlyTheEndedAreKnown(t *testing.T) {
	jobs := jobsOf(trace(t, 200))
	moments := momentsOf(jobs[100:])
	future := jobsOf(trace(t, 200))
	// The last job becomes another one: no moment before its end may tell.
	future[199].length = 500_000
	same := momentsOf(future[100:])[:len(moments)]
	for name, p := range map[string]predictor{"tandem": tandem{lifetime.Defaults()}, "median": rival{userMedian}, "linear": rival{linear}} {
		a, err := p.answers(jobs, moments)
		must.OK(t, err)
		b, err := p.answers(future, same)
		must.OK(t, err)
		for i := range moments {
			if moments[i].at() < jobs[199].start && a[i] != b[i] {
				t.Fatalf("%s: answer %d is %v, and %v with another future", name, i, a[i], b[i])
			}
		}
	}
}

// A median that fits one user's jobs only is worse than one of all groups.
func TestTandemKnowsUsers(t *testing.T) {
	e := &Experiment{Traces: []*traces.Trace{trace(t, 400)}, From: .5, To: 1, Config: lifetime.Defaults()}
	rows, err := e.Run()
	must.OK(t, err)
	if len(rows) != 3 || rows[0].Predictor != "tandem" || rows[1].Predictor != "median of the user" || rows[2].Predictor != "linear regression" {
		t.Fatalf("rows %+v", rows)
	}
	if rows[0].RelativeError > .3 || rows[0].LogLoss >= rows[2].LogLoss {
		t.Errorf("tandem %+v, the regression %+v", rows[0], rows[2])
	}
}

// Two moments, worked by hand: deciles 10 to 90 s beside a remaining time of 50 s, and of 100 s.
func TestScore(t *testing.T) {
	var a answer
	for d := range a {
		a[d] = 10 * float64(d+1)
	}
	got := score([]moment{{job: &job{length: 50}}, {job: &job{length: 150}, age: 50}}, []answer{a, a})
	// The loss of 50 s: below it 0.1·40 + 0.2·30 + 0.3·20 + 0.4·10 = 20, above it the same: 40. That of 100 s: the sum of d/10 · (100 - 10 d) =
	// 165.
	if want := (40 + 165.0) / 18 / 3600; math.Abs(got.Loss-want) > 1e-12 {
		t.Errorf("the loss is %v, want %v", got.Loss, want)
	}
	if got.Covered != .5 || got.RelativeError != .5 || got.Predictions != 2 {
		t.Errorf("score %+v, want half covered and a relative error of .5", got)
	}
}

// At an age, a rival goes by those of its errors that the age leaves possible.
func TestResidual(t *testing.T) {
	errs := []float64{math.Log(.5), 0, math.Log(2)}
	if a := residual(math.Log(100), errs, 0); math.Abs(a[4]-100) > 1e-9 || math.Abs(a[0]-50) > 1e-9 {
		t.Errorf("deciles at the start %v, want 50 first and 100 in the middle", a)
	}
	if a := residual(math.Log(100), errs, 150); math.Abs(a[0]-50) > 1e-9 || math.Abs(a[8]-50) > 1e-9 {
		t.Errorf("deciles at 150 s %v, want 50 in all", a)
	}
	if a := residual(math.Log(100), errs, 300); math.Abs(a[4]-300) > 1e-9 {
		t.Errorf("the median at an age that no job reached is %v, want 300", a[4])
	}
}

// The regression finds a law of the logarithm of the length.
func TestLinear(t *testing.T) {
	var jobs []*job
	for i := range 4000 {
		x := float64(i % 7)
		jobs = append(jobs, &job{length: math.Exp(3 + x + float64(i%2)), features: []float64{x}, category: [2]int{i % 2, 2}})
	}
	predicted, fitted, err := linear(jobs, jobs[:2])
	must.OK(t, err)
	for i, want := range []float64{3, 5} {
		if math.Abs(predicted[i]-want) > .01 || predicted[i] != fitted[i] {
			t.Errorf("logarithm %d is %v and %v, want %v", i, predicted[i], fitted[i], want)
		}
	}
}

// Programs of boosting that fail or answer something else are errors that name them.
func TestBoostingProgram(t *testing.T) {
	from := []*job{{length: 1}}
	p, f, err := boosting{[]string{"sh", "-c", `cat >/dev/null; echo '{"predicted":[1,2],"fitted":[3]}'`}}.fit(from, []*job{{}, {}})
	if err != nil || len(p) != 2 || f[0] != 3 {
		t.Errorf("predicted %v, fitted %v, error %v", p, f, err)
	}
	for program, want := range map[string]string{"echo no >&2; exit 3": "no", "echo {}": "0 and 0 predictions, want 2 and 1", "echo": "read the result"} {
		_, _, err := boosting{[]string{"sh", "-c", "cat >/dev/null; " + program}}.fit(from, []*job{{}, {}})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", program, err, want)
		}
	}
}

// Orders by true times and by predictions gain over FIFO where short jobs wait behind long ones.
func TestShortest(t *testing.T) {
	s := &Shortest{Traces: []*traces.Trace{trace(t, 400)}, GPUs: 1, Jobs: 200, Loads: []float64{.9}, Config: lifetime.Defaults()}
	rows, err := s.Run()
	must.OK(t, err)
	r := rows[0]
	if !(r.True < r.FIFO && r.True <= r.Predicted && r.Predicted < r.FIFO) {
		t.Errorf("means %+v, want those of true times first, and of FIFO last", r)
	}
}

// One GPU at a load of 1: of two jobs of 10 s and 1 s that arrive 11 s apart, none waits, and the mean is 5.5 s in each order.
func TestShortestByHand(t *testing.T) {
	text := "timestamp,duration,num_gpus\n2017-10-01 00:00:00,1,1\n2017-10-01 00:00:01,1,1\n2017-10-02 00:00:00,10,1\n2017-10-02 00:00:11,1,1\n"
	all, err := traces.Read(strings.NewReader(text), "jobs.csv")
	must.OK(t, err)
	s := &Shortest{Traces: []*traces.Trace{all}, GPUs: 1, Jobs: 10, Loads: []float64{1, 10}, Config: lifetime.Defaults()}
	rows, err := s.Run()
	must.OK(t, err)
	// At a load of 10 they arrive 1.1 s apart. In order the second ends at 11 s, else at 2.1 s, and then the first at 11 s.
	for i, want := range []ShortestRow{{FIFO: 5.5, True: 5.5}, {FIFO: (10 + 9.9) / 2, True: (11 + 1) / 2.0}} {
		if math.Abs(rows[i].FIFO-want.FIFO) > 1e-6 || math.Abs(rows[i].True-want.True) > 1e-6 {
			t.Errorf("load %v: %+v, want %+v", rows[i].Load, rows[i], want)
		}
	}
}

func TestBadExperiments(t *testing.T) {
	all := []*traces.Trace{trace(t, 10)}
	for _, c := range []struct {
		do   func() error
		want string
	}{
		{func() error { _, err := (&Experiment{Traces: all, From: 1, To: .5}).Run(); return err }, "parts 1 to 0.5, legal is 0 to 1"},
		{func() error { _, err := (&Experiment{Traces: all, From: 0, To: 1}).Run(); return err }, "want some before the first prediction"},
		{func() error { _, err := (&Shortest{Traces: all}).Run(); return err }, "0 GPUs, legal is 1 to"},
		{func() error { _, err := (&Shortest{Traces: all, GPUs: 1, Loads: []float64{-1}}).Run(); return err }, "load -1, legal is above 0 to 10"},
		{func() error { _, err := (&Shortest{Traces: all, GPUs: 1, Loads: []float64{1}}).Run(); return err }, "0 jobs with GPUs"},
	} {
		if err := c.do(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("error %v, want %q", err, c.want)
		}
	}
}
