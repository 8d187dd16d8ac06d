package fakegpu

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Load reads a state file. Unknown fields are errors: a misspelt order would otherwise be no order.
func Load(path string) (State, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return State{}, fmt.Errorf("read state: %w", err)
	}
	var s State
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil {
		return State{}, fmt.Errorf("read state %s: %w", path, err)
	}
	return s, s.validate()
}

func (s *State) validate() error {
	if len(s.Devices) > MaxDevices {
		return fmt.Errorf("read state: %d devices, at most %d", len(s.Devices), MaxDevices)
	}
	if n := s.Interference.Noise; n < 0 || n >= 1 {
		return fmt.Errorf("read state: noise of the interference is %v, want 0 to below 1", n)
	}
	for i, d := range s.Devices {
		for _, p := range d.Processes {
			if p.Sensitivity < 0 || p.Pressure < 0 {
				return fmt.Errorf("read state: process %d of device %d has sensitivity %v and pressure %v, want 0 or more", p.PID, i, p.Sensitivity, p.Pressure)
			}
		}
		if len(d.MIG.Instances) > MaxInstances {
			return fmt.Errorf("read state: device %d has %d MIG instances, at most %d", i, len(d.MIG.Instances), MaxInstances)
		}
		for _, l := range d.NVLinks {
			if l.Peer != ToSwitch && (l.Peer < 0 || l.Peer >= len(s.Devices)) {
				return fmt.Errorf("read state: device %d has an NVLink to device %d of %d", i, l.Peer, len(s.Devices))
			}
		}
	}
	for _, e := range s.Events {
		if e.UUID == "" && e.Device < 0 || e.UUID == "" && e.Device >= len(s.Devices) {
			return fmt.Errorf("read state: event on device %d of %d", e.Device, len(s.Devices))
		}
	}
	return nil
}

// Write replaces the state file in one step, so that no reader sees half of it.
func (s State) Write(path string) error {
	if err := writeJSON(path, s); err != nil {
		return fmt.Errorf("write state: %w", err)
	}
	return nil
}

// writeJSON replaces a file in one step.
func writeJSON(path string, value any) error {
	raw, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".state-*")
	if err != nil {
		return err
	}
	_, err = f.Write(append(raw, '\n'))
	if e := f.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Chmod(f.Name(), 0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}

// Update changes the state file. Updates at the same time wait for each other, so all of them take effect.
func Update(path string, change func(*State)) error {
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return fmt.Errorf("update state: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return fmt.Errorf("update state: lock %s: %w", lock.Name(), err)
	}
	s, err := Load(path)
	if err != nil {
		return err
	}
	change(&s)
	return s.Write(path)
}

// Reader reads a state file again only after its replacement. The zero value reads none; set Path before its first use.
type Reader struct {
	Path string

	mu    sync.Mutex
	stamp stamp
	state *State
}

// stamp identifies one version of the state file: a new file replaces it, so its inode changes too.
type stamp struct {
	modified time.Time
	size     int64
	inode    uint64
}

func stampOf(info fs.FileInfo) stamp {
	s := stamp{modified: info.ModTime(), size: info.Size()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		s.inode = st.Ino
	}
	return s
}

// State returns the state as the file is now, nil if there is no sound file. Callers must not change a State.
func (r *Reader) State() *State {
	r.mu.Lock()
	defer r.mu.Unlock()
	info, err := os.Stat(r.Path)
	if err != nil {
		r.state = nil
		return nil
	}
	now := stampOf(info)
	if r.state != nil && now == r.stamp {
		return r.state
	}
	s, err := Load(r.Path)
	if err != nil {
		r.state = nil
		return nil
	}
	r.state, r.stamp = &s, now
	return r.state
}
