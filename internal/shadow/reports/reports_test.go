package reports

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"

	"github.com/tandem-gpu/tandem/internal/shadow/families"
	"github.com/tandem-gpu/tandem/pkg/shadow"
	"github.com/tandem-gpu/tandem/test/must"
)

func sample() *shadow.Report {
	from := time.Date(2026, 1, 5, 9, 0, 0, 0, time.UTC)
	return &shadow.Report{
		From: from, To: from.Add(2 * time.Hour), Periods: 1, GPUs: 8, Pods: 3, Gangs: 1, Shared: 1, OnlyTandem: 1,
		Other: shadow.Figures{
			Waiting: shadow.Waits{Pods: 3, MeanMillis: 90_000, P50Millis: 60_000, P99Millis: 200_000, Still: 1}, Touched: 4, InUse: 2.5, Allocated: 31.25,
			Fragmented: 12.5, GangsWhole: 1, PartialGPUSeconds: 1800, Slowdown: shadow.Slowdown{Mean: 1, KnownPercent: 100},
		},
		Tandem: shadow.Figures{
			Waiting: shadow.Waits{Pods: 3}, Touched: 3, InUse: 2, Allocated: 25, GangsWhole: 1, Slowdown: shadow.Slowdown{Why: "no profile"},
		},
		Examples: []string{"team/a: an example."}, Unknown: []shadow.Unknown{{What: "node n9", Why: "no labels"}},
	}
}

const wantText = `Shadow of default-scheduler from 2026-01-05T09:00:00Z to 2026-01-05T11:00:00Z (2h0m0s, periods: 1)
GPUs: 8. Pods that came: 3, as shares with Tandem: 1. Gangs that came: 1.

                                             default-scheduler   Tandem
waiting, mean                                1m30s               0s
waiting, half of the pods at most            1m0s                0s
waiting, 99 % of the pods at most            3m20s               0s
pods that wait now                           1                   0
GPUs that had a pod                          4                   3
GPUs with a pod, on average                  2.50                2.00
GPU that pods had, on average                31.2 %              25.0 %
free GPU that usual requests cannot use      12.5 %              0.0 %
gangs that ran                               1                   1
GPU hours held by gangs that could not run   0.50                0.00
predicted slowdown by neighbours, mean       1.000               unknown

Pods that default-scheduler has started and Tandem would not have: 0; the other way round: 1.
  team/a: an example.

Unknown: node n9: no labels.
Unknown: the slowdown with Tandem, for 100 % of the pods' time: no profile.
`

