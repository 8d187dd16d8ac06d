package throttle

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/tandem-gpu/tandem/test/must"
)

// never is a limit that one request exhausts for longer than any test runs.
var never = rest.Config{QPS: 1e-6, Burst: 1}

// The client sends at once what its limit would hold back for days: only Turn waits.
func TestOnlyTurnWaits(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a"}}`))
	}))
	t.Cleanup(server.Close)
	config := never
	config.Host = server.URL
	client, err := New(&config, nil)
	must.OK(t, err)
	for range 3 {
		if _, err := client.CoreV1().Pods("x").Get(t.Context(), "a", metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.Turn(t.Context()); err != nil {
		t.Errorf("first turn: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	if err := client.Turn(ctx); err == nil || !strings.Contains(err.Error(), "was not sent") {
		t.Errorf("second turn: %v, want an error which says that nothing was sent", err)
	}
}

// Turns come as fast as the configuration says.
func TestTurnKeepsTheLimit(t *testing.T) {
	cases := []struct {
		name   string
		config rest.Config
		want   time.Duration // of 21 turns
	}{
		// 11 at once, the other ten one each half second.
		{name: "QPS and Burst", config: rest.Config{QPS: 2, Burst: 11}, want: 5 * time.Second},
		// client-go's defaults are 5 a second and 10 at once: the other eleven come one each fifth of a second.
		{name: "defaults", want: 2200 * time.Millisecond},
		{name: "a limiter", config: rest.Config{QPS: -1, RateLimiter: flowcontrol.NewFakeAlwaysRateLimiter()}},
		{name: "no limit", config: rest.Config{QPS: -1}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				client, err := New(&c.config, fake.NewClientset())
				must.OK(t, err)
				start := time.Now()
				for range 21 {
					must.OK(t, client.Turn(t.Context()))
				}
				if got := time.Since(start).Round(time.Millisecond); got != c.want {
					t.Errorf("21 turns took %v, want %v", got, c.want)
				}
			})
		})
	}
}

func TestNoConfiguration(t *testing.T) {
	given := fake.NewClientset()
	client, err := New(nil, given)
	if err != nil || client.Interface != given {
		t.Errorf("New(nil) = %v, %v, want the client that is there", client, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := client.Turn(ended); err == nil {
		t.Error("a turn after the end of the context")
	}
}
