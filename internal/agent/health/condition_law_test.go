package health

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/internal/agent/config"
	"github.com/tandem-gpu/tandem/internal/agent/inventory"
	"github.com/tandem-gpu/tandem/internal/agent/sharing"
)

// drawObservation draws what can happen to a device.
func drawObservation(t *rapid.T) observation {
	switch rapid.IntRange(0, 9).Draw(t, "kind") {
	case 0:
		return observation{XID: &XID{Number: rapid.Uint64Range(1, 200).Draw(t, "number"), Class: XIDClass(rapid.IntRange(0, 2).Draw(t, "class"))}}
	case 1:
		var err error
		if rapid.Bool().Draw(t, "fails") {
			err = sharing.ErrNoAnswer
		}
		return observation{Replaced: &err}
	}
	l := look{
		Recovery: Recovery(rapid.SampledFrom([]int{0, 1, 1, 1, 1, 2, 3, 4}).Draw(t, "recovery")),
		Control:  control(rapid.SampledFrom([]int{0, 1, 1, 1, 1, 2, 3, 4}).Draw(t, "control")),
		Clients:  rapid.IntRange(0, 3).Draw(t, "clients"),
		Canary:   canary(rapid.SampledFrom([]int{0, 1, 1, 1, 2, 3, 4, 5}).Draw(t, "canary")),
	}
	if reason := rapid.SampledFrom([]string{"", "", "", "", "", reasonGPULost, reasonDriverError, "ECCUncorrected"}).Draw(t, "driver"); reason != "" {
		l.Driver = &inventory.Sickness{Reason: reason}
	}
	return observation{Look: &l}
}

func drawRules(t *rapid.T) rules {
	r := testRules()
	r.shared = rapid.Float64().Draw(t, "shared") > 0.1
	r.drain = rapid.Bool().Draw(t, "drain")
	return r
}

func TestConditionLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &ward{r: drawRules(t), now: time.Duration(rapid.Int64Range(0, 1e15).Draw(t, "start"))}
		var sickSince, goodSince time.Duration
		clients, good := 0, 0
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.now += time.Duration(rapid.IntRange(0, 12).Draw(t, "pause")) * time.Second
			o := drawObservation(t)
			if o.Replaced != nil && w.c.phase != phaseSick {
				continue // only a sick device is replaced
			}
			before := w.c.phase
			do := w.take(o)
			if o.Replaced != nil && *o.Replaced == nil {
				clients = 0
			}
			if l := o.Look; l != nil && (l.Control == controlWell || l.Control == controlFault) {
				clients = l.Clients
			} else if l != nil && l.Control == controlNotRunning {
				clients = 0
			}
			if w.c.phase == phaseSick && before != phaseSick {
				sickSince = w.now
			}
			bad := o.Look != nil && (o.Look.Driver != nil || o.Look.Recovery >= RecoveryReset) ||
				w.r.shared && o.Look != nil && (o.Look.Control == controlFault || o.Look.Canary == canaryWedged || o.Look.Canary == canaryFault) ||
				o.XID != nil && o.XID.Class != XIDApplication
			if bad && w.c.phase != phaseSick {
				t.Fatalf("%+v leaves the device %v", o, w.c.phase)
			}
			if w.c.phase == phaseHealthy && before == phaseSick {
				t.Fatal("a sick device is healthy at once")
			}
			// Good looks in a row, counted here without the condition.
			if l := o.Look; before == phaseRecovering && l != nil && !bad {
				sound := !w.r.shared || l.Control == controlWell && (l.Canary == canaryWell || l.Canary == canaryNoCUDA || l.Canary == canaryFailed)
				switch {
				case !sound:
					good = 0
				case good == 0:
					good, goodSince = 1, w.now
				default:
					good++
				}
			}
			if w.c.phase == phaseHealthy && before == phaseRecovering && (good < goodLooks || w.now-goodSince < w.r.hold) {
				t.Fatalf("healthy after %d good looks in %v", good, w.now-goodSince)
			}
			if w.c.phase != phaseRecovering {
				good = 0
			}
			if w.c.hold > max(config.MaxHold, w.r.hold) {
				t.Fatalf("hold %v", w.c.hold)
			}
			checkAction(t, w, do, clients, w.now-sickSince)
			if sick, recovering := w.c.state(); (sick == nil) != (w.c.phase == phaseHealthy) || recovering != (w.c.phase == phaseRecovering) || sick != nil && sick.Reason == "" {
				t.Fatalf("%v shows %v, %v", w.c.phase, sick, recovering)
			}
		}
	})
}

