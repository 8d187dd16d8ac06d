package bursts_test

import (
	"math"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/simulator/bursts"
)

// session is one of a working day with bursts of half a minute.
func session(duty float64, seed uint64) bursts.Session {
	return bursts.Session{From: time.Hour, To: 101 * time.Hour, Burst: 30 * time.Second, Duty: duty, Seed: seed}
}

func near(t *testing.T, what string, got time.Duration, want float64) {
	t.Helper()
	if math.Abs(got.Hours()-want) > .05*want+.1 {
		t.Errorf("%s: %.2f h, want %.2f h", what, got.Hours(), want)
	}
}

// TestPlay: 100 hours of notebooks on one GPU.
func TestPlay(t *testing.T) {
	half := []bursts.Tenant{{From: 0, To: 1000 * time.Hour, Part: .5}}
	for _, tc := range []struct {
		name        string
		sessions    []bursts.Session
		tenants     []bursts.Tenant
		until       time.Duration
		alone, took float64
	}{
		{"alone", []bursts.Session{session(.2, 1)}, nil, 1000 * time.Hour, 20, 20},
		{"until the half", []bursts.Session{session(.2, 1)}, nil, 51 * time.Hour, 10, 10},
		{"beside another pod", []bursts.Session{session(1, 1)}, half, 1000 * time.Hour, 50, 100},
		{"beside a pod that goes", []bursts.Session{session(1, 1)}, []bursts.Tenant{{To: 51 * time.Hour, Part: .5}}, 1000 * time.Hour, 75, 100},
		{"two that always compute", []bursts.Session{session(1, 1), session(1, 2)}, nil, 1000 * time.Hour, 100, 200},
		// Two that compute for half of their time alone have the states idle, one, both with the weights 1, 2, 2 (machine repair
		// with equal rates): 0.8 of the time the GPU works, and bursts take (0.4 + 2 × 0.4) of it.
		{"two in turn", []bursts.Session{session(.5, 1), session(.5, 2)}, nil, 1000 * time.Hour, 80, 120},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := bursts.Play(tc.sessions, tc.tenants, tc.until)
			near(t, "alone", r.Alone, tc.alone)
			near(t, "took", r.Took, tc.took)
		})
	}
}
