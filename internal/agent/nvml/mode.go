package nvml

import (
	"encoding/binary"
	"fmt"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// Mode is the compute mode of a device: who may make contexts on it.
type Mode string

// Modes.
const (
	// ModeDefault lets every program in.
	ModeDefault Mode = "Default"
	// ModeExclusiveProcess lets one process in. Under MPS that process is the server, so every other program goes
	// through it.
	ModeExclusiveProcess Mode = "ExclusiveProcess"
	// ModeOther is any other mode: prohibited, or one thread. The package reads this mode and never sets it.
	ModeOther Mode = "Other"
)

// ComputeMode returns the mode of a device.
func (l *Library) ComputeMode(uuid string) (Mode, error) {
	if err := l.enter(); err != nil {
		return ModeOther, fmt.Errorf("read compute mode: %w", err)
	}
	defer l.leave()
	t, ret := l.find(uuid)
	if ret != nvml.SUCCESS {
		return ModeOther, fmt.Errorf("read compute mode of %s: find it: %s", uuid, text(ret))
	}
	mode, ret := t.device.GetComputeMode()
	if ret != nvml.SUCCESS {
		return ModeOther, fmt.Errorf("read compute mode of %s: %s", uuid, text(ret))
	}
	switch mode {
	case nvml.COMPUTEMODE_DEFAULT:
		return ModeDefault, nil
	case nvml.COMPUTEMODE_EXCLUSIVE_PROCESS:
		return ModeExclusiveProcess, nil
	default:
		return ModeOther, nil
	}
}

// SetComputeMode sets the mode of a device; the driver requires root. The mode lasts until the driver unloads.
func (l *Library) SetComputeMode(uuid string, mode Mode) error {
	number := nvml.COMPUTEMODE_DEFAULT
	switch mode {
	case ModeDefault:
	case ModeExclusiveProcess:
		number = nvml.COMPUTEMODE_EXCLUSIVE_PROCESS
	default:
		return fmt.Errorf("set compute mode of %s: %q, must be %q or %q", uuid, mode, ModeDefault, ModeExclusiveProcess)
	}
	if err := l.enter(); err != nil {
		return fmt.Errorf("set compute mode: %w", err)
	}
	defer l.leave()
	t, ret := l.find(uuid)
	if ret != nvml.SUCCESS {
		return fmt.Errorf("set compute mode of %s: find it: %s", uuid, text(ret))
	}
	if ret := t.device.SetComputeMode(number); ret != nvml.SUCCESS {
		return fmt.Errorf("set compute mode of %s to %s: %s", uuid, mode, text(ret))
	}
	return nil
}

// Action is the repair that a device needs, as the driver reports it.
type Action string

// Actions. All but RecoveryNone mean that the device is not to be used.
const (
	RecoveryNone          Action = "None"
	RecoveryReset         Action = "Reset"
	RecoveryReboot        Action = "Reboot"
	RecoveryDrain         Action = "DrainPeers"
	RecoveryDrainAndReset Action = "DrainPeersAndReset"
	RecoveryIMEX          Action = "RecoverIMEXDomain"
	RecoveryBusReset      Action = "BusReset"
	// RecoveryOther is a number that this release does not know.
	RecoveryOther Action = "Other"
)

// actions by NVML's numbers (nvmlDeviceGpuRecoveryAction_t).
var actions = map[uint32]Action{
	0: RecoveryNone, 1: RecoveryReset, 2: RecoveryReboot, 3: RecoveryDrain, 4: RecoveryDrainAndReset,
	5: RecoveryIMEX, 6: RecoveryBusReset, 7: RecoveryReboot,
}

// Recovery returns what the driver wants done about a device, for a MIG instance about its GPU. The result is false
// where the driver gives no action: before r565 or so, on older GPUs, and for a lost device.
func (l *Library) Recovery(uuid string) (Action, bool) {
	if l.enter() != nil {
		return RecoveryOther, false
	}
	defer l.leave()
	t, ret := l.find(uuid)
	if ret != nvml.SUCCESS || !l.has("nvmlDeviceGetFieldValues") {
		return RecoveryOther, false
	}
	fields := []nvml.FieldValue{{FieldId: nvml.FI_DEV_GET_GPU_RECOVERY_ACTION}}
	if t.gpu.GetFieldValues(fields) != nvml.SUCCESS || nvml.Return(fields[0].NvmlReturn) != nvml.SUCCESS {
		return RecoveryOther, false
	}
	// The number is small and not negative in each type that the driver may name, so its low half comes first.
	action, ok := actions[binary.LittleEndian.Uint32(fields[0].Value[:4])]
	if !ok {
		action = RecoveryOther
	}
	return action, true
}
