package mps

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

func TestEnvironment(t *testing.T) {
	const uuid = "GPU-1"
	for name, test := range map[string]struct {
		spec ClientSpec
		want []string
	}{
		"share": {ClientSpec{UUID: uuid, Percent: 30, Memory: 12 << 30}, []string{
			"CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=30",
			"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=GPU-1=12288M",
		}},
		"memory rounds down": {ClientSpec{UUID: uuid, Percent: 100, Memory: 2<<20 - 1}, []string{
			"CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100",
			"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=GPU-1=1M",
		}},
		"never nothing": {ClientSpec{UUID: uuid, Percent: 0, Memory: 1}, []string{
			"CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=1",
			"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT=GPU-1=1M",
		}},
		"no memory limit": {ClientSpec{UUID: uuid, Percent: 250}, []string{
			"CUDA_MPS_PIPE_DIRECTORY=/tmp/nvidia-mps", "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=100",
		}},
	} {
		env, mounts := NewV2(Options{Dir: "/run/tandem/mps"}).Environment(test.spec)
		if diff := cmp.Diff(test.want, env); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		want := []Mount{{HostPath: "/run/tandem/mps/GPU-1/pipe", ContainerPath: "/tmp/nvidia-mps", ReadOnly: true}}
		if diff := cmp.Diff(want, mounts); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestSharedMemoryIsThatOfTheDaemons(t *testing.T) {
	_, mounts := NewV2(Options{Dir: "/run/tandem/mps", SharedMemory: "/run/tandem/mps/shm"}).Environment(ClientSpec{UUID: "GPU-1"})
	want := []Mount{
		{HostPath: "/run/tandem/mps/GPU-1/pipe", ContainerPath: "/tmp/nvidia-mps", ReadOnly: true},
		{HostPath: "/run/tandem/mps/shm", ContainerPath: "/dev/shm"},
	}
	if diff := cmp.Diff(want, mounts); diff != "" {
		t.Error(diff)
	}
}

func TestMemoryLimitIsLegalAndNeverAboveTheShare(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := vgpu.Bytes(rapid.Int64Range(1, 1<<42).Draw(t, "limit"))
		text, ok := strings.CutSuffix(megabytes(limit), "M")
		n, err := strconv.ParseInt(text, 10, 64)
		if !ok || err != nil || n < 1 {
			t.Fatalf("%d bytes give %q", limit, megabytes(limit))
		}
		if got := vgpu.Bytes(n) << 20; got > limit && n > 1 || limit-got >= 1<<20 {
			t.Fatalf("%d bytes give %d", limit, got)
		}
	})
}

func TestWhatTheDaemonShows(t *testing.T) {
	for _, test := range []struct {
		shown string
		want  vgpu.Bytes
		same  bool
	}{
		{"5G", 5 << 30, true},
		{"4G\n", 5000 << 20, true}, // 5000 MiB are 4.88 GiB: shown rounded down
		{"5000M", 5000 << 20, true},
		{"900M", 900 << 20, true},
		{"5G", 4 << 30, false},
		{"0G", 512 << 20, false}, // no limit is in force
		{"0M", 512 << 20, false},
		{"", 5 << 30, false},
		{"Invalid device", 5 << 30, false},
		{"4999M", 5000 << 20, false},
	} {
		if got := sameMemory(test.shown, test.want); got != test.same {
			t.Errorf("%q for %d bytes: %t, want %t", test.shown, test.want, got, test.same)
		}
	}
	if !samePercent("40.0\n", 40) || !samePercent("40", 40) || samePercent("39.5", 40) || samePercent("", 0) {
		t.Error("percentages are compared wrongly")
	}
}
