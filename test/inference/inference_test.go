package inference

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tandem-gpu/tandem/test/must"
)

// TestTimesHaveTheirMoments: the drawn times have the declared mean and squared coefficient of variation, within four standard errors.
func TestTimesHaveTheirMoments(t *testing.T) {
	for _, h := range []Hardware{{"A100", 1000}, {"L4", 1000}, {"T4", 500}, {"A100", 100}} {
		times, err := h.On(40 * time.Millisecond)
		must.OK(t, err)
		const n = 200_000
		random := rand.New(rand.NewPCG(1, 2))
		sum, squares := 0.0, 0.0
		for range n {
			x := times.draw(random).Seconds()
			sum, squares = sum+x, squares+x*x
		}
		mean := sum / n
		variation := squares/n/mean/mean - 1
		if want := times.Mean.Seconds(); math.Abs(mean-want) > 4*want*math.Sqrt(times.Variation/n) {
			t.Errorf("%v: the mean is %v, want %v", h, mean, want)
		}
		if math.Abs(variation-times.Variation) > .05*times.Variation {
			t.Errorf("%v: the variation is %v, want %v", h, variation, times.Variation)
		}
	}
}

func TestHardware(t *testing.T) {
	for _, c := range []struct {
		h         Hardware
		mean      time.Duration
		variation float64
		err       string
	}{
		{h: Hardware{"A100", 1000}, mean: 40 * time.Millisecond, variation: .3},
		{h: Hardware{"T4", 500}, mean: 264 * time.Millisecond, variation: .5}, // 8 ms + 32 ms ÷ 0.25 ÷ 0.5
		{h: Hardware{"T5", 500}, err: `GPU "T5": legal are A100, L4, T4`},
		{h: Hardware{"T4", 0}, err: "share 0: legal are 1 to 1000 thousandths"},
	} {
		times, err := c.h.On(40 * time.Millisecond)
		if fmt.Sprint(err) != fmt.Sprint(c.err) && (err != nil || c.err != "") {
			t.Errorf("%v: error %v, want %q", c.h, err, c.err)
		}
		if (times.Mean-c.mean).Abs() > time.Microsecond || math.Abs(times.Variation-c.variation) > 1e-9 {
			t.Errorf("%v: %+v, want mean %v and variation %v", c.h, times, c.mean, c.variation)
		}
	}
}

func TestOptionsRefused(t *testing.T) {
	legal := Options{Times: Times{time.Millisecond, 1}, Slots: 1, Batch: 1}
	for want, change := range map[string]func(o *Options){
		"mean":      func(o *Options) { o.Times.Mean = 0 },
		"variation": func(o *Options) { o.Times.Variation = 0 },
		"slots":     func(o *Options) { o.Slots = 0 },
		"batch":     func(o *Options) { o.Batch = 0 },
		"growth":    func(o *Options) { o.Growth = math.NaN() },
	} {
		o := legal
		change(&o)
		if _, err := NewServer(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
}

// nearly are times that hardly vary, for tests that compute when an answer must come.
var nearly = Times{100 * time.Millisecond, 1e-8}

// ask sends requests to a server at once, one after another in order, and returns after how many tenths of a second each was answered.
func ask(s *Server, n int) []int {
	began := time.Now()
	tenths := make([]int, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			answer := httptest.NewRecorder()
			s.ServeHTTP(answer, httptest.NewRequest(http.MethodPost, "/v2/models/bert/infer", nil))
			if tenths[i] = int(math.Round(10 * time.Since(began).Seconds())); answer.Code != http.StatusOK {
				tenths[i] = -1
			}
		})
		synctest.Wait() // the request is in the queue
	}
	all.Wait()
	return tenths
}

// TestServerQueues: two slots serve two requests at once, and the others wait for one of these, in order.
func TestServerQueues(t *testing.T) {
	for _, c := range []struct {
		name   string
		o      Options
		factor float64
		want   []int
	}{
		{"one slot", Options{Slots: 1, Batch: 1}, 1, []int{1, 2, 3, 4, 5}},
		{"two slots", Options{Slots: 2, Batch: 1}, 1, []int{1, 1, 2, 2, 3}},
		{"two slots, slowed down to half of the speed", Options{Slots: 2, Batch: 1}, 2, []int{2, 2, 4, 4, 6}},
		// The first request is a batch alone. The others wait, and are one batch of four: 1 + 1 × (1 + 1/3 × 3) tenths.
		{"batches of four", Options{Slots: 1, Batch: 4, Growth: 1. / 3}, 1, []int{1, 3, 3, 3, 3}},
		{"batches of three", Options{Slots: 1, Batch: 3, Growth: .5}, 1, []int{1, 3, 3, 3, 4}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.o.Times = nearly
				s, err := NewServer(c.o)
				must.OK(t, err)
				defer s.Close()
				s.SlowDown(c.factor)
				if got := ask(s, 5); fmt.Sprint(got) != fmt.Sprint(c.want) {
					t.Errorf("answers after %v tenths of a second, want %v", got, c.want)
				}
			})
		})
	}
}

