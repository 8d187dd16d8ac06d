package main

import (
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/test/must"
)

// fetch returns what a server of the demo answers.
func fetch(t *testing.T, address string) string {
	t.Helper()
	answer, err := http.Get(address)
	must.OK(t, err)
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must.OK(t, err)
	return strings.TrimSpace(string(text))
}

// The stand-in for Prometheus knows the number of requests, by the clock of the controller, and nothing else.
func TestRequests(t *testing.T) {
	r, err := startRequests(func() time.Time { return time.Unix(1700000000, 0) })
	must.OK(t, err)
	defer r.close()
	r.rate.Store(80)
	for query, want := range map[string]string{rateQuery: `"value": [1700000000, "80"]`, "up": `"result": []`} {
		if got := fetch(t, r.url()+"/api/v1/query?query="+url.QueryEscape(query)); !strings.Contains(got, want) {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

// The notebook is busy until its cell ends, and again when somebody opens its page. The requests of the controller and of the tab of a browser do not
// count.
func TestJupyter(t *testing.T) {
	j, err := startJupyter(time.Unix(1700000000, 0))
	must.OK(t, err)
	defer j.close()
	base := j.url() + notebookPath
	if got := fetch(t, base+"/api/kernels"); !strings.Contains(got, "busy") {
		t.Errorf("at first the kernel is %s", got)
	}
	j.busy.Store(false)
	idle := `[{"execution_state":"idle","last_activity":"2023-11-14T22:13:20Z"}]`
	for _, c := range []struct{ path, want string }{
		{"/api/kernels", idle}, {"/api/terminals", "[]"}, {"/api/kernels", idle},
		{"/lab", "the page of " + parkedNotebook}, {"/api/kernels", strings.Replace(idle, "idle", "busy", 1)},
	} {
		if got := fetch(t, base+c.path); got != c.want {
			t.Errorf("%s: %s, want %s", c.path, got, c.want)
		}
	}
}

// The story works by numbers: the pods of the second node leave room for the notebook and a small replica and no more, so that the notebook, when it
// is woken, gets its place from the training.
func TestStoryFits(t *testing.T) {
	const node = 2 * 10 // slots of a node with two A100
	used := int64(0)
	for _, w := range workloads() {
		for _, a := range w.containers {
			if w.gpu == "a100" {
				used += a.slots
			}
		}
	}
	used -= node // train-vision, which has the first node and ends
	part, whole := fleetVariants()[0], fleetVariants()[1]
	if left := node - used - part.slots; left < notebookSlots || left >= 2*notebookSlots {
		t.Errorf("beside the pods and the replica with %d slots %s has %d free: want room for one notebook of %d", part.slots, secondNode, left, notebookSlots)
	}
	c := &cluster{}
	for _, s := range c.story() {
		if s.replicas != nil && int64(s.workers)*workerSlots+s.replicas[1]*whole.slots > node {
			t.Errorf("%s: %d workers and %d replicas with %d slots do not fit on %s", s.what, s.workers, s.replicas[1], whole.slots, firstNode)
		}
		if s.event == "NotebookWoken" && int64(s.workers)*workerSlots+notebookSlots > node {
			t.Errorf("%s: the training keeps %d workers, and the notebook has no place", s.what, s.workers)
		}
	}
}
