package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/tandem-gpu/tandem/test/gpu/driver"
	"github.com/tandem-gpu/tandem/test/gpu/load"
)

// reply is what a worker says: once when it is ready, and once to each order, a line of JSON each.
type reply struct {
	// Error, with the driver's call and its code where it was the driver's.
	Error string `json:"error,omitempty"`
	Call  string `json:"call,omitempty"`
	Code  int    `json:"code,omitempty"`

	load.Result
	// Start is how long the context took, in milliseconds.
	Start float64 `json:"startMillis,omitempty"`
	Name  string  `json:"name,omitempty"`
	UUID  string  `json:"uuid,omitempty"`
	CUDA  int     `json:"cuda,omitempty"`
	// SMs in the driver's report, and those that blocks ran on.
	SMs  int `json:"sms,omitempty"`
	Seen int `json:"seen,omitempty"`
	// Free and Total are cuMemGetInfo's, Device is cuDeviceTotalMem's, Taken the allocation before a refusal; in bytes.
	Free   uint64 `json:"free,omitempty"`
	Total  uint64 `json:"total,omitempty"`
	Device uint64 `json:"device,omitempty"`
	Taken  int    `json:"taken,omitempty"`
	// Torch is the version of PyTorch, of a worker in Python.
	Torch string `json:"torch,omitempty"`
}

func (r reply) err() error {
	if r.Error == "" {
		return nil
	}
	return errors.New(r.Error)
}

// order is a command to a worker, a line of JSON.
type order struct {
	// Do is run, info, sms, allocate, occupy, fault or quit.
	Do string `json:"do"`
	// Millis is how long to run or to occupy.
	Millis int `json:"millis,omitempty"`
	// Writes says that the work that occupies the device writes to memory.
	Writes bool `json:"writes,omitempty"`
	// Piece and Limit are what to allocate at once, and at most, in bytes.
	Piece int `json:"piece,omitempty"`
	Limit int `json:"limit,omitempty"`
}

// work is the worker's program: it makes a context, says so, and follows its orders until its input ends.
func work(kind string, in io.Reader, out io.Writer) error {
	say := json.NewEncoder(out)
	begin := time.Now()
	l, err := load.New(kind)
	ready := reply{Start: float64(time.Since(begin)) / float64(time.Millisecond)}
	if err != nil {
		ready.fail(err)
		return say.Encode(ready)
	}
	ready.Name, ready.UUID, ready.CUDA, ready.SMs = l.GPU.Name, l.GPU.UUID, l.GPU.CUDA, l.GPU.SMs
	if err := say.Encode(ready); err != nil {
		return err
	}
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var o order
		if err := json.Unmarshal(lines.Bytes(), &o); err != nil {
			return fmt.Errorf("read order %q: %w", lines.Text(), err)
		}
		if o.Do == "quit" {
			return l.GPU.Close()
		}
		if err := say.Encode(obey(l, o)); err != nil {
			return err
		}
	}
	return lines.Err()
}

func obey(l *load.Load, o order) (r reply) {
	var err error
	d := time.Duration(o.Millis) * time.Millisecond
	switch o.Do {
	case "run":
		r.Result, err = l.Run(d)
	case "info":
		r.SMs = l.GPU.SMs
		r.Free, r.Total, r.Device, err = l.GPU.Memory()
	case "sms":
		r.SMs = l.GPU.SMs
		r.Seen, err = l.SMs()
	case "allocate":
		r.Taken, err = l.Allocate(o.Piece, o.Limit)
	case "occupy":
		err = l.Occupy(d, o.Writes)
	case "fault":
		err = l.Fault()
	default:
		err = fmt.Errorf("unknown order %q", o.Do)
	}
	r.fail(err)
	return r
}

func (r *reply) fail(err error) {
	if err == nil {
		return
	}
	r.Error = err.Error()
	var e *driver.Error
	if errors.As(err, &e) {
		r.Call, r.Code = e.Call, e.Code
	}
}

// workerMain runs a worker on the standard streams.
func workerMain(kind string) error { return work(kind, os.Stdin, os.Stdout) }
