package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/internal/agent/mps"
	"github.com/tandem-gpu/tandem/test/gpu/load"
	"github.com/tandem-gpu/tandem/test/gpu/record"
)

// admitted is how long a new client of a daemon takes to be let in and to work, in words where it is not.
func (s *suite) admitted(d *daemon, limit time.Duration) (time.Duration, string) {
	begin := time.Now()
	w, err := s.launch("", d.env(10, ""), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer w.kill()
	if err := w.await(limit); err != nil {
		return time.Since(begin), failed(w.ready, err)
	}
	r, err := w.ask(order{Do: "sms"})
	return time.Since(begin), failed(r, err)
}

// kills ends clients in the middle of different work by SIGKILL, with and without terminate_client before.
func (s *suite) kills() error {
	for _, c := range []struct {
		name, what string
		kind       string
		order      order
	}{
		{"idle", "no work", "", order{Do: "info"}},
		{"computing", "short kernels that write to its memory, one after the other", load.Compute, order{Do: "run", Millis: 10_000}},
		{"copying", "kernels that copy within its memory, one after the other", load.Bandwidth, order{Do: "run", Millis: 10_000}},
		{"queue", "3 s of kernels of 100 ms that touch no memory, all given at once", "", order{Do: "occupy", Millis: 3000}},
		{"queue-writing", "3 s of kernels of 100 ms that write to its memory, all given at once", "", order{Do: "occupy", Millis: 3000, Writes: true}},
	} {
		for _, end := range []bool{false, true} {
			if err := s.kill(c.name, c.what, c.kind, c.order, end); err != nil {
				return err
			}
		}
	}
	return nil
}

// kill sends SIGKILL to clients of one kind.
func (s *suite) kill(name, what, kind string, o order, end bool) error {
	how := "at-once"
	if end {
		how = "after-terminate"
	}
	name = "control/kill/" + name + "/" + how
	if !s.due(name) {
		return nil
	}
	defer s.clean()
	f := record.Figure{
		What: "a client with " + what + " is killed with SIGKILL, " + strings.ReplaceAll(how, "after-terminate", "its work ended by terminate_client before") +
			": time until a new client is let in and has worked beside a neighbour, and after the neighbour's end where that takes over 2 s; what the neighbour saw",
		Unit: "ms",
	}
	for range s.repeat {
		d, err := s.newDaemon(mps.DeviceSpec{}, true)
		if err != nil {
			return err
		}
		neighbour, err := s.start(load.Compute, d.env(30, "")...)
		if err != nil {
			return err
		}
		w, err := s.start(kind, d.env(50, "")...)
		if err != nil {
			return err
		}
		if err := w.tell(o); err != nil {
			return err
		}
		time.Sleep(s.of(settle))
		fact := ""
		if end {
			begin := time.Now()
			ended, err := d.EndClients(s.ctx, s.uuid, []int{w.pid()})
			fact = fmt.Sprintf("terminate_client of %d took %v (%v); ", len(ended), time.Since(begin).Round(time.Millisecond), err)
		}
		w.kill()
		begin := time.Now()
		left := "beside the neighbour"
		var words string
		for {
			_, words = s.admitted(d, s.of(3*time.Second))
			took := time.Since(begin)
			if words == "works" || took > s.of(10*time.Second) {
				f.Values = append(f.Values, millis(took))
				break
			}
			if took > s.of(2*time.Second) && neighbour != nil {
				r, err := neighbour.run(100 * time.Millisecond)
				fact += "neighbour " + failed(r, err) + "; "
				neighbour.quit()
				neighbour, left = nil, "after the neighbour's end"
			}
		}
		if neighbour != nil {
			r, err := neighbour.run(100 * time.Millisecond)
			fact += "neighbour " + failed(r, err) + "; "
		}
		f.Facts = append(f.Facts, fact+"new client "+words+" "+left)
		s.clean()
	}
	s.keep(name, f)
	return nil
}

// faults has one client write where it may not.
func (s *suite) faults() error {
	if !s.due("control/fault") {
		return nil
	}
	d, err := s.newDaemon(mps.DeviceSpec{}, true)
	if err != nil {
		return err
	}
	defer s.clean()
	other, err := s.newDaemon(mps.DeviceSpec{}, true)
	if err != nil {
		return err
	}
	stranger, err := s.start(load.Compute, other.env(30, "")...)
	if err != nil {
		return err
	}
	f := record.Figure{What: "an illegal write by one client: what it, its neighbour and new clients saw, in turn"}
	for range 3 {
		neighbour, err := s.start(load.Compute, d.env(30, "")...)
		if err != nil {
			return err
		}
		w, err := s.start("", d.env(30, "")...)
		if err != nil {
			return err
		}
		r, said := w.ask(order{Do: "fault"})
		fact := "it: " + failed(r, said)
		r, said = neighbour.run(100 * time.Millisecond)
		fact += "; neighbour: " + failed(r, said)
		seen, err := d.Look(s.ctx, s.uuid)
		fact += fmt.Sprintf("; the daemon: %s, %v; Ready: %v; Probe: %v", text(seen.Servers), err, d.Ready(s.ctx, s.uuid), d.Probe(s.ctx, d.spec))
		took, words := s.admitted(d, s.of(10*time.Second))
		fact += fmt.Sprintf("; a new client while both live: %s after %v", words, took.Round(time.Millisecond))
		r, said = stranger.run(100 * time.Millisecond)
		fact += "; a client of another daemon of the same GPU: " + failed(r, said)
		w.quit()
		took, words = s.admitted(d, s.of(10*time.Second))
		fact += fmt.Sprintf("; a new client when the culprit is gone: %s after %v", words, took.Round(time.Millisecond))
		neighbour.quit()
		begin := time.Now()
		for {
			_, words = s.admitted(d, s.of(10*time.Second))
			if words == "works" || time.Since(begin) > s.of(15*time.Second) {
				break
			}
		}
		fact += fmt.Sprintf("; a new client when both are gone: %s after %v", words, time.Since(begin).Round(time.Millisecond))
		f.Facts = append(f.Facts, fact)
		if words != "works" {
			break
		}
	}
	f.Facts = append(f.Facts, "server's log: "+d.log(12))
	s.keep("control/fault", f)
	return nil
}

// deaths sends SIGKILL to servers and daemons under clients.
func (s *suite) deaths() {
	s.see("control/death/server", "SIGKILL of the server: what a client sees, and a new client", 2, func() (string, error) {
		return s.death(func(_, server int) error { return killed(server) })
	})
	s.see("control/death/daemon", "SIGKILL of the control daemon: what a client sees, and a new client", 2, func() (string, error) {
		return s.death(func(control, _ int) error { return killed(control) })
	})
}

func (s *suite) death(kill func(control, server int) error) (string, error) {
	defer s.clean()
	d, err := s.newDaemon(mps.DeviceSpec{}, true)
	if err != nil {
		return "", err
	}
	w, err := s.start(load.Compute, d.env(30, "")...)
	if err != nil {
		return "", err
	}
	control, servers, err := d.pids()
	if err != nil || len(servers) != 1 || control == 0 {
		return "", fmt.Errorf("daemon %d, servers %v: %w", control, servers, err)
	}
	if err := kill(control, servers[0]); err != nil {
		return "", err
	}
	time.Sleep(s.of(settle))
	r, said := w.run(100 * time.Millisecond)
	fact := "client: " + failed(r, said)
	fact += fmt.Sprintf("; Ready: %v", d.Ready(s.ctx, s.uuid))
	took, words := s.admitted(d, s.of(10*time.Second))
	fact += fmt.Sprintf("; new client: %s after %v", words, took.Round(time.Millisecond))
	begin := time.Now()
	err = d.Ensure(s.ctx, d.spec)
	fact += fmt.Sprintf("; Ensure: %v after %v", err, time.Since(begin).Round(time.Millisecond))
	took, words = s.admitted(d, s.of(10*time.Second))
	fact += fmt.Sprintf("; new client then: %s after %v", words, took.Round(time.Millisecond))
	r, said = w.run(100 * time.Millisecond)
	fact += "; the old client then: " + failed(r, said)
	begin = time.Now()
	err = d.Recycle(s.ctx, d.spec)
	fact += fmt.Sprintf("; Recycle: %v after %v", err, time.Since(begin).Round(time.Millisecond))
	took, words = s.admitted(d, s.of(10*time.Second))
	return fact + fmt.Sprintf("; new client then: %s after %v", words, took.Round(time.Millisecond)), nil
}