func TestText(t *testing.T) {
	var b strings.Builder
	must.OK(t, Write(&b, sample(), "default-scheduler", Text))
	if diff := cmp.Diff(wantText, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := Write(&b, sample(), "default-scheduler", "xml"); err == nil || !strings.Contains(err.Error(), "legal are text, json") {
		t.Errorf("an unknown form: %v", err)
	}
}

func TestJSON(t *testing.T) {
	var b strings.Builder
	must.OK(t, Write(&b, sample(), "default-scheduler", JSON))
	var got shadow.Report
	must.OK(t, json.Unmarshal([]byte(b.String()), &got))
	if diff := cmp.Diff(sample(), &got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// rights are the users who may list all pods.
type rights []string

// Authorize answers as the API server would.
func (r rights) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.GetVerb() == "list" && a.GetResource() == "pods" && a.GetNamespace() == "" && slices.Contains(r, a.GetUser().GetName()) {
		return authorizer.DecisionAllow, "", nil
	}
	return authorizer.DecisionNoOpinion, "", nil
}

// TestHandler: a user who may list all pods sees the examples, others see that there are some; wrong requests are told what is
// legal.
func TestHandler(t *testing.T) {
	fails := false
	h := &Handler{Asks: rights{"admin"}, Name: "default-scheduler", Source: NewSource(func() (*shadow.Report, error) {
		if fails {
			return nil, errors.New("secret")
		}
		return sample(), nil
	}, time.Now)}
	ask := func(method, path, who string) (int, string) {
		r := httptest.NewRequest(method, path, nil)
		if who != "" {
			r = r.WithContext(request.WithUser(r.Context(), &user.DefaultInfo{Name: who}))
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for _, c := range []struct {
		method, path, who string
		code              int
		has, lacks        string
	}{
		{http.MethodGet, "/report", "admin", 200, "team/a: an example.", "you may not"},
		{http.MethodGet, "/report", "reader", 200, "examples: they name pods, and you may not list", "team/a"},
		{http.MethodGet, "/report?format=json", "reader", 200, `"examples": []`, "team/a"},
		{http.MethodGet, "/report?format=xml", "admin", 400, "legal are text, json", "team/a"},
		{http.MethodPost, "/report", "admin", 405, "read only", "team/a"},
		{http.MethodGet, "/report", "", 503, "the log of shadow mode says why", "team/a"},
	} {
		code, body := ask(c.method, c.path, c.who)
		if code != c.code || !strings.Contains(body, c.has) || strings.Contains(body, c.lacks) {
			t.Errorf("%s %s of %q: %d %s", c.method, c.path, c.who, code, body)
		}
	}
	fails = true
	h.Source = NewSource(h.Source.make, time.Now)
	if code, body := ask(http.MethodGet, "/report", "admin"); code != 503 || strings.Contains(body, "secret") {
		t.Errorf("without a report: %d %s", code, body)
	}
}

// TestSource: a report is kept for fifty times as long as it took, at least for a second.
func TestSource(t *testing.T) {
	now, takes, made := time.Unix(1e9, 0), time.Millisecond, 0
	s := NewSource(func() (*shadow.Report, error) { made++; now = now.Add(takes); return sample(), nil }, func() time.Time { return now })
	for _, step := range []struct {
		later, takes time.Duration
		made         int
	}{
		{0, 0, 1}, {999 * time.Millisecond, 0, 1}, {time.Millisecond, 100 * time.Millisecond, 2}, {4999 * time.Millisecond, 0, 2}, {time.Millisecond, 0, 3},
	} {
		now = now.Add(step.later)
		takes = step.takes
		if _, err := s.Report(); err != nil || made != step.made {
			t.Errorf("%d reports after %v, want %d; %v", made, step.later, step.made, err)
		}
	}
}

// TestMetrics: the metrics have the figures of the report, and none for what is unknown.
func TestMetrics(t *testing.T) {
	source := NewSource(func() (*shadow.Report, error) { return sample(), nil }, time.Now)
	registry := metrics.NewKubeRegistry()
	registry.CustomMustRegister(newCollector(source))
	want := `
		# HELP tandem_shadow_slowdown_mean [ALPHA] Predicted slowdown of pods by those on the same GPU, on average over the time of the report. Absent while none is known.
		# TYPE tandem_shadow_slowdown_mean gauge
		tandem_shadow_slowdown_mean{world="other"} 1
		# HELP tandem_shadow_unknown [ALPHA] Entries of the report about what its figures leave out, nodes without known GPUs among them.
		# TYPE tandem_shadow_unknown gauge
		tandem_shadow_unknown 1
		# HELP tandem_shadow_waiting_mean_seconds [ALPHA] How long the pods of the report waited on average; those that still wait count with the time so far.
		# TYPE tandem_shadow_waiting_mean_seconds gauge
		tandem_shadow_waiting_mean_seconds{world="other"} 90
		tandem_shadow_waiting_mean_seconds{world="tandem"} 0
	`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "tandem_shadow_slowdown_mean", "tandem_shadow_unknown", "tandem_shadow_waiting_mean_seconds"); err != nil {
		t.Error(err)
	}
	served, err := registry.Gather()
	must.OK(t, err)
	if len(served) != len(families.All()) {
		t.Errorf("%d families are served, the table has %d", len(served), len(families.All()))
	}
}