// checkAction checks what every action needs.
func checkAction(t *rapid.T, w *ward, do action, clients int, sickFor time.Duration) {
	switch {
	case do == actionNone:
	case !w.r.shared:
		t.Fatalf("action %v on a device without MPS", do)
	case do == actionStart && (w.c.control != controlNotRunning || w.c.driver != nil):
		t.Fatal("started what runs, or on a device that the driver does not answer for")
	case do == actionDrain && (!w.r.drain || clients == 0 || sickFor < w.r.drainAfter || w.c.phase != phaseSick):
		t.Fatalf("ended %d clients after %v of sickness (%v), drain is %v", clients, sickFor, w.c.phase, w.r.drain)
	case do == actionReplace && w.c.phase != phaseSick:
		t.Fatalf("replaced the server of a device that is %v", w.c.phase)
	case do == actionReplace && clients > 0 && (!w.r.drain || sickFor < w.r.drainAfter):
		t.Fatalf("replaced the server under %d clients after %v of sickness, drain is %v", clients, sickFor, w.r.drain)
	}
}

// A device on which nothing is wrong any more gets healthy, whatever was before, unless residents are to be left and stay.
func TestConditionLawOfRecovery(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := &ward{r: drawRules(t)}
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			w.now += time.Duration(rapid.IntRange(0, 60).Draw(t, "pause")) * time.Second
			w.take(drawObservation(t))
		}
		start := w.now
		l := well(rapid.IntRange(0, 3).Draw(t, "residents"))
		l.Recovery = rapid.SampledFrom([]Recovery{RecoveryNone, RecoveryUnknown}).Draw(t, "driver")
		for w.c.phase != phaseHealthy {
			// The recovery may take the grace of the residents, two drains, a retry and the hold.
			if most := w.r.drainAfter + maxReplaceRetry + config.MaxHold + time.Minute; w.now-start > most {
				t.Fatalf("%v after %v: %+v", w.c.phase, most, w.c)
			}
			w.now += 5 * time.Second
			if !w.r.drain && w.now-start > 30*time.Second {
				l.Clients = 0 // they end by themselves
			}
			switch w.see(l) {
			case actionDrain:
				l.Clients = 0
			case actionReplace:
				l.Clients = 0
				w.replaced(nil)
			case actionNone, actionStart:
			}
		}
	})
}

// Only time spans count: the same story an hour, or thirty years, later has the same outcome. Errors of programs are no
// part of it.
func TestConditionLawOfTimeAndApplications(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := drawRules(t)
		shift := time.Duration(rapid.Int64Range(0, int64(30*365*24*time.Hour)).Draw(t, "shift"))
		a, b := &ward{r: r, now: time.Hour}, &ward{r: r, now: time.Hour + shift}
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			pause := time.Duration(rapid.IntRange(0, 90).Draw(t, "pause")) * time.Second
			a.now, b.now = a.now+pause, b.now+pause
			o := drawObservation(t)
			doA, doB := a.take(o), b.take(o)
			b.take(observation{XID: &XID{Number: 31, Class: XIDApplication}})
			if doA != doB || a.c.phase != b.c.phase || a.c.why != b.c.why || a.c.hold != b.c.hold {
				t.Fatalf("step %d: %v, %+v, but later %v, %+v", i, doA, a.c, doB, b.c)
			}
		}
	})
}
