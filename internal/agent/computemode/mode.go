package computemode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/agent/durable"
)

// modesFile in the state folder names the devices whose compute mode the agent has set. An agent that starts after a
// crash puts back those modes and no others.
const modesFile = "compute-modes.json"

// Driver reads and sets the compute mode of a device.
type Driver interface {
	// Exclusive reports whether the compute mode of a device is EXCLUSIVE_PROCESS, and an error where it is neither that
	// nor DEFAULT.
	Exclusive(id string) (bool, error)
	// SetExclusive sets the compute mode EXCLUSIVE_PROCESS, or DEFAULT.
	SetExclusive(id string, on bool) error
}

// Exclusivity keeps the compute mode EXCLUSIVE_PROCESS on devices that serve shares: MPS is then the one process that
// may use the device. A program that lost its MPS environment fails and does not run without limits. Exclusivity leaves
// a device alone that was in that mode before.
type Exclusivity struct {
	driver Driver
	path   string

	mu sync.Mutex
	// set are the devices whose mode was DEFAULT before.
	set map[string]bool
	// refused holds the devices whose mode the driver did not set, with the logged reason.
	refused map[string]string
}

// Open reads what an earlier agent has set. If the file is unreadable, Open logs that and goes on as if it were empty:
// the modes then stay until an administrator sets them.
func Open(ctx context.Context, driver Driver, dir string) *Exclusivity {
	e := &Exclusivity{driver: driver, path: filepath.Join(dir, modesFile), set: map[string]bool{}, refused: map[string]string{}}
	raw, err := os.ReadFile(e.path)
	var ids []string
	if err == nil {
		err = json.Unmarshal(raw, &ids)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		klog.FromContext(ctx).Error(err, "Cannot read which compute modes were set: check them with nvidia-smi", "file", e.path)
	}
	for _, id := range ids {
		e.set[id] = true
	}
	return e
}

// Claim sets the mode of a device where it differs.
func (e *Exclusivity) Claim(id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	on, err := e.driver.Exclusive(id)
	if err != nil || on {
		return err
	}
	if err := e.remember(id, true); err != nil { // first: a crash in between restores a mode that is right already
		return err
	}
	return e.driver.SetExclusive(id, true)
}

// Release puts the mode back if this or an earlier agent has set it.
func (e *Exclusivity) Release(id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.set[id] {
		return nil
	}
	if err := e.driver.SetExclusive(id, false); err != nil {
		return err
	}
	return e.remember(id, false)
}

// held lists the devices whose mode this package has set.
func (e *Exclusivity) held() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Sorted(maps.Keys(e.set))
}

// remember writes the change down. The caller holds the lock.
func (e *Exclusivity) remember(id string, on bool) error {
	next := map[string]bool{}
	for other := range e.set {
		next[other] = true
	}
	next[id] = true
	if !on {
		delete(next, id)
	}
	raw, err := json.Marshal(slices.Sorted(maps.Keys(next)))
	if err == nil {
		err = durable.Write(e.path, raw)
	}
	if err != nil {
		return fmt.Errorf("remember the compute mode: %w", err)
	}
	e.set = next
	return nil
}

// isNews reports whether the reason of a failure is another than the logged one.
func (e *Exclusivity) isNews(id string, err error) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err == nil {
		delete(e.refused, id)
		return false
	}
	known := e.refused[id] == err.Error()
	e.refused[id] = err.Error()
	return !known
}

// Settle sets the mode on the devices in shared, which serve shares now, and puts it back on all others.
func (e *Exclusivity) Settle(ctx context.Context, shared map[string]bool) {
	log := klog.FromContext(ctx)
	for id := range shared {
		if err := e.Claim(id); e.isNews(id, err) {
			log.Error(err, "Cannot set the compute mode EXCLUSIVE_PROCESS: a program without its MPS environment would run without limits. "+
				"The agent needs CAP_SYS_ADMIN for it: deploy/components/gpu-admin", "device", id)
		}
	}
	for _, id := range e.held() {
		if shared[id] {
			continue
		}
		if err := e.Release(id); err != nil {
			log.Error(err, "Cannot put the compute mode back: run nvidia-smi -c DEFAULT for the device", "device", id)
		}
	}
}