// TestServerKeepsNoPlaceForThoseWhoLeft: a request whose client has left is counted as canceled and takes no time of a slot.
func TestServerKeepsNoPlaceForThoseWhoLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewServer(Options{Times: nearly, Slots: 1, Batch: 1})
		must.OK(t, err)
		defer s.Close()
		first := make(chan struct{})
		go func() {
			s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, "/", nil))
			close(first)
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		left := make(chan struct{})
		go func() {
			s.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil))
			close(left)
		}()
		synctest.Wait()
		cancel()
		<-left
		<-first
		if got := ask(s, 1); got[0] != 1 {
			t.Errorf("the next request was answered after %v tenths of a second, want 1", got)
		}
		if text := scrape(s); !strings.Contains(text, `nv_inference_request_failure{model="bert",reason="CANCELED",version="1"} 1`) {
			t.Errorf("the metrics are\n%s", text)
		}
	})
}

func scrape(s *Server) string {
	answer := httptest.NewRecorder()
	s.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return answer.Body.String()
}

// TestServerExportsWhatTritonExports: the counters count, and the quantiles are microseconds with the time of waiting.
func TestServerExportsWhatTritonExports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := NewServer(Options{Times: nearly, Slots: 1, Batch: 1})
		must.OK(t, err)
		ask(s, 5)
		text := scrape(s)
		s.Close()
		for _, want := range []string{
			`nv_inference_request_success{model="bert",version="1"} 5`,
			`nv_inference_request_failure{model="bert",reason="REJECTED",version="1"} 0`,
			`nv_inference_request_summary_us{model="bert",version="1",quantile="0.99"} 5000`, // 500,0xx µs
			`nv_inference_request_summary_us_count{model="bert",version="1"} 5`,
		} {
			found := strings.Contains(text, want)
			if quantile, value, cut := strings.Cut(want, `"} 5000`); cut && value == "" {
				found = strings.Contains(text, quantile+`"} 500`) || strings.Contains(text, quantile+`"} 499`)
			}
			if !found {
				t.Errorf("the metrics lack %s:\n%s", want, text)
			}
		}
	})
}

// TestArrivals: the count of each second has the mean and the variance of a Poisson distribution, and a second of rate 0 has none.
func TestArrivals(t *testing.T) {
	load := Steady(50, 2000, 7)
	load.Rates[1000] = 0
	arrivals, err := load.Arrivals()
	must.OK(t, err)
	counts := make([]float64, len(load.Rates))
	before := time.Duration(0)
	for _, at := range arrivals {
		if at < before {
			t.Fatalf("%v comes after %v", at, before)
		}
		before = at
		counts[int(at.Seconds())]++
	}
	if counts[1000] != 0 {
		t.Errorf("%v requests arrive in the second of rate 0", counts[1000])
	}
	sum, squares := 0.0, 0.0
	for _, c := range counts {
		sum, squares = sum+c, squares+c*c
	}
	n := float64(len(counts))
	mean := sum / n
	variance := squares/n - mean*mean
	if math.Abs(mean-50) > 4*math.Sqrt(50/n) || math.Abs(variance/mean-1) > .15 {
		t.Errorf("a second has %v requests with the variance %v, want 50 and 50", mean, variance)
	}
	for want, rates := range map[string][]float64{"rates of 0 seconds": nil, "rate -1 in second 1": {1, -1}, "more than 200000 requests": {150_000, 150_000}} {
		if _, err := (&Load{Rates: rates}).Arrivals(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}

// TestReplayIsOpen: requests are sent although none before them is answered, and each is noted with what came of it.
func TestReplayIsOpen(t *testing.T) {
	const all = 40
	var mu sync.Mutex
	waiting, release := 0, make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		if waiting++; waiting == all {
			close(release)
		}
		n := waiting
		mu.Unlock()
		<-release
		w.Header().Set(HeaderVariant, "a100")
		if n%4 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}))
	defer server.Close()
	load := &Load{Rates: []float64{200}, Seed: 3}
	arrivals, err := load.Arrivals()
	if err != nil || len(arrivals) < all {
		t.Fatalf("%d requests, %v", len(arrivals), err)
	}
	answers, err := Replay(t.Context(), load, func(ctx context.Context) (*http.Request, error) {
		return http.NewRequestWithContext(ctx, http.MethodPost, server.URL, nil)
	})
	if err != nil || len(answers) != len(arrivals) {
		t.Fatalf("%d answers to %d requests, %v", len(answers), len(arrivals), err)
	}
	failed := 0
	for i := range answers {
		if answers[i].Failed() {
			failed++
		}
	}
	if want := len(arrivals) / 4; failed != want || Parts(answers)["a100"] < .999 {
		t.Errorf("%d requests failed, want %d; the parts are %v", failed, want, Parts(answers))
	}
	if text := Failures(answers); !strings.HasPrefix(text, fmt.Sprintf("%d of %d requests failed: ", failed, len(answers))) {
		t.Errorf("failures: %s", text)
	}
}

