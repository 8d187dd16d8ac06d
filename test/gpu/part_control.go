package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/internal/agent/mps"
	"github.com/tandem-gpu/tandem/test/gpu/load"
	"github.com/tandem-gpu/tandem/test/gpu/record"
)

// control measures the control of MPS, and the effects of ends of processes.
func (s *suite) control() error {
	err := errors.Join(s.starts(), s.adoption(), s.canary(), s.faults(), s.escapes(), s.surroundings(), s.kills())
	s.deaths()
	s.twoDaemons()
	s.manyClients()
	return err
}

// starts measures how long daemons, servers and clients take to start.
func (s *suite) starts() error {
	if s.due("control/start/daemon") {
		figures := map[string]*record.Figure{
			"control/start/daemon": {What: "Ensure of a daemon that does not run, until it answers", Unit: "ms"},
			"control/start/first":  {What: "context of the first client, which starts the server", Unit: "ms"},
			"control/start/second": {What: "context of the second client", Unit: "ms"},
			"control/start/stop":   {What: "Stop of a daemon without clients", Unit: "ms"},
		}
		for range 5 {
			begin := time.Now()
			d, err := s.newDaemon(mps.DeviceSpec{}, true)
			if err != nil {
				return err
			}
			add(figures["control/start/daemon"], millis(time.Since(begin)))
			for _, name := range []string{"control/start/first", "control/start/second"} {
				w, err := s.start("", d.env(50, "")...)
				if err != nil {
					return err
				}
				add(figures[name], w.ready.Start)
				defer w.quit()
			}
			s.endWorkers()
			begin = time.Now()
			if err := d.Stop(s.ctx, s.uuid); err != nil {
				return err
			}
			add(figures["control/start/stop"], millis(time.Since(begin)))
			d.drop()
		}
		for _, name := range []string{"control/start/first", "control/start/second", "control/start/stop", "control/start/daemon"} {
			s.keep(name, *figures[name])
		}
	}
	s.measure("control/start/without-mps", "context of a program without MPS", "ms", 5, func() (float64, error) {
		w, err := s.start("")
		if err != nil {
			return 0, err
		}
		w.quit()
		return w.ready.Start, nil
	})
	return nil
}

func add(f *record.Figure, v float64) { f.Values = append(f.Values, v) }

// endWorkers ends all workers and leaves the daemons.
func (s *suite) endWorkers() {
	s.mu.Lock()
	daemons := s.daemons
	s.daemons = nil
	s.mu.Unlock()
	s.clean()
	s.mu.Lock()
	s.daemons = daemons
	s.mu.Unlock()
}

// adoption makes a second backend, as of a restarted agent, take over a daemon with a client.
func (s *suite) adoption() error {
	if !s.anyDue("control/adopt", "control/adopt/cost", "control/look", "control/ready") {
		return nil
	}
	d, err := s.newDaemon(mps.DeviceSpec{}, true)
	if err != nil {
		return err
	}
	defer s.clean()
	w, err := s.start(load.Compute, d.env(50, "")...)
	if err != nil {
		return err
	}
	s.see("control/adopt", "Ensure by another backend in the same folder, with a client at work", 1, func() (string, error) {
		before, servers, err := d.pids()
		if err != nil {
			return "", err
		}
		if err := w.tell(order{Do: "run", Millis: int(s.of(1000))}); err != nil {
			return "", err
		}
		other := s.backend(d.dir, true)
		if err := other.Ensure(s.ctx, d.spec); err != nil {
			return "", err
		}
		seen, err := other.Look(s.ctx, s.uuid)
		if err != nil {
			return "", err
		}
		r, err := w.reply(patience)
		return fmt.Sprintf("daemon %d before and %d after; servers %v before, %s after; client PID %d: %s", before, seen.PID, servers, text(seen.Servers), w.pid(), failed(r, err)), nil
	})
	s.measure("control/adopt/cost", "Ensure of a daemon that runs", "ms", 5, timed(func() error { return s.backend(d.dir, true).Ensure(s.ctx, d.spec) }))
	s.measure("control/look", "Look at a daemon with one client", "ms", 10, timed(func() error { _, err := d.Look(s.ctx, s.uuid); return err }))
	s.measure("control/ready", "Ready of a daemon with one client", "ms", 10, timed(func() error { return d.Ready(s.ctx, s.uuid) }))
	s.see("control/answers", "what the daemon answers to the agent's questions", 1, func() (string, error) {
		_, servers, err := d.pids()
		if err != nil || len(servers) == 0 {
			return "", fmt.Errorf("servers %v: %w", servers, err)
		}
		var said []string
		for _, q := range []string{
			"get_server_list", fmt.Sprintf("get_server_status %d", servers[0]), fmt.Sprintf("get_client_list %d", servers[0]),
			"get_default_active_thread_percentage", fmt.Sprintf("get_active_thread_percentage %d", servers[0]),
			fmt.Sprintf("get_device_client_list %d", servers[0]), "ps", "lspart", "no_such_command",
		} {
			a, err := d.say(q)
			said = append(said, fmt.Sprintf("%s → %q", q, a))
			if err != nil {
				said = append(said, err.Error())
			}
		}
		entries, err := os.ReadDir(d.pipe())
		for _, e := range entries {
			info, _ := e.Info()
			said = append(said, fmt.Sprintf("%s %v", e.Name(), info.Mode()))
		}
		return strings.Join(said, "; "), err
	})
	return nil
}

