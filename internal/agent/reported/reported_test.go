package reported

import (
	"context"
	"fmt"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// town is pods with servers: connections to their addresses end at the servers of the test.
type town struct {
	t      *testing.T
	reader *Reader

	mu      sync.Mutex
	now     time.Time
	servers map[string]string // address of a pod to that of a server
	dialed  []string
	results map[string]int
	drops   map[string]int
}

const interval = 10 * time.Second

// tooLong is what only a hang reaches, on whatever machine. Pods that never give a whole answer are asked for as long as brief.
const (
	tooLong = 5 * time.Minute
	brief   = 2 * time.Second
)

func newTown(t *testing.T, change func(*Options)) *town {
	t.Helper()
	w := &town{t: t, now: time.Unix(1_000_000, 0), servers: map[string]string{}, results: map[string]int{}, drops: map[string]int{}}
	o := Options{
		Interval: interval, Clock: w.clock, Dial: w.dial,
		Scraped: func(word string) { w.count(w.results, word) }, Dropped: func(word string) { w.count(w.drops, word) },
	}
	if change != nil {
		change(&o)
	}
	w.reader = New(o)
	w.reader.client.Timeout = tooLong
	return w
}

func (w *town) count(of map[string]int, word string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	of[word]++
}

func (w *town) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

func (w *town) later(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *town) dial(ctx context.Context, network, address string) (net.Conn, error) {
	w.mu.Lock()
	w.dialed = append(w.dialed, address)
	server := w.servers[address]
	w.mu.Unlock()
	if server == "" {
		return nil, fmt.Errorf("nobody is at %s", address)
	}
	var d net.Dialer
	return d.DialContext(ctx, network, server)
}

// serve has a server answer for the pod at an address, by default at port 9400.
func (w *town) serve(address string, handler http.HandlerFunc) {
	w.t.Helper()
	s := httptest.NewServer(handler)
	w.t.Cleanup(s.Close)
	w.servers[address] = s.Listener.Addr().String()
}

// read lets an interval pass and reads.
func (w *town) read(pods ...*v1.Pod) {
	w.t.Helper()
	w.later(interval)
	w.reader.Read(w.t.Context(), pods)
}

// rate returns what is known of a pod, NaN for nothing.
func (w *town) rate(pod *v1.Pod) float64 {
	r, ok := w.reader.Rate(pod.UID)
	if !ok {
		return math.NaN()
	}
	return r.Value
}

func (w *town) want(what string, pod *v1.Pod, rate float64) {
	w.t.Helper()
	if got := w.rate(pod); math.IsNaN(got) != math.IsNaN(rate) || math.Abs(got-rate) > 1e-9 {
		w.t.Errorf("%s: rate %v, want %v", what, got, rate)
	}
}

var unknown = math.NaN()

// podAt is a running pod that shows the metric steps at an address.
func podAt(ip string, annotations ...string) *v1.Pod {
	p := &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "p", UID: types.UID("uid-" + ip), Annotations: map[string]string{}},
		Status:     v1.PodStatus{Phase: v1.PodRunning, PodIP: ip, HostIP: "192.168.0.1", HostIPs: []v1.HostIP{{IP: "192.168.0.1"}, {IP: "fd00::1"}}},
	}
	if len(annotations) == 0 {
		annotations = []string{v1alpha1.AnnotationRateMetric, "9400#steps"}
	}
	for i := 0; i < len(annotations); i += 2 {
		p.Annotations[annotations[i]] = annotations[i+1]
	}
	return p
}

// page answers with a text.
func page(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = fmt.Fprint(w, text)
	}
}

func TestGaugeIsTakenAsItIs(t *testing.T) {
	w := newTown(t, nil)
	var asked http.Header
	w.serve("10.0.0.1:9400", func(rw http.ResponseWriter, r *http.Request) {
		asked = r.Header
		page("# HELP steps per second\n# TYPE steps gauge\nsteps{gpu=\"0\"} 3\nsteps{gpu=\"1\"} 4.5\nsteps_total 99\n")(rw, r)
	})
	pod := podAt("10.0.0.1")
	w.want("before", pod, unknown)
	w.read(pod)
	w.want("the sum of the series", pod, 7.5)
	if r, _ := w.reader.Rate(pod.UID); !r.From.Equal(w.clock()) || !r.At.Equal(w.clock()) {
		t.Errorf("a gauge is about %v to %v, want now", r.From, r.At)
	}
	if got := asked.Get("Accept"); !strings.HasPrefix(got, "text/plain") {
		t.Errorf("asked for %q", got)
	}
	w.read()
	w.want("the pod is gone", pod, unknown)
	if len(w.reader.pods) != 0 {
		t.Errorf("%d pods are kept", len(w.reader.pods))
	}
}

