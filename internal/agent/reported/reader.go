package reported

import (
	"cmp"
	"context"
	"errors"
	"math"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/cluster/kube"
)

// Rate is what a pod reported last.
type Rate struct {
	// Value in the unit of the pod, from 0 to MaxValue.
	Value float64
	// From and At are the time that the rate is about. For a gauge the two are the same. A value in an annotation
	// stands for the time since the agent first saw it, at most the last AnnotationAge.
	From, At time.Time
	// Since is since when the pod works with its present counter: the first interval in which that grew since it last began
	// anew. A counter that stands still and goes on has not begun anew, since a step may take longer than an interval. Zero
	// before it grows, and for gauges and annotations, which do not show that a program began anew. Pause is for how long the
	// pod did no work before that, right in the mean over many: from the last reading of the counter before to Since, without
	// one interval, half of which the pod still worked and half of which it worked again. −1 for a first counter.
	Since time.Time
	Pause time.Duration
}

const (
	// MaxValue is the largest legal rate.
	MaxValue = 1e12
	// AnnotationAge is the longest time before now for which a value in an annotation stands. Shorter takes an old
	// value for news after a change of neighbours, longer leaves a pod that repeats itself without a rate for as long.
	AnnotationAge = 2 * time.Minute

	// staleAfter is the number of intervals without a successful scrape after which the reader drops a rate. One more
	// tolerates one more failed round.
	staleAfter = 3
	// atOnce is the number of pods that the agent scrapes at the same time. More ends a round sooner in which many do
	// not answer, and takes more memory: an answer and its relevant lines, two mebibytes at most each.
	atOnce = 8
	// maxRound is the number of pods that the agent scrapes in one round; pods that fail wait for the next. With atOnce
	// and timeout it bounds a round to 64 s.
	maxRound = 256
	// maxPause is the longest time until the next scrape of a pod that fails.
	maxPause = 5 * time.Minute
)

// Options are the circumstances of a Reader.
type Options struct {
	// Interval between two calls of Read.
	Interval time.Duration
	// AnnotationsOnly makes it connect to no pod.
	AnnotationsOnly bool
	// Scraped receives the result of each scrape: ResultSuccess or another; Dropped the reason for a dropped value.
	// Several goroutines may call both.
	Scraped, Dropped func(word string)
	// Dial connects to an address; nil is a net.Dialer. Clock returns the time; nil is time.Now.
	Dial  func(ctx context.Context, network, address string) (net.Conn, error)
	Clock func() time.Time
}

// Reader knows the rates that pods report. Callers may use its methods at the same time.
type Reader struct {
	options Options
	client  *http.Client

	mu   sync.Mutex
	pods map[types.UID]*source
}

// source is one pod that reports.
type source struct {
	// rate counts where known.
	rate  Rate
	known bool
	// annotation is the value in the annotation, since the time when the agent first saw it.
	annotation string
	since      time.Time

	// metric is the last scraped one; another one starts anew.
	metric kube.RateMetric
	last   *baseline
	// working is since when the present counter grows, zero before; former is the last reading of the counter before it, zero
	// where there was none.
	working, former time.Time
	// failures in a row, and the time of the next scrape.
	failures int
	next     time.Time
	// told holds the logged words of this pod.
	told map[string]bool
}

// New returns a Reader of no pods.
func New(o Options) *Reader {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: timeout}).DialContext
	}
	return &Reader{options: o, client: newClient(o.Dial), pods: map[types.UID]*source{}}
}

// Rate returns what a pod reported last, and false where it has reported nothing or not for long.
func (r *Reader) Rate(uid types.UID) (Rate, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.pods[uid]
	if s == nil || !s.known || r.options.Clock().Sub(s.rate.At) > staleAfter*r.options.Interval {
		return Rate{}, false
	}
	return s.rate, true
}

// Read takes in what the pods report now, and drops all others. Read returns when the last of them has answered or has
// not within its time.
func (r *Reader) Read(ctx context.Context, pods []*v1.Pod) {
	r.forget(pods)
	var due []task
	for _, pod := range pods {
		if t, ok := r.look(ctx, pod); ok {
			due = append(due, t)
		}
	}
	// Pods that answer come first: no pod is late because others hang.
	slices.SortFunc(due, func(a, b task) int {
		return cmp.Or(cmp.Compare(a.failures, b.failures), cmp.Compare(a.pod.UID, b.pod.UID))
	})
	var busy sync.WaitGroup
	free := make(chan struct{}, atOnce)
	for _, t := range due[:min(len(due), maxRound)] {
		free <- struct{}{}
		busy.Go(func() {
			defer func() { <-free }()
			r.scrape(ctx, t)
		})
	}
	busy.Wait()
}

// task is one scrape.
type task struct {
	pod      *v1.Pod
	metric   kube.RateMetric
	failures int
}

func (r *Reader) forget(pods []*v1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	there := make(map[types.UID]bool, len(pods))
	for _, pod := range pods {
		there[pod.UID] = true
	}
	for uid := range r.pods {
		if !there[uid] {
			delete(r.pods, uid)
		}
	}
}

