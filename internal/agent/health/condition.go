package health

import (
	"time"

	"github.com/tandem-gpu/tandem/internal/agent/config"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
)

// condition is the health of one device, and makes all decisions on it: observations go in, the next condition and the
// actions come out. The type has no clock: now is the time since any fixed moment on a clock that never jumps.
//
// A healthy device becomes unhealthy at the first bad sign. The device stays unhealthy while the sign is there and,
// where its MPS server may be broken, until the guard has replaced the server. Then the device recovers, and takes work
// again once it has been well for the hold time. A sign that goes away by itself before anything was replaced (a canary
// that was late on a busy machine) costs no resident its work.
type condition struct {
	phase phase
	// since is when the phase began.
	since time.Duration
	// why is what the device has, or had while it recovers.
	why inventory.Sickness
	// hold is how long the device must be well this time, cured when it last took work again.
	hold, cured time.Duration
	curedOnce   bool
	// good counts the good looks in a row while it recovers.
	good int

	// replace says that the server that the device had before must not serve it again.
	replace bool
	// drains counts the attempts to end the clients since the device became unhealthy; retry is when to try to replace
	// the server again.
	drains         int
	retry, backoff time.Duration

	xid     *latchedXID
	driver  *inventory.Sickness
	wants   Recovery
	alone   bool
	control control
	said    string // by the control plane, where it is not well
	clients int
	// silent counts looks without an answer in a row. The daemon is down since absent.
	silent int
	down   bool
	absent time.Duration

	canary canary
	failed int // probes in a row that failed for reasons of their own
	worked bool
	tried  string // what the canary said
	probed time.Duration
}

// latchedXID is a serious XID error that has not been dealt with.
type latchedXID struct {
	XID
	at time.Duration
	// lost: the driver lost the device after it. replaced: the guard replaced the server after it.
	lost, replaced bool
}

type phase uint8

const (
	phaseHealthy phase = iota
	phaseSick
	phaseRecovering
)

// control is what the control plane of MPS says.
type control uint8

const (
	controlUnknown control = iota
	controlWell
	controlFault
	controlNotRunning
	controlNoAnswer
)

// canary is how a probe of the data plane ended.
type canary uint8

const (
	canaryNone canary = iota
	canaryWell
	canaryWedged
	canaryFault
	canaryNoCUDA
	canaryFailed
)

// observation is one event: exactly one field is set.
type observation struct {
	// Look is what a regular look found.
	Look *look
	// XID is an error that the driver has just logged.
	XID *XID
	// Replaced is the end of the action replace: nil where it succeeded.
	Replaced *error
}

// look holds the answers of driver, control plane and data plane at one time.
type look struct {
	Driver   *inventory.Sickness
	Recovery Recovery
	// Control is unknown without a question; Clients counts where MPS answered.
	Control    control
	ControlWhy string
	Clients    int
	// Canary is none without a canary. A device that is Full of clients has no room for a canary. On a device that a
	// container has Alone, outside MPS, a canary would start a server, which takes memory.
	Canary      canary
	CanaryWhy   string
	Full, Alone bool
}

// rules are the settings of one device that the decision needs.
type rules struct {
	// shared: MPS serves the device.
	shared     bool
	hold       time.Duration
	drain      bool
	drainAfter time.Duration
	// every is the pause between two probes of a healthy device; settle is the time after an XID error within which the
	// driver names the repair.
	every, settle time.Duration
}

const (
	// goodLooks in a row make a device healthy again, if they last for the hold time. One alone could be chance.
	goodLooks = 3
	// relapseWithin is how soon after a recovery a bad sign counts as a relapse, which doubles the hold up to
	// config.MaxHold. A device that fails every few minutes takes work for a small part of the time only.
	relapseWithin = time.Hour
	// silentLooks without an answer make a device unhealthy. The first may be a busy machine.
	silentLooks = 2
	// absentFor is how long the daemon may be down before the device is unhealthy. At the agent's start the daemon is
	// down. The kubelet must admit pods meanwhile, and their containers wait before they start.
	absentFor = 30 * time.Second
	// maxDrains bounds the attempts to end clients before the guard replaces their server.
	maxDrains = 2
	// failedProbes in a row make a device unmonitored.
	failedProbes = 3
	// minReplaceRetry and maxReplaceRetry bound the wait between attempts to replace a server.
	minReplaceRetry = 5 * time.Second
	maxReplaceRetry = time.Minute
)

// step returns the condition after an observation, and what to do now.
func (c condition) step(o observation, r rules, now time.Duration) (condition, action) {
	c = c.note(o, r, now)
	cause := c.cause(r, now)
	switch {
	case cause != nil && c.phase != phaseSick:
		c = c.fall(*cause, r, now)
	case cause != nil:
		if c.inDevice() || c.why.Reason != cause.Reason { // numbers in a text are no news
			c.why = *cause
		}
	case c.phase == phaseSick && !c.replace:
		c.phase, c.since, c.good = phaseRecovering, now, 0
	case c.phase == phaseRecovering && o.Look != nil:
		c = c.convalesce(*o.Look, r, now)
	}
	if o.Look == nil {
		return c, actionNone
	}
	return c.treat(cause, r, now)
}

// note takes the observation in.
func (c condition) note(o observation, r rules, now time.Duration) condition {
	switch {
	case o.XID != nil:
		c = c.noteXID(*o.XID, now)
	case o.Replaced != nil:
		c = c.noteReplaced(*o.Replaced, now)
	case o.Look != nil:
		c = c.noteDriver(*o.Look, r, now).noteControl(*o.Look, now).noteCanary(*o.Look, now)
	}
	c.replace = c.replace && r.shared
	return c
}