// canary measures what the canary costs, and what a tenant feels of it.
func (s *suite) canary() error {
	if !s.anyDue("control/canary/idle", "control/canary/busy", "control/canary/tenant-with") {
		return nil
	}
	d, err := s.newDaemon(mps.DeviceSpec{}, true)
	if err != nil {
		return err
	}
	defer s.clean()
	probe := timed(func() error { return d.Probe(s.ctx, d.spec) })
	if _, err := probe(); err != nil { // the first starts the server
		return err
	}
	s.measure("control/canary/idle", "Probe of a server without clients", "ms", 10, probe)
	w, err := s.start(load.Compute, d.env(90, "")...)
	if err != nil {
		return err
	}
	s.measure("control/canary/busy", "Probe while a tenant with 90 % of the SMs keeps them busy", "ms", 10, func() (float64, error) {
		if err := w.tell(order{Do: "run", Millis: int(s.of(1500))}); err != nil {
			return 0, err
		}
		time.Sleep(s.of(100 * time.Millisecond)) // so that the probe meets work
		took, err := probe()
		if _, late := w.reply(patience); late != nil {
			return 0, late
		}
		return took, err
	})
	with := record.Figure{What: "throughput of that tenant in two seconds with one probe", Unit: load.Units(load.Compute)}
	without := record.Figure{What: "throughput of that tenant in two seconds without a probe, in turns with the other", Unit: load.Units(load.Compute)}
	for range 5 {
		r, err := w.run(s.of(2 * time.Second))
		if err != nil {
			return err
		}
		add(&without, r.Rate())
		if err := w.tell(order{Do: "run", Millis: int(s.of(2000))}); err != nil {
			return err
		}
		time.Sleep(s.of(300 * time.Millisecond))
		if _, err := probe(); err != nil {
			return err
		}
		if r, err = w.reply(patience); err != nil {
			return err
		}
		add(&with, r.Rate())
	}
	s.keep("control/canary/tenant-without", without)
	s.keep("control/canary/tenant-with", with)
	return nil
}

// twoDaemons runs two daemons on one device.
func (s *suite) twoDaemons() {
	s.see("control/two-daemons", "compute-bound clients with 50 % each: of one daemon, and of two daemons of the same GPU; rates alone and together", 1, func() (string, error) {
		defer s.clean()
		a, err := s.newDaemon(mps.DeviceSpec{}, true)
		if err != nil {
			return "", err
		}
		b, err := s.newDaemon(mps.DeviceSpec{}, true)
		if err != nil {
			return "", err
		}
		var workers []*worker
		for _, d := range []*daemon{a, a, b} {
			w, err := s.start(load.Compute, d.env(50, "")...)
			if err != nil {
				return "", err
			}
			workers = append(workers, w)
		}
		var said []string
		for _, set := range []struct {
			name    string
			members []*worker
		}{{"alone", workers[:1]}, {"one daemon", workers[:2]}, {"two daemons", workers[1:]}} {
			replies, err := together(set.members, 2*s.window)
			if err != nil {
				return "", err
			}
			for _, r := range replies {
				said = append(said, fmt.Sprintf("%s %.0f", set.name, r.Rate()))
			}
		}
		return strings.Join(said, ", "), nil
	})
}

// manyClients starts clients until the server refuses the next.
func (s *suite) manyClients() {
	s.see("control/crowd", "clients at once until one is refused", 1, func() (string, error) {
		defer s.clean()
		d, err := s.newDaemon(mps.DeviceSpec{}, true)
		if err != nil {
			return "", err
		}
		for n := 1; n <= 70; n++ {
			w, err := s.start("", d.env(1, "")...)
			if w == nil {
				return "", err
			}
			if err != nil {
				probe := d.Probe(s.ctx, d.spec)
				return fmt.Sprintf("client %d: %s; Probe then: %v", n, failed(w.ready, err), probe), nil
			}
		}
		return "70 clients work", nil
	})
}
