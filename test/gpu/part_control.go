package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/internal/mps"
	"github.com/tandem-gpu/tandem/test/gpu/load"
	"github.com/tandem-gpu/tandem/test/gpu/record"
)

// control measures the control of MPS, and what happens when things die.
func (s *suite) control() error {
	err := errors.Join(s.starts(), s.adoption(), s.canary(), s.faults(), s.escapes(), s.surroundings(), s.kills())
	s.deaths()
	s.twoDaemons()
	s.crowd()
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

// adoption has a second backend, as of an agent that was started anew, take over a daemon with a client.
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
		time.Sleep(s.of(100 * time.Millisecond))
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

// kills ends clients in the middle of different work, with and without terminate_client before.
func (s *suite) kills() error {
	for _, c := range []struct {
		name, what string
		kind       string
		order      order
	}{
		{"idle", "no work", "", order{Do: "info"}},
		{"computing", "kernels of .15 ms that write to its memory, one after the other", load.Compute, order{Do: "run", Millis: 10_000}},
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

// kill kills clients of one kind.
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

// deaths kills servers and daemons under clients.
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

// escapes tries what a tenant could do to be rid of its limits.
func (s *suite) escapes() error {
	if !s.anyDue("control/escape/percent", "control/escape/pipe", "control/escape/default-pipe") {
		return nil
	}
	d, err := s.newDaemon(mps.DeviceSpec{}, true)
	if err != nil {
		return err
	}
	defer s.clean()
	limited := d.env(10, s.uuid+"=1024M")
	s.see("control/escape/percent", "a process that raises both limits in its environment before it starts CUDA", 1,
		func() (string, error) {
			return s.measured(d, append(limited, mps.PercentVariable+"=100", mps.MemoryVariable+"=")...)
		})
	s.see("control/escape/pipe", "a process that points the pipe directory to an empty folder", 1, func() (string, error) {
		empty, err := s.folder("e")
		if err != nil {
			return "", err
		}
		return s.measured(d, append(limited, mps.PipeVariable+"="+empty)...)
	})
	s.see("control/escape/missing", "a process that points the pipe directory to a folder that does not exist", 1, func() (string, error) {
		return s.measured(d, append(limited, mps.PipeVariable+"="+filepath.Join(s.dir, "none"))...)
	})
	s.see("control/escape/default-pipe", "a process without any variable, in a mount namespace where the pipe directory is at /tmp/nvidia-mps", 1, func() (string, error) {
		return s.measuredIn(d, bind(d.pipe(), "/tmp/nvidia-mps", true))
	})
	return nil
}

// measured says how many SMs and how much memory a process can use.
func (s *suite) measured(d *daemon, env ...string) (string, error) {
	return s.measuredIn(d, nil, env...)
}

// measuredIn is measured with words before the command line. It says too whether the daemon lists the process as a client.
func (s *suite) measuredIn(d *daemon, wrap []string, env ...string) (string, error) {
	w, err := s.startIn(wrap, "", env...)
	if w == nil {
		return "", err
	}
	defer w.kill()
	if err != nil {
		return "does not start: " + failed(w.ready, err), nil
	}
	sms, err := w.ask(order{Do: "sms"})
	if err != nil {
		return "", err
	}
	memory, err := w.ask(order{Do: "allocate", Piece: 64 * mebibyte, Limit: 4096 * mebibyte})
	seen, unseen := d.Look(s.ctx, s.uuid)
	clients := 0
	for _, server := range seen.Servers {
		clients += len(server.Clients)
	}
	w.quit()
	return fmt.Sprintf("%d SMs, %d MiB of 4096, clients of the daemon: %d", sms.Seen, memory.Taken/mebibyte, clients), errors.Join(err, unseen)
}

// bind is the words before a command that has it see a folder elsewhere.
func bind(folder, at string, readOnly bool) []string {
	script := fmt.Sprintf("mkdir -p %[2]s && mount --bind %[1]s %[2]s", folder, at)
	if readOnly {
		script += fmt.Sprintf(" && mount -o remount,bind,ro %s", at)
	}
	return []string{"unshare", "--mount", "sh", "-c", script + ` && exec "$0" "$@"`}
}

// surroundings tries what a container changes around a client.
func (s *suite) surroundings() error {
	if os.Geteuid() != 0 {
		fmt.Fprintln(s.out, "gpu-test: control/around is left out: namespaces and other users need root")
		return nil
	}
	d, err := s.newDaemon(mps.DeviceSpec{}, true)
	if err != nil {
		return err
	}
	defer s.clean()
	own := []string{"unshare", "--mount", "sh", "-c", `mount -t tmpfs none /dev/shm && exec "$0" "$@"`}
	limit := s.uuid + "=1024M"
	for _, c := range []struct {
		name, what string
		wrap, env  []string
	}{
		{"read-only-pipe", "a client whose pipe directory is mounted read-only, as the agent does", bind(d.pipe(), "/tmp/nvidia-mps", true), []string{mps.PercentVariable + "=30", mps.MemoryVariable + "=" + limit}},
		{"writable-pipe", "the same, mounted writable", bind(d.pipe(), "/tmp/nvidia-mps", false), []string{mps.PercentVariable + "=30", mps.MemoryVariable + "=" + limit}},
		{"own-shm", "a client with a /dev/shm of its own", own, d.env(30, limit)},
		{"own-ipc", "a client with an IPC namespace of its own", []string{"unshare", "--ipc"}, d.env(30, limit)},
		{"own-shm-and-ipc", "a client with both of its own", append([]string{"unshare", "--ipc", "--mount"}, own[2:]...), d.env(30, limit)},
		{"own-pid", "a client with a PID namespace of its own", []string{"unshare", "--pid", "--fork", "--mount-proc"}, d.env(30, limit)},
		{"other-user", "a client of user 1000, of a server for many users", []string{"setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"}, d.env(30, limit)},
		{"no-capabilities", "a client of root without capabilities", []string{"setpriv", "--bounding-set=-all", "--inh-caps=-all"}, d.env(30, limit)},
	} {
		s.see("control/around/"+c.name, c.what+": SMs and memory of a share of 30 % and 1024 MiB", 1, func() (string, error) { return s.measuredIn(d, c.wrap, c.env...) })
	}
	s.see("control/around/pid-seen", "a client in a PID namespace of its own: the PID on the host, what the daemon lists, and terminate_client by it", 1, func() (string, error) {
		w, err := s.startIn([]string{"unshare", "--pid", "--fork", "--mount-proc"}, "", d.env(30, "")...)
		if err != nil {
			return "", err
		}
		defer w.kill()
		seen, err := d.Look(s.ctx, s.uuid)
		if err != nil {
			return "", err
		}
		inside, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", w.pid(), w.pid()))
		var pids []int
		for _, server := range seen.Servers {
			pids = append(pids, server.Clients...)
		}
		ended, err := d.EndClients(s.ctx, s.uuid, pids)
		r, said := w.ask(order{Do: "sms"})
		return fmt.Sprintf("host PID %s, listed %v, ended %v (%v), its next call: %s", strings.TrimSpace(string(inside)), pids, ended, err, failed(r, said)), nil
	})
	s.see("control/around/other-user-quit", "commands of user 1000 to the daemon", 1, func() (string, error) {
		var said []string
		for _, q := range []string{"get_server_list", "get_default_active_thread_percentage", "set_default_active_thread_percentage 5", "quit -t 1"} {
			a, err := d.say(q, "setpriv", "--reuid=1000", "--regid=1000", "--clear-groups")
			said = append(said, fmt.Sprintf("%s → %q %v", q, a, err))
		}
		shown, err := d.say("get_default_active_thread_percentage")
		said = append(said, fmt.Sprintf("then root: %q %v", shown, err))
		return strings.Join(said, "; "), nil
	})
	s.see("control/around/other-user-terminate", "terminate_client of a client of root, by user 1000, by root without capabilities, and by the client's own user", 1, func() (string, error) {
		var said []string
		for _, c := range []struct {
			who       string
			wrap, own []string
		}{
			{"user 1000", []string{"setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"}, nil},
			{"root without capabilities", []string{"setpriv", "--bounding-set=-all", "--inh-caps=-all"}, nil},
			{"user 1000, of a client of its own", []string{"setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"}, []string{"setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"}},
		} {
			w, err := s.startIn(c.own, "", d.env(30, "")...)
			if err != nil {
				return "", err
			}
			_, servers, err := d.pids()
			if err != nil || len(servers) == 0 {
				return "", fmt.Errorf("servers %v: %w", servers, err)
			}
			a, err := d.say(fmt.Sprintf("terminate_client %d %d", servers[0], w.pid()), c.wrap...)
			r, after := w.ask(order{Do: "sms"})
			said = append(said, fmt.Sprintf("%s: %q %v, the client then: %s", c.who, a, err, failed(r, after)))
			w.kill()
		}
		return strings.Join(said, "; "), nil
	})
	s.see("control/around/single-user", "a server without -multiuser-server with a client of root: a client of user 1000 for 8 s", 1, func() (string, error) {
		single, err := s.newDaemon(mps.DeviceSpec{}, false)
		if err != nil {
			return "", err
		}
		w, err := s.start("", single.env(30, "")...)
		if err != nil {
			return "", err
		}
		defer w.kill()
		second, err := s.launch("", single.env(30, ""), []string{"setpriv", "--reuid=1000", "--regid=1000", "--clear-groups"})
		if err != nil {
			return "", err
		}
		defer second.kill()
		err = second.await(s.of(8 * time.Second))
		said := failed(second.ready, err)
		w.quit()
		if errors.Is(err, errNoReply) {
			begin := time.Now()
			err = second.await(20 * time.Second)
			said += fmt.Sprintf("; when the first has gone: %s after %v", failed(second.ready, err), time.Since(begin).Round(time.Millisecond))
		}
		return said, nil
	})
	return nil
}

// crowd starts clients until the server refuses one.
func (s *suite) crowd() {
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
