package reservation

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

func preempts(name string) Preemptor { return PodPreemptor(vgpu.UID(name)) }

// Six a minute: one comes back every ten seconds.
func TestAllowance(t *testing.T) {
	type step struct {
		after    time.Duration // the step before
		who      string
		priority int32
		count    int
		want     time.Duration
	}
	s := time.Second
	for name, steps := range map[string][]step{
		"as many at once as in a minute": {{0, "a", 0, 6, 0}, {0, "b", 0, 1, 10 * s}, {9 * s, "b", 0, 1, s}, {s, "b", 0, 1, 0}},
		"fills evenly":                   {{0, "a", 0, 6, 0}, {35 * s, "b", 0, 3, 0}, {0, "c", 0, 1, 5 * s}},
		"does not overflow":              {{time.Hour, "a", 0, 6, 0}, {time.Hour, "b", 0, 6, 0}, {0, "c", 0, 1, 10 * s}},
		"more than it holds":             {{0, "a", 0, 1, 0}, {0, "b", 0, 7, 10 * s}, {10 * s, "b", 0, 7, 0}, {0, "c", 0, 1, 20 * s}},
		"the one that waits longer comes first": {
			{0, "a", 0, 6, 0}, {0, "b", 0, 2, 20 * s}, {10 * s, "c", 0, 1, 20 * s}, {10 * s, "c", 0, 1, 10 * s},
			{0, "b", 0, 2, 0}, {0, "c", 0, 1, 10 * s},
		},
		"a higher priority comes first": {
			{0, "a", 0, 6, 0}, {0, "b", 0, 2, 20 * s}, {10 * s, "c", 1, 1, 0}, {0, "b", 0, 2, 20 * s},
		},
		"a large plan is not passed over for ever": {
			{0, "a", 0, 6, 0}, {0, "b", 0, 6, 60 * s}, {30 * s, "c", 0, 1, 40 * s}, {30 * s, "b", 0, 6, 0},
		},
		"a claim that is not pursued ends": {
			{0, "a", 0, 6, 0}, {0, "b", 0, 6, 60 * s}, {60*s + claimPatience, "c", 0, 1, 10 * s}, {s, "c", 0, 1, 0},
		},
		"no evictions cost nothing": {{0, "a", 0, 6, 0}, {0, "b", 0, 0, 0}},
		"no evictions need no wait": {{0, "a", 0, 6, 0}, {0, "b", 5, 6, 60 * s}, {0, "c", 0, 0, 0}},
		"who needs less asks anew": {
			{0, "a", 0, 6, 0}, {0, "b", 0, 6, 60 * s}, {0, "b", 0, 0, 0}, {10 * s, "c", 0, 1, 0},
		},
		"who lets its turn pass waits anew": {
			{0, "a", 0, 6, 0}, {0, "b", 0, 6, 60 * s}, {61*s + claimPatience, "c", 0, 6, 0}, {0, "d", 0, 1, 10 * s}, {s, "b", 0, 1, 19 * s},
		},
		"who is late and comes before others keeps its turn": {
			{0, "a", 0, 6, 0}, {0, "b", 0, 6, 60 * s}, {10 * s, "d", 0, 6, 110 * s}, {51*s + claimPatience, "b", 0, 6, 0},
		},
		"who asks with a lower priority does not wait for itself": {
			{0, "a", 0, 6, 0}, {0, "b", 5, 2, 20 * s}, {0, "b", 0, 2, 20 * s},
		},
	} {
		a, now := newAllowance(6), time.Unix(1e9, 0)
		for i, x := range steps {
			now = now.Add(x.after)
			if got, _ := a.request(preempts(x.who), x.priority, x.count, now); got != x.want {
				t.Errorf("%s: step %d: %s waits %v, want %v", name, i, x.who, got, x.want)
			}
		}
	}
}

func TestNoAllowance(t *testing.T) {
	a := newAllowance(0)
	for range 3 {
		if wait, _ := a.request(preempts("a"), 0, 1e6, time.Unix(1e9, 0)); wait != 0 {
			t.Errorf("without a bound a preemptor waits %v", wait)
		}
	}
}

// A pod without vGPUs makes no claim when it asks how long it would wait. Preemptors that let their turn pass do not delay it.
func TestEvictionDelay(t *testing.T) {
	s, now := New(Config{EvictionsPerMinute: 6}), time.Unix(1e9, 0)
	delay := func() time.Duration { return s.EvictionDelay(preempts("plain"), 0, now) }
	for _, who := range []string{"a", "b"} { // the second waits for a minute
		s.allowance.request(preempts(who), 0, 6, now)
	}
	if got := delay(); got != 70*time.Second {
		t.Errorf("behind another one the delay is %v, want 70s", got)
	}
	now = now.Add(time.Minute + claimPatience)
	if got := delay(); got != 10*time.Second {
		t.Errorf("behind one that is late the delay is %v, want 10s", got)
	}
	now = now.Add(time.Second)
	if got := delay(); got != 0 {
		t.Errorf("after one that let its turn pass the delay is %v, want none", got)
	}
	if got := New(Config{}).EvictionDelay(preempts("plain"), 0, now); got != 0 {
		t.Errorf("without a bound the delay is %v", got)
	}
}

// The pauses double up to the longest, and stay there.
func TestPauses(t *testing.T) {
	for failures, want := range map[int][2]time.Duration{
		1: {time.Second, time.Second}, 2: {2 * time.Second, 2 * time.Second}, 6: {32 * time.Second, 32 * time.Second},
		7: {time.Minute, 64 * time.Second}, 9: {time.Minute, 256 * time.Second}, 10: {time.Minute, 5 * time.Minute},
		1000: {time.Minute, 5 * time.Minute},
	} {
		if got := [2]time.Duration{backoff(failures), podPause(failures)}; got != want {
			t.Errorf("after %d failures a gang and a pod pause %v, want %v", failures, got, want)
		}
	}
}

// Deferrals are counted once.
func TestDeferralIsNewOnce(t *testing.T) {
	a, now := newAllowance(1), time.Unix(1e9, 0)
	for i, want := range []bool{false, true, false} {
		if _, isNew := a.request(preempts(fmt.Sprint(min(i, 1))), 0, 1, now); isNew != want {
			t.Errorf("ask %d is new: %v", i, isNew)
		}
	}
}

// A preemptor that comes when its wait is over, and alone, need not wait again; and no minute sees more than twice the bound,
// unless a plan is larger than the bucket.
func TestAllowanceKeepsItsWord(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 70).Draw(t, "size")
		a, now := newAllowance(size), time.Unix(1e9, 0)
		type spent struct {
			at    time.Time
			count int
		}
		var history []spent
		for i := range rapid.IntRange(1, 40).Draw(t, "asks") {
			now = now.Add(time.Duration(rapid.IntRange(0, 30_000).Draw(t, "pause")) * time.Millisecond)
			count := rapid.IntRange(1, size).Draw(t, "count")
			who := preempts(fmt.Sprint(i))
			wait, _ := a.request(who, 0, count, now)
			if wait > 0 {
				now = now.Add(wait)
				if again, _ := a.request(who, 0, count, now); again != 0 {
					t.Fatalf("%d of %d: told to wait %v, then %v more", count, size, wait, again)
				}
			}
			history = append(history, spent{now, count})
		}
		for i := range history {
			sum := 0
			for _, h := range history[i:] {
				if h.at.Sub(history[i].at) < time.Minute {
					sum += h.count
				}
			}
			if sum > 2*size {
				t.Fatalf("%d evictions in a minute, the bound is %d", sum, size)
			}
		}
	})
}
