package deviceplugin

import (
	"fmt"
	"time"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Reasons of sick devices beside those that come from the driver.
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
func (c condition) cause(r rules, now time.Duration) *Sickness {
	switch {
	case c.xid != nil:
		return c.xid.sickness(c.wants)
	case c.driver != nil:
		return c.driver
	case c.wants == recoveryReset:
		return &Sickness{reasonReset, "the driver asks for a reset of the device: end its programs and run nvidia-smi --gpu-reset; the agent goes on when the driver is content"}
	case c.wants == recoveryReboot:
		return &Sickness{reasonReboot, "the driver asks for a reboot of the node"}
	case c.wants == recoveryOther:
		return &Sickness{reasonOther, "the driver asks for an action: nvidia-smi -q shows it under \"GPU Recovery Action\""}
	case !r.shared:
		return nil
	}
	return c.mpsCause(r, now)
}

func (c condition) mpsCause(r rules, now time.Duration) *Sickness {
	remedy := fmt.Sprintf("the GPU work of its clients is ended after %v and MPS is restarted", r.drainAfter)
	if !r.drain {
		remedy = "MPS is restarted when its clients have ended (health.residents is leave)"
	}
	switch {
	case c.control == controlFault:
		return &Sickness{reasonMPSFault, "an MPS server met a fatal fault of one of its clients and serves nobody new: " + c.said + "; " + remedy}
	case c.silent >= silentLooks:
		return &Sickness{reasonMPSNotAnswering, "the MPS control daemon does not answer: " + c.said + "; " + remedy}
	case c.down && now-c.absent >= absentFor:
		return &Sickness{reasonMPSNotRunning, "the MPS control daemon does not run and cannot be started: " + c.said + "; the agent goes on trying"}
	case c.canary == canaryWedged:
		return &Sickness{reasonMPSWedged, "new MPS clients wait for ever, which users report after a client was killed at work: " + c.tried + "; " + remedy}
	case c.canary == canaryFault:
		return &Sickness{reasonMPSFault, "MPS refuses new clients: " + c.tried + "; " + remedy}
	}
	return nil
}

func (x *latchedXID) sickness(wants recovery) *Sickness {
	s := &Sickness{Reason: fmt.Sprintf("XID%d", x.Number), Message: fmt.Sprintf("the driver logged XID %d", x.Number)}
	if x.Label != "" {
		s.Message += " (" + x.Label + ")"
	}
	switch {
	case x.Class == xidContained:
		s.Message += ": MPS is restarted when the clients of the device are gone"
	case wants == recoveryReboot:
		s.Message += ": the driver asks for a reboot of the node"
	case wants == recoveryReset:
		s.Message += ": the driver asks for a reset of the device: end its programs and run nvidia-smi --gpu-reset"
	case wants == recoveryOther:
		s.Message += ": the driver asks for an action, which nvidia-smi -q shows under \"GPU Recovery Action\""
	case wants == recoveryUnknown:
		s.Message += ": it may need a reset; this driver cannot tell, so the device is tried again when its clients are gone"
	default:
		s.Message += ": the device is tried again when the driver wants nothing done and its clients are gone"
	}
	return s
}

// state returns what the inventory shows: nil for a healthy device.
func (c condition) state() (sick *Sickness, recovering bool) {
	switch c.phase {
	case phaseSick:
		why := c.why
		return &why, false
	case phaseRecovering:
		return &Sickness{reasonRecovering, fmt.Sprintf("the device recovers from %s and takes work again when it has been well for %v; it had: %s",
			c.why.Reason, c.hold, c.why.Message)}, true
	}
	return nil, false
}

// unmonitored says why nobody would notice that the device serves no program, nil where somebody would.
func (c condition) unmonitored(r rules, deaf *Sickness) *Sickness {
	switch {
	case deaf != nil:
		return deaf
	case !r.shared || c.alone:
		return nil // there is no server that could be wedged
	case c.canary == canaryNoCUDA:
		return &Sickness{v1alpha1.MonitoredNoCUDA, "programs are not tried: " + c.tried}
	case c.failed >= failedProbes:
		return &Sickness{v1alpha1.MonitoredProbeFails, "the canary fails: " + c.tried}
	case !c.worked && c.canary == canaryNone:
		return &Sickness{v1alpha1.MonitoredNotYet, "no program has been tried since the agent started"}
	}
	return nil
}
