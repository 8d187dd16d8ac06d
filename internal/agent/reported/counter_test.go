package reported

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// A counter gives the rate between two scrapes. If something is in its way, it gives none, and never a wrong one.
func TestCounterIsDifferentiated(t *testing.T) {
	w := newTown(t, nil)
	text := ""
	w.serve("10.0.0.1:9400", func(rw http.ResponseWriter, r *http.Request) { page("# TYPE steps counter\n"+text)(rw, r) })
	pod := podAt("10.0.0.1")
	for _, step := range []struct {
		what, text string
		restarts   int32
		want       float64
	}{
		{"the first scrape", `steps{a="1",b="2"} 100` + "\n" + `steps{a="2"} 40`, 0, unknown},
		{"(30 + 10)/10, a new series from its next scrape on", `steps{b="2",a="1"} 130` + "\n" + `steps{a="2"} 50` + "\n" + `steps{a="3"} 7`, 0, 4},
		{"(0 + 0 + 20)/10", `steps{a="1",b="2"} 130` + "\n" + `steps{a="2"} 50` + "\n" + `steps{a="3"} 27`, 0, 2},
		{"one series fell: the last rate stands", `steps{a="1",b="2"} 180` + "\n" + `steps{a="2"} 5` + "\n" + `steps{a="3"} 27`, 0, 2},
		{"(10 + 10 + 10)/10", `steps{a="1",b="2"} 190` + "\n" + `steps{a="2"} 15` + "\n" + `steps{a="3"} 37`, 0, 3},
		{"one series is gone", `steps{a="1",b="2"} 500`, 0, 3},
		{"10/10", `steps{a="1",b="2"} 510`, 0, 1},
		{"a container restarted and is past its old count", `steps{a="1",b="2"} 900`, 1, 1},
		{"60/10", `steps{a="1",b="2"} 960`, 1, 6},
		{"it stands still", `steps{a="1",b="2"} 960`, 1, 0},
	} {
		text = step.text + "\n"
		pod = pod.DeepCopy()
		pod.Status.ContainerStatuses = []v1.ContainerStatus{{RestartCount: step.restarts}}
		w.read(pod)
		w.want(step.what, pod, step.want)
	}
	// The same time twice is no time to divide by.
	w.reader.Read(t.Context(), []*v1.Pod{pod})
	w.want("no time passed", pod, 0)
	if w.results[ResultSuccess] != 11 || len(w.drops) > 0 {
		t.Errorf("results %v, drops %v", w.results, w.drops)
	}
}

func TestKindOfMetricWithoutAType(t *testing.T) {
	for name, want := range map[string]float64{"steps_total": 0.5, "latency_count": 0.5, "steps": 25} {
		w := newTown(t, nil)
		n := 15
		w.serve("10.0.0.1:9400", func(rw http.ResponseWriter, r *http.Request) {
			n += 5
			page(fmt.Sprintf("# TYPE latency histogram\nlatency_bucket{le=\"1\"} 3\nlatency_bucket{le=\"+Inf\"} %d\nlatency_sum 9\n%s %d\n", n, name, n))(rw, r)
		})
		pod := podAt("10.0.0.1", v1alpha1.AnnotationRateMetric, "9400#"+name)
		w.read(pod)
		w.read(pod)
		w.want(name, pod, want)
	}
}

// After a long silence a counter begins anew: its rate meanwhile is not its rate now.
func TestCounterAfterSilence(t *testing.T) {
	w := newTown(t, nil)
	n := 0
	w.serve("10.0.0.1:9400", func(rw http.ResponseWriter, r *http.Request) { page(fmt.Sprintf("steps_total %d\n", n))(rw, r) })
	pod := podAt("10.0.0.1", v1alpha1.AnnotationRateMetric, "9400#steps_total")
	w.read(pod)
	n = 100
	w.later((staleAfter - 1) * interval)
	w.read(pod)
	w.want("three intervals are not too long: 100/30", pod, 100.0/30)
	n = 1000
	w.later(staleAfter * interval)
	w.read(pod)
	w.want("four are", pod, unknown)
	n = 1020
	w.read(pod)
	w.want("20/10", pod, 2)
	if r, _ := w.reader.Rate(pod.UID); !r.From.Equal(r.At.Add(-interval)) {
		t.Errorf("from %v to %v, want one interval", r.From, r.At)
	}
}

// A counter shows since when the pod works with it.
func TestCounterShowsBreaks(t *testing.T) {
	w := newTown(t, nil)
	n := 0
	w.serve("10.0.0.1:9400", func(rw http.ResponseWriter, _ *http.Request) { page(fmt.Sprintf("steps_total %d\n", n))(rw, nil) })
	pod := podAt("10.0.0.1", v1alpha1.AnnotationRateMetric, "9400#steps_total")
	begin := w.now // the first scrape is one interval later
	for i, step := range []struct {
		what string
		n    int
		want int // the scrape since which it works, -1 for none
	}{
		{"the first scrape says nothing", 100, -1}, {"it works", 110, 0}, {"it goes on", 120, 0},
		{"it stands still", 120, 0}, {"it goes on", 130, 0}, {"it began anew", 0, 0}, {"it loads its state", 0, -1}, {"it works", 10, 6}, {"it goes on", 20, 6},
		{"it began anew once more", 5, 6}, {"and works", 15, 9},
		{"it began anew", 3, 9}, {"and again, before it worked", 1, 9}, {"it works", 11, 12},
	} {
		n = step.n
		w.read(pod)
		var want time.Time
		if step.want >= 0 {
			want = begin.Add(time.Duration(step.want+1) * interval)
		}
		r, _ := w.reader.Rate(pod.UID)
		// Until the scrape since which it works after each of the three: 4 to 6, 8 to 9 and 10 to 12, without an interval.
		pause := map[int]time.Duration{0: -1, -1: r.Pause, 6: interval, 9: 0, 12: interval}[step.want]
		if !r.Since.Equal(want) || r.Pause != pause {
			t.Errorf("%d, %s: since %v after %v, want %v after %v", i, step.what, r.Since, r.Pause, want, pause)
		}
	}
}
