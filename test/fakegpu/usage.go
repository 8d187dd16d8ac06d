package fakegpu

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// Usage is the report of a device's MPS daemon to the fake driver: its server and the clients.
type Usage struct {
	Server  ServerUsage   `json:"server"`
	Clients []ClientUsage `json:"clients"`
}

// ServerMemory is the memory of an MPS server with clients, in bytes, without that of the clients. Seen on an H100 with
// driver 580.159. The fake daemon gives it to clients nevertheless, where they request all there is.
const ServerMemory = 66 * mib

// ServerUsage names the server process.
type ServerUsage struct {
	PID int `json:"pid"`
}

// ClientUsage is one client process, all its contexts together. Memory is in bytes, SM and Bandwidth in percent of the
// device, after limits and before the effect of neighbours: NVML reports them after Interference.
type ClientUsage struct {
	PID       int    `json:"pid"`
	Memory    uint64 `json:"memory"`
	SM        int    `json:"sm"`
	Bandwidth int    `json:"bw"`
	// Sensitivity and Pressure are hidden: NVML has neither.
	Sensitivity float64 `json:"sensitivity,omitempty"`
	Pressure    float64 `json:"pressure,omitempty"`
}

// UsagePath returns the file in which the daemon of a device keeps its Usage.
func UsagePath(statePath, uuid string) string {
	return filepath.Join(statePath+".clients", uuid+".json")
}

// Write replaces the file.
func (u Usage) Write(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write usage: %w", err)
	}
	if err := writeJSON(path, u); err != nil {
		return fmt.Errorf("write usage: %w", err)
	}
	return nil
}

// ReadUsage returns what the daemon of a device said last. After the end of its server the daemon writes no more: then
// there is no client, and Server.PID is 0.
func ReadUsage(statePath, uuid string) Usage {
	var u Usage
	raw, err := os.ReadFile(UsagePath(statePath, uuid))
	if err != nil || json.Unmarshal(raw, &u) != nil || !alive(u.Server.PID) {
		return Usage{}
	}
	return u
}

// alive says whether a process runs; a zombie does not.
func alive(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

// ErrUnavailable says that the compute mode forbids one more context. CUDA calls it CUDA_ERROR_DEVICE_UNAVAILABLE.
var ErrUnavailable = errors.New("device is unavailable")

// Modes of nvml.h that matter here.
const (
	modeProhibited       = 2
	modeExclusiveProcess = 3
)

// ModePath returns the file that keeps a compute mode set through NVML, since only the driver keeps it and not the
// process.
func ModePath(statePath, uuid string) string { return statePath + "." + uuid + ".compute-mode" }

// Mode returns the compute mode of a device.
func (d *Device) Mode(statePath string) int {
	if raw, err := os.ReadFile(ModePath(statePath, d.UUID)); err == nil {
		if n, err := strconv.Atoi(string(raw)); err == nil {
			return n
		}
	}
	return d.ComputeMode
}

// Context is a CUDA context without MPS. Others see it for as long as its process lives.
type Context struct {
	file *os.File
}

// Hold makes a context on a device for a process. The error is ErrUnavailable where the compute mode forbids it.
func Hold(statePath string, d *Device, process Process) (*Context, error) {
	dir := filepath.Dir(UsagePath(statePath, d.UUID))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make context: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, d.UUID+".lock"), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("make context: %w", err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, fmt.Errorf("make context: %w", err)
	}
	mode := d.Mode(statePath)
	if mode == modeProhibited || mode == modeExclusiveProcess && others(statePath, d, process.PID) {
		return nil, ErrUnavailable
	}
	f, err := os.OpenFile(filepath.Join(dir, contextName(d.UUID, process.PID)), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("make context: %w", err)
	}
	// The lock on the context's file shows that its process runs.
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, fmt.Errorf("make context: process %d has one: %w", process.PID, err)
	}
	c := &Context{file: f}
	return c, c.Set(process)
}

func contextName(uuid string, pid uint32) string { return fmt.Sprintf("%s.%d.context", uuid, pid) }

// others says whether a process other than pid is on the device.
func others(statePath string, d *Device, pid uint32) bool {
	if ReadUsage(statePath, d.UUID).Server.PID != 0 {
		return true
	}
	for _, p := range append(Contexts(statePath, d.UUID), d.Processes...) {
		if p.PID != pid {
			return true
		}
	}
	return false
}

// contextSize pads every record to one length: it is overwritten in one write.
const contextSize = 256

// Set changes what the context uses.
func (c *Context) Set(process Process) error {
	raw, err := json.Marshal(process)
	if err != nil {
		return err
	}
	_, err = c.file.WriteAt(append(raw, bytes.Repeat([]byte{' '}, contextSize-len(raw))...), 0)
	return err
}

// Release ends the context.
func (c *Context) Release() {
	_ = os.Remove(c.file.Name())
	c.file.Close()
}

// Contexts returns the processes with a context of Hold on a device.
func Contexts(statePath, uuid string) []Process {
	paths, _ := filepath.Glob(filepath.Join(filepath.Dir(UsagePath(statePath, uuid)), uuid+".*.context"))
	var all []Process
	for _, path := range paths {
		if p, ok := readContext(path); ok {
			all = append(all, p)
		}
	}
	return all
}

// readContext reads a record whose process lives.
func readContext(path string) (Process, bool) {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		return Process{}, false
	}
	defer f.Close()
	if syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB) == nil {
		return Process{}, false
	}
	raw := make([]byte, contextSize)
	n, _ := f.ReadAt(raw, 0)
	var p Process
	return p, json.Unmarshal(raw[:n], &p) == nil
}
