package cuda

import (
	"errors"
	"fmt"
	"runtime"
)

const (
	// amount is what is allocated. A smaller one would come out of a block that the driver has already.
	amount = 1 << 20
	// pattern is what it is filled with.
	pattern = 0xA5
)

// ErrNoDevice says that the driver shows this process no device.
var ErrNoDevice = errors.New("the CUDA driver shows no device")

// Exercise makes a context on the first device that the process sees, fills 1 MiB of its memory, waits until that is
// done, and gives everything back. Once the context is there, and before work is given to the device, it calls
// connected; where that returns false no work is done. The errors of the driver are *Error. It can block for ever.
func (l *Library) Exercise(connected func() bool) (err error) {
	// A context is current in a thread, and goroutines wander.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := l.initialize(); err != nil {
		return err
	}
	n, err := l.count()
	if err != nil {
		return err
	}
	if n < 1 {
		return ErrNoDevice
	}
	d, err := l.device(0)
	if err != nil {
		return err
	}
	context, err := l.retain(d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.release(d)) }()
	if err := l.makeCurrent(context); err != nil {
		return err
	}
	if !connected() {
		return nil
	}
	return l.work()
}

// work fills memory of the current context.
func (l *Library) work() (err error) {
	p, err := l.allocate(amount)
	if err != nil {
		return fmt.Errorf("allocate %d bytes: %w", amount, err)
	}
	defer func() { err = errors.Join(err, l.free(p)) }()
	if err := l.set(p, pattern, amount); err != nil {
		return err
	}
	return l.synchronize()
}
