package health

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/sharing"
)

func testRules() rules {
	return rules{shared: true, hold: 15 * time.Second, drain: true, drainAfter: 30 * time.Second, every: 30 * time.Second, settle: 5 * time.Second}
}

// well is a look at a device that nothing is wrong with.
func well(clients int) look {
	return look{Recovery: RecoveryNone, Control: controlWell, Clients: clients, Canary: canaryWell}
}

// ward plays a device through its condition: time passes by steps.
type ward struct {
	c   condition
	r   rules
	now time.Duration
	did []action
}

func (w *ward) see(l look) action { return w.take(observation{Look: &l}) }

func (w *ward) take(o observation) action {
	var do action
	w.c, do = w.c.step(o, w.r, w.now)
	if do != actionNone {
		w.did = append(w.did, do)
	}
	return do
}

func (w *ward) replaced(err error) { w.take(observation{Replaced: &err}) }

// watch looks every 5 s until the condition has the phase or a minute has passed, and returns how long that took. The
// watcher does what it was asked to do.
func (w *ward) watch(t *testing.T, l look, until phase) time.Duration {
	t.Helper()
	start := w.now
	for w.c.phase != until {
		if w.now-start > 2*time.Hour {
			t.Fatalf("after two hours of %+v the device is still %v: %+v", l, w.c.phase, w.c)
		}
		w.now += 5 * time.Second
		switch w.see(l) {
		case actionDrain:
			l.Clients = 0
		case actionReplace:
			l.Clients = 0
			w.replaced(nil)
		case actionNone, actionStart:
		}
	}
	return w.now - start
}

func TestConditionOfFaults(t *testing.T) {
	xid := func(class XIDClass) *XID { return &XID{Number: 79, Class: class, Label: "reset"} }
	sick := func(reason string) look {
		return look{Driver: &inventory.Sickness{Reason: reason, Message: "seen"}, Control: controlWell, Clients: 2}
	}
	cases := []struct {
		name   string
		bad    observation
		reason string
		// during is what is seen while nothing has been done, clients included.
		during look
		did    []action
		// within bounds the time from the fault to health: a look is due every 5 s.
		within time.Duration
	}{
		{"fault that ends with its clients", observation{Look: &look{Control: controlFault, Clients: 2}}, reasonMPSFault, well(0), nil, 20 * time.Second},
		{"fault that stays", observation{Look: &look{Control: controlFault, Clients: 2}}, reasonMPSFault,
			look{Control: controlFault, Clients: 2}, []action{actionDrain, actionReplace}, 60 * time.Second},
		{"wedge that stays", observation{Look: &look{Control: controlWell, Clients: 2, Canary: canaryWedged}}, reasonMPSWedged,
			look{Control: controlWell, Clients: 2, Canary: canaryWedged}, []action{actionDrain, actionReplace}, 60 * time.Second},
		{"canary that was late", observation{Look: &look{Control: controlWell, Clients: 2, Canary: canaryWedged}}, reasonMPSWedged,
			well(2), nil, 25 * time.Second},
		{"XID, driver content", observation{XID: xid(XIDReset)}, "XID79", well(2), []action{actionDrain, actionReplace}, 60 * time.Second},
		{"XID, driver cannot tell", observation{XID: xid(XIDReset)}, "XID79",
			look{Control: controlWell, Canary: canaryWell}, []action{actionReplace}, 25 * time.Second},
		{"XID that is over with its clients", observation{XID: xid(XIDContained)}, "XID79", well(0), []action{actionReplace}, 25 * time.Second},
		{"lost and back", observation{Look: ptr(sick(reasonGPULost))}, reasonGPULost, well(0), []action{actionReplace}, 25 * time.Second},
		{"an error of NVML", observation{Look: ptr(sick(reasonDriverError))}, reasonDriverError, well(2), nil, 25 * time.Second},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			w := &ward{r: testRules(), now: time.Hour}
			w.see(well(2))
			w.take(c.bad)
			if w.c.phase != phaseSick || w.c.why.Reason != c.reason {
				t.Fatalf("%v for the reason %q, want sick for %q", w.c.phase, w.c.why.Reason, c.reason)
			}
			// The device does not mend by itself: the guard sees what was there, until it acts upon it.
			start := w.now
			during := c.during
			for w.c.phase != phaseHealthy && w.now-start <= c.within {
				w.now += 5 * time.Second
				switch w.see(during) {
				case actionDrain:
					during.Clients = 0
				case actionReplace:
					w.replaced(nil)
					if w.c.phase != phaseRecovering && strings.HasPrefix(c.reason, "MPS") {
						t.Errorf("%v for %v with a new server: nothing is known against that", w.c.phase, w.c.why)
					}
					during = well(0)
					during.Recovery = c.during.Recovery
				case actionNone, actionStart:
				}
			}
			if w.c.phase != phaseHealthy {
				t.Errorf("%v (%v) after %v", w.c.phase, w.c.why, w.now-start)
			}
			if !slices.Equal(w.did, c.did) {
				t.Errorf("did %v, want %v", w.did, c.did)
			}
		})
	}
}

