package health

import (
	"errors"

	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/nvml"
)

// Recovery is what the driver wants done to a device.
type Recovery uint8

const (
	// RecoveryUnknown means that the driver does not say.
	RecoveryUnknown Recovery = iota
	// RecoveryNone means that the device needs no repair.
	RecoveryNone
	// RecoveryReset means that the device is to be reset.
	RecoveryReset
	// RecoveryReboot means that the device needs a reboot of the node.
	RecoveryReboot
	// RecoveryOther is something else than a reset or a reboot.
	RecoveryOther
)

// XIDClass says what an XID error means for the device.
type XIDClass uint8

const (
	// XIDApplication means that a program did something wrong. The device is sound.
	XIDApplication XIDClass = iota
	// XIDContained means that the device is sound once its present clients are gone.
	XIDContained
	// XIDReset means that the device is not sound before a reset, or until the driver says so.
	XIDReset
)

// String returns the class as the metrics name it.
func (x XIDClass) String() string { return [...]string{"application", "contained", "reset"}[x] }

// XID is an error that the driver logged.
type XID struct {
	// Device is the UUID.
	Device string
	Number uint64
	Class  XIDClass
	// Label is NVIDIA's class in a word, for people.
	Label string
	// More is how many equal errors came at the same time, beside this one.
	More int
}

// reasonLost is the Reason of a device that the driver no longer answers for.
const reasonLost = "DeviceLost"

// sickness words an error of Driver.Health; nil stays nil.
func sickness(err error) *inventory.Sickness {
	var s *inventory.Sickness
	switch {
	case err == nil:
		return nil
	case errors.As(err, &s):
		return s
	}
	return &inventory.Sickness{Reason: reasonLost, Message: err.Error()}
}

// Reasons of devices that the driver does not answer for, beside NVML's own.
const (
	// reasonGPULost: the device has fallen off the bus.
	reasonGPULost = string(nvml.Lost)
	// reasonDriverError: NVML gave an error that is not about the device.
	reasonDriverError = string(nvml.NotAnswering)
	// reasonDriverHangs: NVML gave no answer.
	reasonDriverHangs = "DriverNotAnswering"
)
