package main

import (
	"bufio"
	"encoding/json"
	"io"
	"syscall"
	"testing"

	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/reservation"
	"github.com/tandem-gpu/tandem/test/must"
)

// At SIGUSR2 the scheduler writes a line that reservation.Restore takes.
func TestDumpOnSignal(t *testing.T) {
	r, w := io.Pipe()
	m := machine.New(nil)
	m.Step(func(machine.Locked) reservation.Event {
		return reservation.PodRetried{PodRef: reservation.PodRef{UID: "uid-high", Pod: "default/high"}, OnBudgets: true}
	})
	dumpOnSignal(t.Context(), m, w)
	must.OK(t, syscall.Kill(syscall.Getpid(), syscall.SIGUSR2))
	line, err := bufio.NewReader(r).ReadBytes('\n')
	must.OK(t, err)
	var d struct {
		Kind  string
		State reservation.Dump
	}
	must.OK(t, json.Unmarshal(line, &d))
	s, err := reservation.Restore(&d.State)
	must.OK(t, err)
	if d.Kind != "TandemReservations" || !s.PodPauses("uid-high").OnBudgets {
		t.Errorf("the dump is %s", line)
	}
}
