package main

import (
	"fmt"
	"time"

	"github.com/tandem-gpu/tandem/internal/agent/mps"
	"github.com/tandem-gpu/tandem/test/gpu/load"
)

// sm measures what a percentage of the SMs does.
func (s *suite) sm() error {
	d, err := s.newDaemon(mps.DeviceSpec{}, true)
	if err != nil {
		return err
	}
	// For one client, these are the SMs in the driver's report and those that its blocks run on.
	for p := 1; p <= 100; p++ {
		name := fmt.Sprintf("sm/count/%d", p)
		if !s.due(name) {
			continue
		}
		w, err := s.start("", d.env(p, "")...)
		if err != nil {
			return err
		}
		s.measure(name, "different SMs that the blocks of a client with this percentage run on; the second value is what cuDeviceGetAttribute tells it", "SMs", 1,
			func() (float64, error) {
				r, err := w.ask(order{Do: "sms"})
				return float64(r.Seen), firstOf(err, r.err())
			})
		if f := s.report.Figures[name]; f.Error == "" {
			f.Values = append(f.Values, float64(w.ready.SMs))
			s.keep(name, f)
		}
		w.quit()
	}
	for _, kind := range []string{load.Compute, load.Bandwidth} {
		for _, p := range []int{0, 100, 90, 80, 70, 60, 50, 40, 30, 20, 10, 5, 2} {
			name := fmt.Sprintf("sm/%s/%d", kind, p)
			if p == 0 {
				name = fmt.Sprintf("sm/%s/none", kind)
			}
			if !s.due(name) {
				continue
			}
			w, err := s.start(kind, d.env(p, "")...)
			if err != nil {
				return err
			}
			s.measure(name, "throughput of one client under MPS with this percentage, alone", load.Units(kind), 3,
				func() (float64, error) { r, err := w.run(s.window); return r.Rate(), err })
			w.quit()
		}
		if !s.due("sm/" + kind + "/without-mps") {
			continue
		}
		w, err := s.start(kind)
		if err != nil {
			return err
		}
		s.measure("sm/"+kind+"/without-mps", "throughput of one program without MPS, alone", load.Units(kind), 3,
			func() (float64, error) { r, err := w.run(s.window); return r.Rate(), err })
		w.quit()
	}
	d.drop()
	return s.smDefaults()
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// smDefaults looks at the server's default beside the client's environment, and at changes while clients run.
func (s *suite) smDefaults() error {
	for _, c := range []struct{ server, client int }{{50, 0}, {50, 30}, {50, 80}, {50, 100}, {30, 50}} {
		name := fmt.Sprintf("sm/default/server-%d-client-%d", c.server, c.client)
		if !s.due(name) {
			continue
		}
		d, err := s.newDaemon(mps.DeviceSpec{Percent: c.server}, true)
		if err != nil {
			return err
		}
		s.measure(name, "different SMs of a client of a server with this default, whose environment asks for this percentage (0: for none)", "SMs", 1,
			func() (float64, error) { return s.countSMs(d, c.client) })
		d.drop()
	}
	if !s.due("sm/changed") {
		return nil
	}
	d, err := s.newDaemon(mps.DeviceSpec{}, true)
	if err != nil {
		return err
	}
	w, err := s.start("", d.env(0, "")...)
	if err != nil {
		return err
	}
	s.see("sm/changed", "set_active_thread_percentage of a running server", 1, func() (string, error) {
		_, servers, err := d.pids()
		if err != nil || len(servers) != 1 {
			return "", fmt.Errorf("servers %v: %w", servers, err)
		}
		said, err := d.say(fmt.Sprintf("set_active_thread_percentage %d 40", servers[0]))
		if err != nil {
			return "", err
		}
		old, err := w.ask(order{Do: "sms"})
		if err != nil {
			return "", err
		}
		fresh, err := s.countSMs(d, 0)
		if err != nil {
			return "", err
		}
		capped, err := s.countSMs(d, 80)
		return fmt.Sprintf("it says %q; a client that runs already has %d SMs, a new one %.0f, a new one that asks for 80 %% %.0f", said, old.Seen, fresh, capped), err
	})
	s.clean()
	return nil
}

// countSMs starts a client and returns how many SMs it has.
func (s *suite) countSMs(d *daemon, percent int) (float64, error) {
	w, err := s.start("", d.env(percent, "")...)
	if err != nil {
		return 0, err
	}
	defer w.quit()
	r, err := w.ask(order{Do: "sms"})
	return float64(r.Seen), firstOf(err, r.err())
}

// settle is a pause after a process has ended, for what it leaves behind.
const settle = 200 * time.Millisecond
