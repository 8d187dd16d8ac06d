package main

import (
	"bufio"
	"encoding/json"
	"io"
	"syscall"
	"testing"

	"github.com/tandem-gpu/tandem/internal/scheduler/machine"
	"github.com/tandem-gpu/tandem/pkg/reservation"
)

// At SIGUSR2 the scheduler writes a line that reservation.Restore takes.
func TestDumpOnSignal(t *testing.T) {
	r, w := io.Pipe()
	m := machine.New(nil)
	m.Step(func(machine.Locked) reservation.Event {
		return reservation.PodRetried{PodRef: reservation.PodRef{UID: "uid-high", Pod: "default/high"}, OnBudgets: true}
	})
	dumpOnSignal(t.Context(), m, w)
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGUSR2); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(r).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	var d struct {
		Kind  string
		State reservation.Dump
	}
	if err := json.Unmarshal(line, &d); err != nil {
		t.Fatal(err)
	}
	s, err := reservation.Restore(&d.State)
	if err != nil {
		t.Fatal(err)
	}
	if d.Kind != "TandemReservations" || !s.PodPauses("uid-high").OnBudgets {
		t.Errorf("the dump is %s", line)
	}
}
