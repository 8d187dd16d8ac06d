package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/tandem-gpu/tandem/internal/agent/mps"
	"github.com/tandem-gpu/tandem/internal/agent/nvml"
	"github.com/tandem-gpu/tandem/test/gpu/load"
)

// nvml measures our NVML code on the real library: discovery, samples, processes and XID errors.
func (s *suite) nvml() error {
	begin := time.Now()
	library, err := nvml.Open()
	if err != nil {
		return err
	}
	defer func() { _ = library.Close() }()
	opened := millis(time.Since(begin))
	s.measure("nvml/open", "nvml.Open", "ms", 1, func() (float64, error) { return opened, nil })
	s.measure("nvml/devices/cost", "Library.Devices", "ms", 5, timed(func() error { _, err := library.Devices(); return err }))
	s.see("nvml/devices", "what discovery tells of the devices", 1, func() (string, error) {
		devices, err := library.Devices()
		return text(devices), err
	})
	s.see("nvml/state", "driver, CUDA, health, compute mode and recovery action of an idle device", 1, func() (string, error) {
		mode, err := library.ComputeMode(s.uuid)
		action, told := library.Recovery(s.uuid)
		return fmt.Sprintf("driver %s, CUDA %d, health %s, mode %s, recovery %s (told: %v)", library.DriverVersion(), library.CUDAVersion(),
			text(library.Health(s.uuid)), mode, action, told), err
	})
	s.measure("nvml/sample/cost", "Library.Sample of an idle device", "ms", 20, timed(func() error { _, err := library.Sample(s.uuid); return err }))
	s.measure("nvml/health/cost", "Library.Health", "ms", 20, timed(func() error { library.Health(s.uuid); return nil }))
	s.see("nvml/sample/idle", "a sample of the idle device", 1, func() (string, error) { return s.sampled(library) })
	if err := s.nvmlShared(library); err != nil {
		return err
	}
	return errors.Join(s.nvmlErrors(library, false), s.nvmlErrors(library, true))
}

func timed(f func() error) func() (float64, error) {
	return func() (float64, error) {
		begin := time.Now()
		err := f()
		return millis(time.Since(begin)), err
	}
}

func text(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

func (s *suite) sampled(library *nvml.Library) (string, error) {
	v, err := library.Sample(s.uuid)
	return text(v), err
}

// nvmlShared looks at the processes of one program, of two by time slice and of two under MPS.
func (s *suite) nvmlShared(library *nvml.Library) error {
	for _, c := range []struct {
		name     string
		percents []int
		kinds    []string
		mps      bool
	}{
		{name: "alone", kinds: []string{load.Compute}},
		{name: "time-slicing", kinds: []string{load.Compute, load.Bandwidth}},
		{name: "mps-50-50", kinds: []string{load.Compute, load.Bandwidth}, percents: []int{50, 50}, mps: true},
		{name: "mps-90-10", kinds: []string{load.Compute, load.Compute}, percents: []int{90, 10}, mps: true},
		{name: "mps-one-idle", kinds: []string{load.Compute, ""}, percents: []int{50, 50}, mps: true},
	} {
		if !s.due("nvml/processes/"+c.name) || c.mps && s.leftOut(c.name) {
			continue
		}
		var d *daemon
		var workers []*worker
		for i, kind := range c.kinds {
			var env []string
			if c.mps {
				if d == nil {
					var err error
					if d, err = s.newDaemon(mps.DeviceSpec{}, true); err != nil {
						return err
					}
				}
				env = d.env(c.percents[i], "")
			}
			w, err := s.start(kind, env...)
			if err != nil {
				return err
			}
			workers = append(workers, w)
		}
		s.see("nvml/processes/"+c.name, "the last of ten samples, 200 ms apart, while programs work; their PIDs, and of the MPS server", 1, func() (string, error) {
			var wait sync.WaitGroup
			for _, w := range workers {
				wait.Go(func() { _, _ = w.run(s.of(2500 * time.Millisecond)) })
			}
			var last string
			var err error
			for range 10 {
				time.Sleep(s.of(200 * time.Millisecond))
				if last, err = s.sampled(library); err != nil {
					break
				}
			}
			wait.Wait()
			var pids []string
			for _, w := range workers {
				pids = append(pids, fmt.Sprint(w.pid()))
			}
			if d != nil {
				_, servers, _ := d.pids()
				pids = append(pids, fmt.Sprint("servers ", servers))
			}
			return last + " of PIDs " + strings.Join(pids, ", "), err
		})
		s.clean()
	}
	return nil
}

// nvmlErrors has a program write where it may not, under MPS or without, and looks at what the driver reports.
func (s *suite) nvmlErrors(library *nvml.Library, shared bool) error {
	name, what := "nvml/xid", "outside of MPS"
	if shared {
		name, what = "nvml/xid-mps", "of a client of MPS"
	}
	if !s.due(name) || shared && s.leftOut(name) {
		return nil
	}
	defer s.clean()
	ctx, cancel := context.WithCancel(s.ctx)
	defer cancel()
	var mu sync.Mutex
	var events []nvml.Event
	watched := make(chan error, 1)
	go func() {
		watched <- library.Watch(ctx, func(e nvml.Event) {
			mu.Lock()
			defer mu.Unlock()
			events = append(events, e)
		})
	}()
	time.Sleep(s.of(time.Second))
	var env []string
	if shared {
		d, err := s.newDaemon(mps.DeviceSpec{}, true)
		if err != nil {
			return err
		}
		env = d.env(30, "")
	}
	w, err := s.start("", env...)
	if err != nil {
		return err
	}
	neighbour, err := s.start(load.Compute, env...)
	if err != nil {
		return err
	}
	s.see(name, "an illegal write "+what+": what the program saw, what the driver reported within 3 s, what a neighbour saw", 1, func() (string, error) {
		begin := time.Now()
		r, err := w.ask(order{Do: "fault"})
		said := failed(r, err)
		var took time.Duration
		for time.Since(begin) < s.of(3*time.Second) {
			mu.Lock()
			n := len(events)
			mu.Unlock()
			if n > 0 && took == 0 {
				took = time.Since(begin)
			}
			time.Sleep(5 * time.Millisecond)
		}
		r, err = neighbour.run(100 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		return fmt.Sprintf("program: %s; events after %v: %s; neighbour: %s", said, took.Round(time.Millisecond), text(events), failed(r, err)), nil
	})
	cancel()
	if err := <-watched; err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
}
