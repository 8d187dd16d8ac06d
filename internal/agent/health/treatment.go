package health

import (
	"time"

	"github.com/tandem-gpu/tandem/internal/agent/inventory"
)

// action is what to do about a device.
type action uint8

const (
	actionNone action = iota
	// actionStart starts the daemon that does not run, or adopts one.
	actionStart
	// actionDrain ends the work of all clients.
	actionDrain
	// actionReplace replaces the daemon and its servers.
	actionReplace
)

// treat decides what to do after a look.
func (c condition) treat(cause *inventory.Sickness, r rules, now time.Duration) (condition, action) {
	if !r.shared {
		return c, actionNone
	}
	if c.phase != phaseSick || !c.replace && (cause == nil || c.inDevice()) {
		if c.control == controlNotRunning && c.driver == nil {
			return c, actionStart
		}
		return c, actionNone
	}
	if c.clients > 0 {
		if !r.drain || now-c.since < r.drainAfter {
			return c, actionNone
		}
		if c.drains < maxDrains && c.control != controlNoAnswer {
			c.drains++
			return c, actionDrain
		}
	}
	if now < c.retry {
		return c, actionNone
	}
	return c, actionReplace
}

// inDevice reports whether what is wrong lies in the device, where no new server helps.
func (c condition) inDevice() bool {
	return c.xid != nil || c.driver != nil || c.wants >= RecoveryReset
}

// probeDue reports whether to run the canary at this look. A client that left may have died in the middle of its work,
// which breaks the server, so the canary then runs sooner.
func (c condition) probeDue(r rules, clientLeft bool, now time.Duration) bool {
	switch {
	case !r.shared || c.inDevice():
		return false // a device that waits for a reset gets no new server
	case c.phase == phaseRecovering || c.canary == canaryNone:
		return true
	case c.phase == phaseSick:
		return c.canary == canaryWedged || c.canary == canaryFault
	case clientLeft:
		return now-c.probed >= r.every/3
	}
	return now-c.probed >= r.every
}

// resting reports whether the guard may skip the control plane at most looks.
func (c condition) resting() bool {
	return c.phase == phaseHealthy && c.control == controlWell && c.silent == 0 && c.canary != canaryNone
}