// look takes in the annotations of a pod, and returns their scrape, if it is due. A metric goes before a value: the
// metric measures the work, and the value may be old.
func (r *Reader) look(ctx context.Context, pod *v1.Pod) (task, bool) {
	metric, wanted, err := kube.RateMetricOf(pod)
	if err == nil && wanted && !r.options.AnnotationsOnly {
		return r.due(pod, metric)
	}
	if err != nil {
		r.refuse(ctx, pod, dropMalformed, err)
	}
	value, said, err := kube.ReportedRate(pod)
	if err != nil {
		r.refuse(ctx, pod, dropMalformed, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !said || err != nil {
		if s := r.pods[pod.UID]; s != nil {
			s.known, s.metric = false, kube.RateMetric{}
		}
		return task{}, false
	}
	s, now := r.of(pod.UID), r.options.Clock()
	if written := pod.Annotations[annotation]; !s.known || s.metric != (kube.RateMetric{}) || written != s.annotation {
		s.annotation, s.since, s.metric = written, now, kube.RateMetric{}
	}
	from := s.since
	if earliest := now.Add(-AnnotationAge); from.Before(earliest) {
		from = earliest
	}
	s.rate, s.known = Rate{Value: float64(value) / perUnit, From: from, At: now}, true
	return task{}, false
}

// due returns the scrape of a pod, false where it is not due. An ended pod's address may be another's already, and one
// that ends has nothing to say.
func (r *Reader) due(pod *v1.Pod, metric kube.RateMetric) (task, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.of(pod.UID)
	if s.metric != metric {
		s.metric, s.last, s.working, s.former, s.known, s.failures, s.next = metric, nil, time.Time{}, time.Time{}, false, 0, time.Time{}
	}
	if pod.Status.Phase != v1.PodRunning || pod.DeletionTimestamp != nil || pod.Status.PodIP == "" {
		return task{}, false
	}
	return task{pod, metric, s.failures}, !r.options.Clock().Before(s.next)
}

// of returns the source of a pod. The caller holds the lock.
func (r *Reader) of(uid types.UID) *source {
	if r.pods[uid] == nil {
		r.pods[uid] = &source{told: map[string]bool{}}
	}
	return r.pods[uid]
}

// scrape scrapes a pod and takes in the answer.
func (r *Reader) scrape(ctx context.Context, t task) {
	found, err := r.ask(ctx, t)
	if ctx.Err() != nil {
		return
	}
	if err == nil {
		err = r.take(t, found)
	}
	var f *failure
	if !errors.As(err, &f) {
		r.options.Scraped(ResultSuccess)
		return
	}
	r.options.Scraped(f.result)
	if f.dropped != "" {
		r.options.Dropped(f.dropped)
	}
	r.fail(t.pod.UID)
	r.tell(ctx, t.pod, cmp.Or(f.dropped, f.result), f)
}

// take keeps the rate that follows from a scrape; the first of a counter gives none.
func (r *Reader) take(t task, now *reading) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.pods[t.pod.UID]
	if s == nil {
		return nil // gone meanwhile
	}
	rate, told := Rate{Value: now.sum, From: now.at, At: now.at}, true
	if now.counter {
		before, counted := s.last, time.Time{}
		if before != nil {
			counted = before.at
		}
		s.last = now.baseline(restarts(t.pod))
		if before.stale(now.at, staleAfter*r.options.Interval) {
			before = nil
		}
		rate, told = before.until(s.last)
		switch {
		case !told && !s.working.IsZero():
			s.working, s.former = time.Time{}, counted
		case s.working.IsZero() && rate.Value > 0:
			s.working = rate.From
		}
		rate.Since, rate.Pause = s.working, -1
		if !s.former.IsZero() && !s.working.IsZero() {
			rate.Pause = max(0, s.working.Sub(s.former)-r.options.Interval)
		}
	}
	if told {
		if word := absurd(rate.Value); word != "" {
			return dropped(word, rate.Value)
		}
		s.rate, s.known = rate, true
	}
	s.failures, s.next = 0, time.Time{}
	return nil
}

// fail delays the next scrape of a pod, each time twice as long.
func (r *Reader) fail(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.pods[uid]
	if s == nil {
		return
	}
	pause := maxPause
	if shift := s.failures; shift < 16 {
		pause = min(maxPause, r.options.Interval<<shift)
	}
	s.failures++
	// Half an interval less: rounds are an interval apart, and not to the microsecond.
	s.next = r.options.Clock().Add(pause - r.options.Interval/2)
}

// refuse counts and logs an annotation without a value, once for each pod.
func (r *Reader) refuse(ctx context.Context, pod *v1.Pod, word string, err error) {
	if r.tell(ctx, pod, word, err) {
		r.options.Dropped(word)
	}
}

// tell logs a fault in the reports of a pod, each kind once, so that a pod cannot fill the log.
func (r *Reader) tell(ctx context.Context, pod *v1.Pod, word string, err error) bool {
	r.mu.Lock()
	s := r.of(pod.UID)
	first := !s.told[word]
	s.told[word] = true
	r.mu.Unlock()
	if first {
		klog.FromContext(ctx).Info("Cannot read the rate that a pod reports", "pod", klog.KObj(pod), "why", err.Error())
	}
	return first
}

// absurd returns a word for a value that no rate has, "" for others.
func absurd(v float64) string {
	switch {
	case math.IsNaN(v):
		return dropNaN
	case math.IsInf(v, 0):
		return dropInfinite
	case v < 0:
		return dropNegative
	case v > MaxValue:
		return dropHuge
	}
	return ""
}

// restarts counts those of the pod's containers: behind one a counter is another, even where it is already larger.
func restarts(pod *v1.Pod) int {
	n := 0
	for i := range pod.Status.ContainerStatuses {
		n += int(pod.Status.ContainerStatuses[i].RestartCount)
	}
	return n
}