// A server that names no content type is taken at its word, and a path other than the usual one is asked for.
func TestPathAndMissingType(t *testing.T) {
	w := newTown(t, nil)
	w.serve("[fd00::5]:80", func(rw http.ResponseWriter, r *http.Request) {
		rw.Header()["Content-Type"] = nil
		_, _ = fmt.Fprintf(rw, "  steps\t%d\r\n", len(r.URL.Path))
	})
	pod := podAt("fd00::5", v1alpha1.AnnotationRateMetric, "80/a/b#steps")
	w.read(pod)
	w.want("the path /a/b", pod, 4)
}

// A pod that does not answer is asked ever more rarely, and its last rate vanishes after three intervals.
func TestSilentPodIsAskedLessAndForgotten(t *testing.T) {
	w := newTown(t, nil)
	w.serve("10.0.0.1:9400", page("steps 5\n"))
	pod := podAt("10.0.0.1")
	w.read(pod)
	at := w.servers["10.0.0.1:9400"]
	delete(w.servers, "10.0.0.1:9400")
	var asked []int
	for round := 1; round <= 120; round++ {
		before := len(w.dialed)
		w.read(pod)
		if len(w.dialed) > before {
			asked = append(asked, round)
		}
		want := 5.0
		if round > staleAfter {
			want = unknown
		}
		w.want(fmt.Sprint("round ", round), pod, want)
	}
	// After 1, 2, 4, 8, 16 intervals, then every five minutes.
	if diff := cmp.Diff([]int{1, 2, 4, 8, 16, 32, 62, 92}, asked); diff != "" {
		t.Errorf("asked in rounds (-want +got):\n%s", diff)
	}
	w.servers["10.0.0.1:9400"] = at
	w.read(pod)
	w.read(pod)
	w.want("back again", pod, 5)
	before := len(w.dialed)
	w.read(pod)
	if len(w.dialed) != before+1 {
		t.Error("a pod that answers again is not asked each time")
	}
}

// No more than atOnce pods are asked at a time, and those that hang hold up none that answers.
func TestManyPodsAtOnce(t *testing.T) {
	w := newTown(t, nil)
	var inside, most atomic.Int32
	var once sync.Once
	full, release := make(chan struct{}), make(chan struct{})
	slow := func(rw http.ResponseWriter, r *http.Request) {
		n := inside.Add(1)
		defer inside.Add(-1)
		for seen := most.Load(); n > seen && !most.CompareAndSwap(seen, n); seen = most.Load() { // one that came earlier may store later
		}
		if n == atOnce {
			once.Do(func() { close(full) })
		}
		<-release
		page("steps 5\n")(rw, r)
	}
	pods := make([]*v1.Pod, 0, maxRound+10)
	for i := range 3 * atOnce {
		ip := fmt.Sprintf("10.0.0.%d", i+1)
		w.serve(ip+":9400", slow)
		pods = append(pods, podAt(ip))
	}
	done := make(chan struct{})
	go func() { defer close(done); w.read(pods...) }()
	<-full
	select { // time for one more than may be
	case <-done:
		t.Error("the round has ended before anybody answered")
	case <-time.After(300 * time.Millisecond):
	}
	close(release)
	<-done
	for _, p := range pods {
		w.want(p.Status.PodIP, p, 5)
	}
	if most.Load() != atOnce {
		t.Errorf("%d at once, want %d", most.Load(), atOnce)
	}
	for len(pods) < maxRound+10 {
		ip := fmt.Sprintf("10.1.%d.%d", len(pods)/200, len(pods)%200+1)
		pods = append(pods, podAt(ip)) // nobody is there
	}
	w.dialed = nil
	w.read(pods...)
	w.read(pods...)
	if len(w.dialed) > 2*maxRound {
		t.Errorf("%d connections in two rounds, want %d at most in each", len(w.dialed), maxRound)
	}
	for _, p := range pods[:3*atOnce] {
		w.want(p.Status.PodIP, p, 5)
	}
}

