package kube

import (
	"math"
	"testing"

	v1 "k8s.io/api/core/v1"
)

// A pod keeps its room until its deadline and for the grace period after it. If the grace period is longer than LeavingWithin, the end of the pod is unknown.
func TestLongestRun(t *testing.T) {
	for _, test := range []struct {
		deadline, grace *int64
		want            int64
		is              bool
	}{
		{nil, nil, 0, false},
		{nil, new(int64(5)), 0, false},
		{new(int64(100)), nil, 130, true},
		{new(int64(100)), new(int64(0)), 100, true},
		{new(int64(100)), new(int64(-1)), 100, true},
		{new(int64(100)), new(int64(600)), 700, true},
		{new(int64(100)), new(int64(601)), 0, false},
		{new(int64(1)), new(int64(math.MaxInt64)), 0, false},
		{new(int64(math.MaxInt64)), nil, math.MaxInt64, true},
	} {
		pod := &v1.Pod{Spec: v1.PodSpec{ActiveDeadlineSeconds: test.deadline, TerminationGracePeriodSeconds: test.grace}}
		if got, is := LongestRun(pod); got != test.want || is != test.is {
			t.Errorf("%v, %v: %d %t, want %d %t", test.deadline, test.grace, got, is, test.want, test.is)
		}
	}
}
