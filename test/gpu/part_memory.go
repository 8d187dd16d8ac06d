package main

import (
	"fmt"
	"strings"

	"github.com/tandem-gpu/tandem/internal/agent/mps"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

const mebibyte = 1 << 20

// memory measures the limit of device memory.
func (s *suite) memory() error {
	d, err := s.newDaemon(mps.DeviceSpec{}, true)
	if err != nil {
		return err
	}
	for _, c := range []struct{ name, limit string }{
		{"none", ""},
		{"uuid", s.uuid + "=1024M"},
		{"uuid-G", s.uuid + "=1G"},
		{"uuid-upper-case", strings.ToUpper(s.uuid) + "=1024M"},
		{"uuid-short", s.uuid[:12] + "=1024M"},
		{"ordinal", "0=1024M"},
		{"invisible-ordinal", "1=1024M"},
		{"invisible-uuid", "GPU-00000000-0000-0000-0000-000000000000=1024M"},
		{"uuid-and-invisible-ordinal", s.uuid + "=1024M,1=1024M"},
		{"uuid-and-invisible-uuid", s.uuid + "=1024M,GPU-00000000-0000-0000-0000-000000000000=1024M"},
		{"nonsense", s.uuid + "=much"},
		{"tiny", s.uuid + "=1M"},
	} {
		s.see("memory/limit/"+c.name, "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT of this form: what pieces of 32 MiB add up to, of 4 GiB, and what stops them", 1,
			func() (string, error) { return s.allocated(32*mebibyte, d.env(0, c.limit)...) })
	}
	s.see("memory/backend", "the environment that our backend gives for 1 GiB and half of the SMs: what pieces of 2 MiB add up to", 1,
		func() (string, error) { return s.allocated(2*mebibyte, d.share(50, vgpu.Bytes(1024*mebibyte))...) })
	for _, n := range []int{256, 512, 1024, 2048} {
		s.measure(fmt.Sprintf("memory/usable/%dM", n), "what pieces of 2 MiB add up to under this limit", "MiB", 3,
			func() (float64, error) { return s.usable(d, 0, n) })
	}
	for _, percent := range []int{2, 10, 20, 30, 50, 70, 100} {
		s.measure(fmt.Sprintf("memory/usable/2048M-at-%d", percent), "what pieces of 2 MiB add up to under a limit of 2048M, with this percentage of the SMs", "MiB", 1,
			func() (float64, error) { return s.usable(d, percent, 2048) })
	}
	s.see("memory/without-daemon", "the same limit in the environment of a program without MPS", 1,
		func() (string, error) { return s.allocated(32*mebibyte, mps.MemoryVariable+"="+s.uuid+"=1024M") })
	s.see("memory/two-processes", "two processes with a limit of 1024M each, at the same time", 1, func() (string, error) {
		w, err := s.start("", d.env(0, s.uuid+"=1024M")...)
		if err != nil {
			return "", err
		}
		defer w.quit()
		r, err := w.ask(order{Do: "allocate", Piece: 32 * mebibyte, Limit: 4096 * mebibyte})
		if err != nil {
			return "", err
		}
		second, err := s.allocated(32*mebibyte, d.env(0, s.uuid+"=1024M")...)
		return fmt.Sprintf("first %d MiB, second: %s", r.Taken/mebibyte, second), err
	})
	d.drop()
	return s.memoryDefaults()
}

// usable returns how many MiB a client can allocate under a limit of so many; 0 where it cannot even make its context.
func (s *suite) usable(d *daemon, percent, limit int) (float64, error) {
	w, err := s.start("", d.env(percent, fmt.Sprintf("%s=%dM", s.uuid, limit))...)
	if w == nil {
		return 0, err
	}
	defer w.quit()
	if w.ready.Code == outOfMemory {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	r, err := w.ask(order{Do: "allocate", Piece: 2 * mebibyte, Limit: 4096 * mebibyte})
	return float64(r.Taken) / mebibyte, err
}

// outOfMemory is CUDA_ERROR_OUT_OF_MEMORY.
const outOfMemory = 2

// allocated says how much a program can allocate of 4 GiB, and the values of cuMemGetInfo before and after.
func (s *suite) allocated(piece int, env ...string) (string, error) {
	w, err := s.start("", env...)
	if w == nil {
		return "", err
	}
	defer w.quit()
	if err != nil {
		return "does not start: " + failed(w.ready, err), nil
	}
	before, err := w.ask(order{Do: "info"})
	if err != nil {
		return "", err
	}
	r, err := w.ask(order{Do: "allocate", Piece: piece, Limit: 4096 * mebibyte})
	if err != nil {
		return "", err
	}
	after, err := w.ask(order{Do: "info"})
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%d MiB, then %s; cuMemGetInfo free %d of %d MiB before, %d of %d after; cuDeviceTotalMem %d", r.Taken/mebibyte, failed(r, nil),
		before.Free/mebibyte, before.Total/mebibyte, after.Free/mebibyte, after.Total/mebibyte, before.Device/mebibyte), nil
}

// memoryDefaults looks at the server's default beside the client's environment.
func (s *suite) memoryDefaults() error {
	if s.anyDue("memory/default/none", "memory/default/lower", "memory/default/higher") {
		d, err := s.newDaemon(mps.DeviceSpec{Memory: vgpu.Bytes(2048 * mebibyte)}, true)
		if err != nil {
			return err
		}
		for name, limit := range map[string]string{"none": "", "lower": s.uuid + "=1024M", "higher": s.uuid + "=3072M"} {
			s.see("memory/default/"+name, "a server's default of 2048M beside this limit of the client: what pieces of 32 MiB add up to", 1,
				func() (string, error) { return s.allocated(32*mebibyte, d.env(0, limit)...) })
		}
		d.drop()
	}
	for _, form := range []string{"5120M", "5000M", "5G", "700M", "1024M"} {
		s.see("memory/shown/"+form, "set_default_device_pinned_mem_limit by UUID with this value: what the daemon says and shows, and shows for the ordinal", 1,
			func() (string, error) {
				d, err := s.newDaemon(mps.DeviceSpec{}, true)
				if err != nil {
					return "", err
				}
				defer d.drop()
				said, err := d.say("set_default_device_pinned_mem_limit " + s.uuid + " " + form)
				if err != nil {
					return "", err
				}
				shown, err := d.say("get_default_device_pinned_mem_limit " + s.uuid)
				if err != nil {
					return "", err
				}
				ordinal, err := d.say("get_default_device_pinned_mem_limit 0")
				return fmt.Sprintf("says %q, shows %q, for ordinal 0 %q", said, shown, ordinal), err
			})
	}
	return nil
}