func TestAnnotationIsTakenAsItIs(t *testing.T) {
	w := newTown(t, nil)
	pod := func(value string) *v1.Pod { return podAt("10.0.0.1", v1alpha1.AnnotationReportedRate, value) }
	w.read(pod("12.5"))
	first := w.clock()
	w.want("decimal", pod(""), 12.5)
	w.read(pod("12.5"))
	if r, _ := w.reader.Rate(pod("").UID); !r.From.Equal(first) || !r.At.Equal(w.clock()) {
		t.Errorf("about %v to %v, want %v to %v", r.From, r.At, first, w.clock())
	}
	w.later(AnnotationAge)
	w.read(pod("12.5"))
	if r, _ := w.reader.Rate(pod("").UID); !r.From.Equal(w.clock().Add(-AnnotationAge)) {
		t.Errorf("an old value is about %v, want the last %v", r.From, AnnotationAge)
	}
	w.read(pod("0"))
	w.want("standing still", pod(""), 0)
	if r, _ := w.reader.Rate(pod("").UID); !r.From.Equal(w.clock()) {
		t.Errorf("a new value is about %v, want now", r.From)
	}
	for _, bad := range []string{"-1", "NaN", "1e3", "2000000000000", "fast", ""} {
		w.read(pod(bad))
		w.want(bad, pod(""), unknown)
	}
	if diff := cmp.Diff(map[string]int{"malformed": 1}, w.drops); diff != "" {
		t.Errorf("drops of one pod (-want +got):\n%s", diff)
	}
	if len(w.dialed) > 0 {
		t.Errorf("connected to %v", w.dialed)
	}
	w.read(podAt("10.0.0.1", "other", "x"))
	w.want("the annotation is gone", pod(""), unknown)
}

// A metric goes before a value; a malformed one does not, and neither does one where pods are not to be asked.
func TestWhichReportCounts(t *testing.T) {
	both := podAt("10.0.0.1", v1alpha1.AnnotationReportedRate, "3", v1alpha1.AnnotationRateMetric, "9400#steps")
	w := newTown(t, nil)
	w.serve("10.0.0.1:9400", page("steps 5\n"))
	w.read(both)
	w.want("both", both, 5)
	malformed := podAt("10.0.0.1", v1alpha1.AnnotationReportedRate, "3", v1alpha1.AnnotationRateMetric, "9400/../x#steps")
	w.read(malformed)
	w.want("malformed", malformed, 3)
	w.read(both)
	w.want("both again", both, 5)

	quiet := newTown(t, func(o *Options) { o.AnnotationsOnly = true })
	quiet.read(both)
	quiet.want("annotations only", both, 3)
	if len(quiet.dialed) > 0 {
		t.Errorf("connected to %v", quiet.dialed)
	}
}

// Another metric of the same pod begins anew.
func TestAnotherMetricBeginsAnew(t *testing.T) {
	w := newTown(t, nil)
	w.serve("10.0.0.1:9400", page("a_total 100\nb_total 900\n"))
	a, b := podAt("10.0.0.1", v1alpha1.AnnotationRateMetric, "9400#a_total"), podAt("10.0.0.1", v1alpha1.AnnotationRateMetric, "9400#b_total")
	w.read(a)
	w.read(a)
	w.want("a", a, 0)
	w.read(b)
	w.want("b at first", b, unknown)
}

// The parser takes any text of a pod without a crash, and returns no value that no rate has.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"steps 5\n", "# TYPE steps counter\nsteps{a=\"1\"} 1 1234\n", "steps{a=\"\\n\\\"\"} NaN", "{\"steps\",a=\"b\"} 1\n", "steps{", "# TYPE steps\n",
		"# TYPE steps histogram\nsteps{le=\"1\"} 5\n", "steps{a=\"1\",a=\"1\"} 1\n", "steps 1e400\n", "# TYPE steps summary\nsteps{quantile=\"x\"} 1\n",
		"steps{quantile=\"1\"} 0x1p-2 -1\n", "# TYPE steps gaugehistogram\nsteps 1\n", "steps{__name__=\"y\"} 1\n", " \tsteps{a=\"1\",} 1\n\n\n",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		now, err := parse(strings.NewReader(text), "steps")
		if err != nil {
			return
		}
		if word := absurd(now.sum); word != "" && word != dropHuge && word != dropInfinite {
			t.Errorf("sum %v", now.sum)
		}
		if len(now.series) > maxSeries {
			t.Errorf("%d series", len(now.series))
		}
	})
}
