package health

import (
	"fmt"
	"time"

	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Reasons of unhealthy devices beside those that come from the driver.
const (
	reasonMPSFault        = "MPSFault"
	reasonMPSWedged       = "MPSWedged"
	reasonMPSNotRunning   = "MPSNotRunning"
	reasonMPSNotAnswering = "MPSNotAnswering"
	reasonReset           = "ResetRequired"
	reasonReboot          = "RebootRequired"
	reasonOther           = "RecoveryRequired"
	reasonRecovering      = "Recovering"
)

// cause says what is wrong with the device now, nil if nothing is.
func (c condition) cause(r rules, now time.Duration) *inventory.Sickness {
	switch {
	case c.xid != nil:
		return c.xid.sickness(c.wants)
	case c.driver != nil:
		return c.driver
	case c.wants == RecoveryReset:
		return &inventory.Sickness{Reason: reasonReset, Message: "the driver asks for a reset of the device: end its programs and run nvidia-smi --gpu-reset; the agent goes on when the driver is content"}
	case c.wants == RecoveryReboot:
		return &inventory.Sickness{Reason: reasonReboot, Message: "the driver asks for a reboot of the node"}
	case c.wants == RecoveryOther:
		return &inventory.Sickness{Reason: reasonOther, Message: "the driver asks for an action: nvidia-smi -q shows it under \"GPU Recovery Action\""}
	case !r.shared:
		return nil
	}
	return c.mpsCause(r, now)
}

func (c condition) mpsCause(r rules, now time.Duration) *inventory.Sickness {
	remedy := fmt.Sprintf("the GPU work of its clients is ended after %v and MPS is restarted", r.drainAfter)
	if !r.drain {
		remedy = "MPS is restarted when its clients have ended (health.residents is leave)"
	}
	switch {
	case c.control == controlFault:
		return &inventory.Sickness{Reason: reasonMPSFault, Message: "an MPS server met a fatal fault of one of its clients and serves nobody new: " + c.said + "; " + remedy}
	case c.silent >= silentLooks:
		return &inventory.Sickness{Reason: reasonMPSNotAnswering, Message: "the MPS control daemon does not answer: " + c.said + "; " + remedy}
	case c.down && now-c.absent >= absentFor:
		return &inventory.Sickness{Reason: reasonMPSNotRunning, Message: "the MPS control daemon does not run and cannot be started: " + c.said + "; the agent goes on trying"}
	case c.canary == canaryWedged:
		return &inventory.Sickness{Reason: reasonMPSWedged, Message: "new MPS clients wait for ever, which users report after a client was killed at work: " + c.tried + "; " + remedy}
	case c.canary == canaryFault:
		return &inventory.Sickness{Reason: reasonMPSFault, Message: "MPS refuses new clients: " + c.tried + "; " + remedy}
	}
	return nil
}

func (x *latchedXID) sickness(wants Recovery) *inventory.Sickness {
	s := &inventory.Sickness{Reason: fmt.Sprintf("XID%d", x.Number), Message: fmt.Sprintf("the driver logged XID %d", x.Number)}
	if x.Label != "" {
		s.Message += " (" + x.Label + ")"
	}
	switch {
	case x.Class == XIDContained:
		s.Message += ": MPS is restarted when the clients of the device are gone"
	case wants == RecoveryReboot:
		s.Message += ": the driver asks for a reboot of the node"
	case wants == RecoveryReset:
		s.Message += ": the driver asks for a reset of the device: end its programs and run nvidia-smi --gpu-reset"
	case wants == RecoveryOther:
		s.Message += ": the driver asks for an action, which nvidia-smi -q shows under \"GPU Recovery Action\""
	case wants == RecoveryUnknown:
		s.Message += ": it may need a reset; this driver cannot tell, so the device is tried again when its clients are gone"
	default:
		s.Message += ": the device is tried again when the driver wants nothing done and its clients are gone"
	}
	return s
}

// state returns what the inventory shows: nil for a healthy device.
func (c condition) state() (sick *inventory.Sickness, recovering bool) {
	switch c.phase {
	case phaseSick:
		why := c.why
		return &why, false
	case phaseRecovering:
		return &inventory.Sickness{Reason: reasonRecovering, Message: fmt.Sprintf("the device recovers from %s and takes work again when it has been well for %v; it had: %s",
			c.why.Reason, c.hold, c.why.Message)}, true
	}
	return nil, false
}

// unmonitored says why the agent would not notice that the device serves no program, nil where it would.
func (c condition) unmonitored(r rules, noEvents *inventory.Sickness) *inventory.Sickness {
	switch {
	case noEvents != nil:
		return noEvents
	case !r.shared || c.alone:
		return nil // there is no server that could hang
	case c.canary == canaryNoCUDA:
		return &inventory.Sickness{Reason: v1alpha1.MonitoredNoCUDA, Message: "programs are not tried: " + c.tried}
	case c.failed >= failedProbes:
		return &inventory.Sickness{Reason: v1alpha1.MonitoredProbeFails, Message: "the canary fails: " + c.tried}
	case !c.worked && c.canary == canaryNone:
		return &inventory.Sickness{Reason: v1alpha1.MonitoredNotYet, Message: "no program has been tried since the agent started"}
	}
	return nil
}
