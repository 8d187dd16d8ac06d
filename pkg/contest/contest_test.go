package contest

import (
	"strings"
	"testing"
	"time"
)

// contested plays a controller that wants a number, looks every 15 s, and another writer that puts it back after a delay. It returns how often the controller
// wrote in each hour.
func contested(hours int, delay time.Duration) (writes []int, n *Number) {
	n = &Number{}
	value, undoAt, now := 1, time.Time{}, time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for range hours {
		writes = append(writes, 0)
		for end := now.Add(time.Hour); now.Before(end); now = now.Add(15 * time.Second) {
			if !undoAt.IsZero() && !now.Before(undoAt) {
				value, undoAt = 1, time.Time{}
			}
			if n.Read(value, 1, now) || value == 5 {
				continue
			}
			n.Wrote(value, 5, now)
			value, undoAt = 5, now.Add(delay)
			writes[len(writes)-1]++
		}
	}
	return writes, n
}

// Somebody who writes the number back soon is left to it: three changes in the first hour, and at most one in each further one. The pauses double up to four hours.
func TestLeftAlone(t *testing.T) {
	for _, delay := range []time.Duration{time.Second, 5 * time.Minute} {
		writes, n := contested(24, delay)
		sum := 0
		for hour, count := range writes {
			if sum += count; count > 3 || hour > 0 && count > 1 {
				t.Errorf("undone after %v: %d changes in hour %d", delay, count, hour)
			}
		}
		if sum < 6 || sum > 11 {
			t.Errorf("undone after %v: %v changes in a day", delay, writes)
		}
		if text := n.Undone().Says("Deployment bert", "replicas", "spec.replicas"); !strings.Contains(text, "Deployment bert was changed from 1 to 5 replicas") {
			t.Error(text)
		}
	}
}

// A change that stands for long was no contest: somebody who changes the number then wants something new.
func TestLaterWishes(t *testing.T) {
	if writes, _ := contested(24, 20*time.Minute); writes[5] != 3 {
		t.Errorf("a number that changes every 20 minutes is written %v times", writes)
	}
}

// One change that is undone is no contest, two are, and a new wish of the user is tried at once. The contest begins at one moment.
func TestRead(t *testing.T) {
	n, now := &Number{}, time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for i, want := range []bool{false, true} {
		n.Wrote(1, 2, now)
		now = now.Add(time.Minute)
		if got := n.Read(1, 0, now); got != want || n.Began(now) != want {
			t.Errorf("after %d changes that were undone: contested %v, begins %v", i+1, got, n.Began(now))
		}
	}
	if later := now.Add(time.Minute); !n.Read(1, 0, later) || n.Began(later) {
		t.Error("a minute later it is not contested, or begins again")
	}
	if n.Read(1, 1, now.Add(2*time.Minute)) {
		t.Error("with another generation it is contested")
	}
}

// Another process that goes on with a contest tries once before it leaves the number alone again, and for longer.
func TestResume(t *testing.T) {
	n, now := &Number{}, time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	n.Resume(now.Add(time.Minute), 1)
	if !n.Read(1, 1, now) || n.Read(1, 1, now.Add(time.Minute)) {
		t.Error("the number is not left alone until then")
	}
	if says := n.Undone().Says("Deployment bert", "replicas", "spec.replicas"); !strings.HasPrefix(says, "Deployment bert was changed to another number of replicas, and somebody changed that again soon, several times in a row") {
		t.Error(says)
	}
	n.Wrote(1, 5, now.Add(time.Minute))
	if later := now.Add(2 * time.Minute); !n.Read(1, 1, later) || n.Undone().Until != later.Add(2*firstPause) {
		t.Errorf("%+v", n.Undone())
	}
}