func ptr[T any](v T) *T { return &v }

func TestConditionWaitsForTheDriver(t *testing.T) {
	for name, c := range map[string]struct {
		during look
		reason string
	}{
		"reset":        {look{Recovery: RecoveryReset, Control: controlWell}, reasonReset},
		"reboot":       {look{Recovery: RecoveryReboot, Control: controlWell}, reasonReboot},
		"other action": {look{Recovery: RecoveryOther, Control: controlWell}, reasonOther},
		"lost":         {look{Driver: &inventory.Sickness{Reason: reasonGPULost, Message: ""}, Control: controlWell}, reasonGPULost},
	} {
		t.Run(name, func(t *testing.T) {
			w := &ward{r: testRules()}
			for range 1000 {
				w.now += 5 * time.Second
				if w.see(c.during) == actionReplace {
					w.replaced(nil)
				}
			}
			if w.c.phase != phaseSick || w.c.why.Reason != c.reason {
				t.Errorf("%v for %q, want sick for %q", w.c.phase, w.c.why.Reason, c.reason)
			}
			// Nothing must hold the device when somebody resets it, so its server goes; once is enough.
			if !slices.Equal(w.did, []action{actionReplace}) {
				t.Errorf("did %v, want one replacement", w.did)
			}
			if w.c.probeDue(w.r, true, w.now) {
				t.Error("a canary would start a server on a device that waits for a reset")
			}
			w.watch(t, well(0), phaseHealthy)
		})
	}
}

// An XID error that needs a reset is not over before the driver had the time to say so.
func TestConditionGivesTheDriverTime(t *testing.T) {
	w := &ward{r: testRules()}
	w.see(well(0))
	w.take(observation{XID: &XID{Number: 48, Class: XIDReset}})
	w.now += time.Second
	w.see(well(0))
	if w.c.why.Reason != "XID48" || w.c.xid == nil {
		t.Errorf("one second later: %+v", w.c)
	}
	w.now += 3 * time.Second
	w.take(observation{XID: &XID{Number: 48, Class: XIDReset}}) // and once more: the time starts anew
	w.now += 4 * time.Second
	w.see(well(0))
	if w.c.xid == nil {
		t.Error("four seconds after the last error it is over")
	}
	l := well(0)
	l.Recovery = RecoveryReset
	w.see(l)
	if w.c.phase != phaseSick || w.c.why.Reason != "XID48" {
		t.Errorf("the driver asks for a reset: %v for %q, want sick for XID48", w.c.phase, w.c.why.Reason)
	}
	w.watch(t, well(0), phaseHealthy)
}

func TestConditionOfAFailingCanary(t *testing.T) {
	failed := look{Recovery: RecoveryNone, Control: controlWell, Canary: canaryFailed, CanaryWhy: "out of memory"}
	w := &ward{r: testRules()}
	for i := range failedProbes {
		if why := w.c.unmonitored(w.r, nil); i > 0 && why != nil {
			t.Errorf("after %d failures: %v", i, why)
		}
		w.see(failed)
	}
	if why := w.c.unmonitored(w.r, nil); w.c.phase != phaseHealthy || why == nil || why.Reason != "ProbeFails" {
		t.Errorf("%v, unmonitored for %v; want healthy and unmonitored", w.c.phase, why)
	}
	// It never worked: it is not held against the device when that recovers. Had it worked, it would be.
	w.see(look{Driver: &inventory.Sickness{Reason: reasonGPULost, Message: ""}, Control: controlWell})
	w.watch(t, failed, phaseHealthy)
	w.see(well(0))
	w.see(look{Driver: &inventory.Sickness{Reason: reasonGPULost, Message: ""}, Control: controlWell})
	w.watch(t, failed, phaseRecovering)
	for range 100 {
		w.now += 5 * time.Second
		w.see(failed)
	}
	if w.c.phase != phaseRecovering {
		t.Errorf("%v although no program gets through any more", w.c.phase)
	}
}

func TestConditionUnmonitored(t *testing.T) {
	var c condition
	if why := c.unmonitored(testRules(), nil); why == nil || why.Reason != "NotYetProbed" {
		t.Errorf("at the start: %v", why)
	}
	if why := c.unmonitored(rules{}, nil); why != nil {
		t.Errorf("a device without MPS has no server that could be wedged: %v", why)
	}
	c, _ = c.step(observation{Look: &look{Control: controlWell, Canary: canaryNoCUDA, CanaryWhy: "libcuda.so.1 not found"}}, testRules(), 0)
	if why := c.unmonitored(testRules(), nil); c.phase != phaseHealthy || why == nil || why.Reason != "NoCUDA" {
		t.Errorf("without CUDA: %v, %v; want healthy and unmonitored", c.phase, why)
	}
	c, _ = c.step(observation{Look: ptr(well(0))}, testRules(), 0)
	if why := c.unmonitored(testRules(), nil); why != nil {
		t.Errorf("after a good probe: %v", why)
	}
	if why := c.unmonitored(testRules(), &inventory.Sickness{Reason: "NoXIDEvents", Message: ""}); why == nil || why.Reason != "NoXIDEvents" {
		t.Errorf("without XID events: %v", why)
	}
}

