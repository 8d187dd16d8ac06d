package reported

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
)

// An illegal address, answer or value gives no rate, and is counted and logged once.
func TestAnswersThatAreRefused(t *testing.T) {
	typed := func(kind, coding string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			if coding != "" {
				w.Header().Set("Content-Encoding", coding)
			}
			_, _ = fmt.Fprint(w, "steps 5\n")
		}
	}
	cases := map[string]struct {
		answer       http.HandlerFunc
		result, drop string
		hangs        bool
	}{
		"not found": {http.NotFound, ResultStatus, "", false},
		"redirection": {func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://10.0.0.2:9400/metrics", http.StatusFound)
		}, ResultStatus, "", false},
		"no such metric":   {page("stepss 5\n# TYPE steps gauge\n"), ResultMetric, "", false},
		"an empty page":    {page(""), ResultMetric, "", false},
		"a histogram":      {page("# TYPE steps histogram\nsteps 5\n"), ResultMetric, "", false},
		"a summary":        {page("# TYPE steps summary\nsteps{quantile=\"0.5\"} 5\n"), ResultMetric, "", false},
		"too many series":  {page(manySeries(maxSeries + 1)), ResultMetric, "", false},
		"a huge page":      {page("# HELP x\n" + strings.Repeat("filler 1\n", maxBody/9) + "steps 5\n"), ResultContent, "", false},
		"an endless page":  {endless, ResultContent, "", false},
		"a long line":      {page("x" + strings.Repeat("y", maxLine) + " 1\nsteps 5\n"), ResultContent, "", false},
		"huge headers":     {hugeHeaders, ResultUnreachable, "", false},
		"HTML":             {typed("text/html", ""), ResultContent, "", false},
		"OpenMetrics":      {typed("application/openmetrics-text; version=1.0.0", ""), ResultContent, "", false},
		"another version":  {typed("text/plain; version=1.0.0", ""), ResultContent, "", false},
		"compressed":       {typed("text/plain", "gzip"), ResultContent, "", false},
		"no number":        {page("steps five\n"), ResultContent, "", false},
		"broken labels":    {page("steps{a=\"1} 5\n"), ResultContent, "", false},
		"types twice":      {page("# TYPE steps gauge\n# TYPE steps counter\nsteps 5\n"), ResultContent, "", false},
		"NaN":              {page("steps NaN\n"), ResultValue, "nan", false},
		"infinite":         {page("steps +Inf\n"), ResultValue, "infinite", false},
		"negative":         {page("steps{a=\"1\"} 9\nsteps{a=\"2\"} -1\n"), ResultValue, "negative", false},
		"above 1e12":       {page("steps 1.1e12\n"), ResultValue, "huge", false},
		"above it in all":  {page("steps{a=\"1\"} 6e11\nsteps{a=\"2\"} 6e11\n"), ResultValue, "huge", false},
		"infinite in all":  {page("# TYPE steps counter\nsteps +Inf\n"), ResultValue, "infinite", false},
		"breaks off":       {breaksOff, ResultUnreachable, "", false},
		"never an answer":  {answer: func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, result: ResultUnreachable, hangs: true},
		"an endless drip":  {answer: drip, result: ResultUnreachable, hangs: true},
		"switches to FTP":  {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusSwitchingProtocols) }, ResultStatus, "", false},
		"a partial answer": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusPartialContent) }, ResultStatus, "", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTown(t, nil)
			w.serve("10.0.0.1:9400", c.answer)
			w.serve("10.0.0.2:9400", page("steps 5\n"))
			log := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
			ctx := klog.NewContext(t.Context(), log)
			pod := podAt("10.0.0.1")
			if c.hangs {
				w.reader.client.Timeout = brief
			}
			w.later(interval)
			w.reader.Read(ctx, []*v1.Pod{pod})
			w.want("after", pod, unknown)
			if diff := cmp.Diff(map[string]int{c.result: 1}, w.results); diff != "" {
				t.Errorf("results (-want +got):\n%s", diff)
			}
			if c.drop != "" && w.drops[c.drop] != 1 || c.drop == "" && len(w.drops) > 0 {
				t.Errorf("drops %v, want %q", w.drops, c.drop)
			}
			if diff := cmp.Diff([]string{"10.0.0.1:9400"}, w.dialed); diff != "" {
				t.Errorf("connected to (-want +got):\n%s", diff)
			}
			buffer := log.GetSink().(ktesting.Underlier).GetBuffer()
			if n := strings.Count(buffer.String(), "Cannot read the rate"); n != 1 {
				t.Errorf("logged %d times, want once:\n%s", n, buffer.String())
			}
		})
	}
}