func TestQuantile(t *testing.T) {
	answers := make([]Answer, 200)
	for i := range answers {
		answers[len(answers)-1-i].Latency = time.Duration(i+1) * time.Millisecond
	}
	if got := Quantile(answers, .99); got != 199*time.Millisecond {
		t.Errorf("the p99 of 1 ms to 200 ms is %v, want 199ms: 198 are below it", got)
	}
	if got := Quantile(nil, .99); got != 0 {
		t.Errorf("the p99 of nothing is %v", got)
	}
	if got := Needed(.25, .02); got != 5105 {
		t.Errorf("%d requests are needed, want 5105", got)
	}
}

// TestCompressed: a curve keeps its shape and gets its mean.
func TestCompressed(t *testing.T) {
	l, err := Compressed([]float64{1, 3, 2, 2}, 8, 10, 5)
	if want := []float64{5, 5, 15, 15, 10, 10, 10, 10}; err != nil || !slices.Equal(l.Rates, want) || l.Seed != 5 {
		t.Errorf("got %+v, %v, want the rates %v and the seed 5", l, err, want)
	}
	if l, err = Compressed([]float64{1, 3, 2, 2}, 2, 10, 0); err != nil || !slices.Equal(l.Rates, []float64{20. / 3, 40. / 3}) {
		t.Errorf("got %+v, %v, want the first and the third point", l, err)
	}
	for want, of := range map[string]struct {
		curve   []float64
		seconds int
		mean    float64
	}{
		"the curve has no points":              {nil, 10, 1},
		"seconds 0: legal are 1 to 3600":       {[]float64{1}, 0, 1},
		"seconds 3601":                         {[]float64{1}, 3601, 1},
		"mean rate 201":                        {[]float64{1}, 1000, 201},
		"mean rate 0":                          {[]float64{1}, 10, 0},
		"mean rate NaN":                        {[]float64{1}, 10, math.NaN()},
		"point 1 of the curve is -1":           {[]float64{1, -1}, 10, 1},
		"point 0 of the curve is NaN":          {[]float64{math.NaN()}, 10, 1},
		"the sum of the curve is 0: it must":   {[]float64{0, 0}, 10, 1},
		"the sum of the curve is +Inf: it mus": {[]float64{math.Inf(1)}, 10, 1},
	} {
		if _, err := Compressed(of.curve, of.seconds, of.mean, 0); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: error %v, want %q", of, err, want)
		}
	}
}

// TestWindows: of windows of 10 s with ten requests at least, and a promise of 1 s for 0.9 of them.
func TestWindows(t *testing.T) {
	began := time.Unix(1_700_000_000, 0)
	var answers []Answer
	add := func(second, good, late, failed int) {
		for i := range good + late + failed {
			a := Answer{Due: began.Add(time.Duration(second) * time.Second), Status: http.StatusOK, Latency: time.Second}
			switch {
			case i >= good+late:
				a.Status = http.StatusServiceUnavailable
			case i >= good:
				a.Latency = time.Second + 1
			}
			answers = append(answers, a)
		}
	}
	expect := func(all int, broken ...time.Duration) {
		t.Helper()
		if gotBroken, gotAll := Windows(answers, 10*time.Second, 10, time.Second, .9); !slices.Equal(gotBroken, broken) || gotAll != all {
			t.Errorf("of %d windows those at %v are broken, want %d and %v", gotAll, gotBroken, all, broken)
		}
	}
	expect(0)
	add(0, 18, 2, 0) // a tenth is late: kept
	expect(1)
	add(9, 0, 1, 0) // 3 of 21
	expect(1, 0)
	add(10, 9, 0, 1) // the next window, and one of ten failed: kept
	expect(2, 0)
	add(20, 5, 1, 0) // too few
	expect(2, 0)
	add(30, 3, 0, 1) // with those before 2 of 10
	expect(3, 0, 20*time.Second)
	add(59, 9, 0, 0) // too few at the end
	expect(3, 0, 20*time.Second)
}