func TestConditionOfADaemonThatDoesNotRun(t *testing.T) {
	down := look{Control: controlNotRunning, ControlWhy: "not found"}
	w := &ward{r: testRules()}
	for w.now < absentFor {
		if do := w.see(down); do != actionStart || w.c.phase != phaseHealthy {
			t.Fatalf("after %v: %v and action %v; at the agent's start it is down", w.now, w.c.phase, do)
		}
		w.now += 5 * time.Second
	}
	w.see(down)
	if w.c.phase != phaseSick || w.c.why.Reason != reasonMPSNotRunning {
		t.Errorf("after %v: %v for %q", w.now, w.c.phase, w.c.why.Reason)
	}
	w.watch(t, well(0), phaseHealthy)
}

func TestConditionOfASilentDaemon(t *testing.T) {
	silent := look{Control: controlNoAnswer, ControlWhy: "get_server_list"}
	w := &ward{r: testRules()}
	w.see(well(3))
	w.see(silent)
	if w.c.phase != phaseHealthy {
		t.Error("sick after one silence, which may be a busy machine")
	}
	w.see(silent)
	if w.c.phase != phaseSick || w.c.why.Reason != reasonMPSNotAnswering {
		t.Errorf("%v for %q", w.c.phase, w.c.why.Reason)
	}
	if took := w.watch(t, silent, phaseRecovering); took > 40*time.Second || !slices.Equal(w.did, []action{actionReplace}) {
		t.Errorf("replaced after %v by %v; its clients cannot be ended one by one", took, w.did)
	}
}

// A server that cannot be replaced is tried again later and later, up to a minute.
func TestConditionOfReplacementsThatFail(t *testing.T) {
	w := &ward{r: testRules()}
	var gaps []time.Duration
	for last := time.Duration(0); len(gaps) < 7; w.now += time.Second {
		if w.see(look{Control: controlWell, Canary: canaryWedged}) == actionReplace {
			gaps = append(gaps, w.now-last)
			last = w.now
			w.replaced(sharing.ErrNoAnswer)
		}
	}
	if want := []time.Duration{0, 5e9, 10e9, 20e9, 40e9, 60e9, 60e9}; !slices.Equal(gaps, want) {
		t.Errorf("tried after %v, want %v", gaps, want)
	}
}

// Each relapse within an hour doubles the hold, up to ten minutes.
func TestConditionRelapses(t *testing.T) {
	wedged := look{Control: controlWell, Canary: canaryWedged}
	w := &ward{r: testRules()}
	for _, want := range []time.Duration{15, 30, 60, 120, 240, 480, 600, 600} {
		w.now += time.Minute
		w.see(wedged)
		if w.c.hold != want*time.Second {
			t.Errorf("hold %v, want %v", w.c.hold, want*time.Second)
		}
		w.watch(t, well(0), phaseHealthy)
	}
	w.now += relapseWithin
	w.see(wedged)
	if w.c.hold != 15*time.Second {
		t.Errorf("hold %v after an hour of health", w.c.hold)
	}
	w.watch(t, well(0), phaseRecovering)
	w.see(wedged)
	if w.c.hold != 30*time.Second {
		t.Errorf("hold %v after a relapse while it recovered", w.c.hold)
	}
}

func TestProbeDue(t *testing.T) {
	r := testRules()
	c, _ := condition{}.step(observation{Look: ptr(well(1))}, r, 0)
	for _, p := range []struct {
		after time.Duration
		left  bool
		want  bool
	}{{9 * time.Second, true, false}, {10 * time.Second, true, true}, {29 * time.Second, false, false}, {30 * time.Second, false, true}} {
		if got := c.probeDue(r, p.left, p.after); got != p.want {
			t.Errorf("after %v, a client left %v: due %v", p.after, p.left, got)
		}
	}
	if !(condition{}).probeDue(r, false, 0) {
		t.Error("the first probe waits")
	}
	if (condition{}).probeDue(rules{}, false, 0) {
		t.Error("a device without MPS is probed")
	}
}

// One good look may be luck: also without a hold time it takes three in a row, and a bad one in between starts anew.
func TestConditionWantsThreeGoodLooks(t *testing.T) {
	w := &ward{r: rules{}}
	bad, good := look{Driver: &inventory.Sickness{Reason: reasonLost}, Recovery: RecoveryNone}, look{Recovery: RecoveryNone}
	for i, step := range []struct {
		l    look
		want phase
	}{
		{bad, phaseSick},
		{good, phaseRecovering}, {good, phaseRecovering}, {good, phaseRecovering},
		{bad, phaseSick},
		{good, phaseRecovering}, {good, phaseRecovering}, {good, phaseRecovering}, {good, phaseHealthy},
	} {
		w.now += time.Second
		w.see(step.l)
		if w.c.phase != step.want {
			t.Fatalf("look %d: phase %v, want %v", i, w.c.phase, step.want)
		}
	}
}