// noteXID latches a serious error. In a storm the first error of the worst class stays.
func (c condition) noteXID(x XID, now time.Duration) condition {
	if x.Class == XIDApplication {
		return c
	}
	latched := latchedXID{XID: x, at: now}
	if c.xid != nil && c.xid.Class >= x.Class {
		latched = *c.xid
		latched.at, latched.lost, latched.replaced = now, false, false
	}
	c.xid, c.replace = &latched, true
	return c
}

func (c condition) noteReplaced(err error, now time.Duration) condition {
	if err != nil {
		c.backoff = min(max(2*c.backoff, minReplaceRetry), maxReplaceRetry)
		c.retry = now + c.backoff
		return c
	}
	c.replace, c.drains, c.clients = false, 0, 0
	c.control, c.silent, c.down = controlUnknown, 0, false
	c.canary, c.failed = canaryNone, 0
	// The same cause may be there again at once: then it does not help to hurry.
	c.backoff = min(max(2*c.backoff, minReplaceRetry), maxReplaceRetry)
	c.retry = now + c.backoff
	if c.xid != nil {
		latched := *c.xid
		latched.replaced = true
		c.xid = &latched
	}
	return c
}

// noteDriver clears a latched error when the driver wants nothing done any more, or the device went and came back.
func (c condition) noteDriver(l look, r rules, now time.Duration) condition {
	worse := l.Driver != nil && !passing[l.Driver.Reason] && (c.driver == nil || c.driver.Reason != l.Driver.Reason)
	if worse || l.Recovery >= RecoveryReset && c.wants < RecoveryReset {
		c.replace = true
	}
	c.driver, c.wants, c.alone = l.Driver, l.Recovery, l.Alone
	if c.xid == nil {
		return c
	}
	latched := *c.xid
	latched.lost = latched.lost || lost(c.driver)
	c.xid = &latched
	if c.driver == nil && c.wants < RecoveryReset && latched.over(c.wants, r, now) {
		c.xid = nil
	}
	return c
}

// over reports whether the error has been dealt with, on a device of which the driver wants nothing more.
func (x *latchedXID) over(wants Recovery, r rules, now time.Duration) bool {
	settled := now-x.at >= r.settle
	switch {
	case !r.shared:
		return settled // there is no server to replace: the hold has to do
	case x.Class == XIDContained || wants == RecoveryUnknown:
		return x.replaced || x.Class == XIDReset && x.lost
	}
	return x.lost || settled
}

// passing are the sicknesses after which a server may still be sound.
var passing = map[string]bool{reasonDriverHangs: true, reasonDriverError: true}

func lost(s *inventory.Sickness) bool {
	return s != nil && (s.Reason == reasonLost || s.Reason == reasonGPULost)
}

func (c condition) noteControl(l look, now time.Duration) condition {
	if l.Control == controlUnknown {
		return c
	}
	if l.Control != controlNoAnswer {
		c.silent = 0
	}
	switch l.Control {
	case controlWell, controlFault:
		c.clients = l.Clients
	case controlNoAnswer:
		c.silent++
	case controlNotRunning:
		c.clients = 0
		if !c.down {
			c.absent = now
		}
	case controlUnknown:
	}
	c.control, c.said, c.down = l.Control, l.ControlWhy, l.Control == controlNotRunning
	return c
}

func (c condition) noteCanary(l look, now time.Duration) condition {
	if l.Canary == canaryNone {
		return c
	}
	c.canary, c.tried, c.probed = l.Canary, l.CanaryWhy, now
	c.worked = c.worked || l.Canary == canaryWell
	c.failed++
	if l.Canary != canaryFailed {
		c.failed = 0
	}
	return c
}

// fall makes the device unhealthy.
func (c condition) fall(why inventory.Sickness, r rules, now time.Duration) condition {
	relapse := c.phase == phaseRecovering || c.curedOnce && now-c.cured < relapseWithin
	if relapse {
		c.hold = min(2*c.hold, max(config.MaxHold, r.hold))
	} else {
		c.hold, c.backoff, c.retry = r.hold, 0, now
	}
	c.phase, c.since, c.why, c.good, c.drains = phaseSick, now, why, 0, 0
	return c
}

// convalesce counts a good look, and makes the device healthy when there were enough of them for long enough.
func (c condition) convalesce(l look, r rules, now time.Duration) condition {
	if !c.wellAt(l, r) {
		c.good = 0
		return c
	}
	if c.good == 0 {
		c.since = now
	}
	c.good++
	if c.good >= goodLooks && now-c.since >= c.hold {
		c.phase, c.since, c.cured, c.curedOnce, c.why = phaseHealthy, now, now, true, inventory.Sickness{}
	}
	return c
}

// wellAt reports whether a look found nothing that could be better. A canary that never worked on this device does not
// count: there may be no CUDA.
func (c condition) wellAt(l look, r rules) bool {
	if !r.shared {
		return true
	}
	proven := l.Canary == canaryWell || l.Canary == canaryNoCUDA || l.Canary == canaryFailed && !c.worked
	return l.Control == controlWell && (proven || l.Full || l.Alone)
}

func (p phase) String() string { return [...]string{"healthy", "sick", "recovering"}[p] }

func (c canary) String() string {
	return [...]string{"none", "well", "wedged", "fault", "no-cuda", "failed"}[c]
}