func manySeries(n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, "steps{i=\"%d\"} 1\n", i)
	}
	return b.String()
}

// endless sends one long page that never ends.
func endless(w http.ResponseWriter, r *http.Request) {
	page("steps 5\n")(w, r)
	filler := strings.Repeat("filler 1\n", 1000)
	for r.Context().Err() == nil {
		if _, err := fmt.Fprint(w, filler); err != nil {
			return
		}
	}
}

// drip sends a byte now and then.
func drip(w http.ResponseWriter, r *http.Request) {
	page("steps 5\n")(w, r)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
			_, _ = fmt.Fprint(w, "#")
			w.(http.Flusher).Flush()
		}
	}
}

func hugeHeaders(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("X-Filler", strings.Repeat("x", 2*maxHeader))
	page("steps 5\n")(w, r)
}

func breaksOff(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Length", "1000")
	page("steps 5\n")(w, r)
}

// The largest legal page is read: a metric of many series among many others.
func TestLargestPage(t *testing.T) {
	w := newTown(t, nil)
	text := "# HELP steps steps\n" + manySeries(maxSeries)
	text += strings.Repeat("x", maxBody-len(text)-3) + " 1\n"
	text = strings.ReplaceAll(text, strings.Repeat("x", 60_000), strings.Repeat("x", 59_998)+"\n#")
	w.serve("10.0.0.1:9400", page(text))
	pod := podAt("10.0.0.1")
	w.read(pod)
	w.want(fmt.Sprintf("%d of %d bytes, %v", len(text), maxBody, w.results), pod, maxSeries)
}

// Only a pod's own address is connected to, and only while it is surely the pod's.
func TestAddressesThatAreRefused(t *testing.T) {
	for name, c := range map[string]struct {
		change  func(*v1.Pod)
		refused bool
	}{
		"the node's":                {func(p *v1.Pod) { p.Status.PodIP = "192.168.0.1" }, true},
		"the node's, mapped":        {func(p *v1.Pod) { p.Status.PodIP = "::ffff:192.168.0.1" }, true},
		"the node's second":         {func(p *v1.Pod) { p.Status.PodIP = "fd00:0::1" }, true},
		"loopback":                  {func(p *v1.Pod) { p.Status.PodIP = "127.0.0.1" }, true},
		"loopback of the host":      {func(p *v1.Pod) { p.Status.PodIP, p.Spec.HostNetwork = "::1", true }, true},
		"metadata of a cloud":       {func(p *v1.Pod) { p.Status.PodIP, p.Spec.HostNetwork = "169.254.169.254", true }, true},
		"link-local with zone":      {func(p *v1.Pod) { p.Status.PodIP = "fe80::1%eth0" }, true},
		"zone":                      {func(p *v1.Pod) { p.Status.PodIP = "fd00::7%eth0" }, true},
		"unspecified":               {func(p *v1.Pod) { p.Status.PodIP = "0.0.0.0" }, true},
		"multicast":                 {func(p *v1.Pod) { p.Status.PodIP = "224.0.0.1" }, true},
		"a name":                    {func(p *v1.Pod) { p.Status.PodIP = "metadata.internal" }, true},
		"none yet":                  {func(p *v1.Pod) { p.Status.PodIP = "" }, false},
		"of a pod that has ended":   {func(p *v1.Pod) { p.Status.Phase = v1.PodSucceeded }, false},
		"of a pod that has not run": {func(p *v1.Pod) { p.Status.Phase = v1.PodPending }, false},
		"of a pod that ends":        {func(p *v1.Pod) { p.DeletionTimestamp = &metav1.Time{} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newTown(t, nil)
			pod := podAt("10.0.0.1")
			c.change(pod)
			w.read(pod)
			if len(w.dialed) > 0 || w.results[ResultAddress] != map[bool]int{true: 1}[c.refused] || len(w.results) != w.results[ResultAddress] {
				t.Errorf("connected to %v, results %v", w.dialed, w.results)
			}
		})
	}
	w := newTown(t, nil)
	w.serve("192.168.0.1:9400", page("steps 5\n"))
	pod := podAt("192.168.0.1")
	pod.Spec.HostNetwork = true
	w.read(pod)
	w.want("a pod with the node's network", pod, 5)
}

// The environment's proxy is not asked: it could be anywhere. And no scrape lasts.
func TestClient(t *testing.T) {
	client := newClient(nil)
	if client.Transport.(*http.Transport).Proxy != nil {
		t.Error("the client has a proxy")
	}
	if client.Timeout != timeout {
		t.Errorf("a scrape may take %v, want %v at most", client.Timeout, timeout)
	}
}
