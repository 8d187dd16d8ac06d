package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/must"
)

func TestInitAndSet(t *testing.T) {
	var out bytes.Buffer
	must.OK(t, run(t.Context(), []string{"init", "--node", "n7", "--profile", "T4", "--count", "2"}, &out))
	path := filepath.Join(t.TempDir(), "state.json")
	must.OK(t, os.WriteFile(path, out.Bytes(), 0o644))
	want, err := fakegpu.Node("n7", "T4", 2)
	must.OK(t, err)
	for _, step := range []struct {
		args   []string
		change func(*fakegpu.Device)
	}{
		{[]string{"--gpu", "1", "--lost", "--utilization", "80"}, func(d *fakegpu.Device) { d.Lost, d.GPUUtilization = true, 80 }},
		{[]string{"--gpu", "1", "--lost=false", "--mps-hang"}, func(d *fakegpu.Device) { d.Lost, d.MPS.Hang = false, true }},
		{[]string{"--gpu", "1", "--xid", "79", "--mps-fault", "--mps-wedge"}, func(d *fakegpu.Device) {
			d.MPS.Fault, d.MPS.Wedge = true, true
			want.Events = []fakegpu.Event{{Device: 1, XID: 79}}
		}},
	} {
		must.OK(t, run(t.Context(), append([]string{"set", "--state", path}, step.args...), nil))
		step.change(&want.Devices[1])
		got, err := fakegpu.Load(path)
		must.OK(t, err)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%v: %s", step.args, diff)
		}
	}
}

func TestBadArguments(t *testing.T) {
	for _, args := range [][]string{nil, {"build"}, {"init", "--profile", "K80"}, {"set", "--state", "/nonexistent/state.json"}, {"dance"}} {
		if err := run(t.Context(), args, &bytes.Buffer{}); err == nil {
			t.Errorf("%v: no error", args)
		}
	}
}
