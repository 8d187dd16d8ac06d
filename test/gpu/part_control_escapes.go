package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/tandem-gpu/tandem/internal/agent/mps"
)

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

// measuredIn measures with words before the command line. The result says too whether the daemon lists the process as a
// client.
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
