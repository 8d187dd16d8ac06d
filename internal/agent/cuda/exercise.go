package cuda

import (
	"errors"
	"fmt"
	"runtime"
)

const (
	// amount is the size of the allocation. A smaller one would come out of a block that the driver has already.
	amount = 1 << 20
	// pattern is the byte that fills it.
	pattern = 0xA5
)

// ErrNoDevice says that the driver shows this process no device.
var ErrNoDevice = errors.New("the CUDA driver shows no device")

// Exercise makes a context on the first visible device, fills 1 MiB of its memory, waits for the end of that work, and
// gives everything back. With the context, and before any work on the device, it calls connected; where that returns
// false it does no work. The errors of the driver are *Error. Exercise can block for ever.
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
