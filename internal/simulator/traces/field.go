package traces

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Bounds of fields, each at least eight times what the published traces have.
const (
	// maxDevices bounds the devices of a node, and so of a pod.
	maxDevices = 64
	// maxWorkers bounds the workers of a job.
	maxWorkers = 10_000
	// maxMilliCPU bounds the CPU of a node or a pod: 10,000 cores.
	maxMilliCPU = 10_000_000
	// maxMemoryMiB bounds the memory of a node or a pod: 64 TiB.
	maxMemoryMiB = 64 << 20
	// maxSeconds bounds a time and a duration: 31 years.
	maxSeconds = 1_000_000_000
	// maxSteps bounds the steps of a job.
	maxSteps = 1_000_000_000_000
	// maxBatch bounds the samples of a step.
	maxBatch = 1_000_000_000
	// maxRate bounds steps per second.
	maxRate = 1_000_000
)

// text reads a name.
func (t *table) text(column string) string {
	text := t.field(column)
	if !printable(text) {
		t.fail(column, "1 to 253 bytes of printable text without spaces around it")
	}
	return text
}

// textOr reads a name that may be empty, or whose column may be missing.
func (t *table) textOr(column string) string {
	if t.field(column) == "" {
		return ""
	}
	return t.text(column)
}

// printable reports whether text has 1 to 253 bytes, without spaces around it and without what cannot be printed.
func printable(text string) bool {
	const most = 253 // as for names of Kubernetes objects
	if text == "" || len(text) > most || !utf8.ValidString(text) || strings.TrimSpace(text) != text {
		return false
	}
	return !strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })
}

// whole reads a whole number, also one that a program wrote as a decimal: 20.0.
func (t *table) whole(column string, least, most int64) int64 {
	text := t.field(column)
	if digits, zeros, decimal := strings.Cut(text, "."); decimal && zeros != "" && strings.Trim(zeros, "0") == "" {
		text = digits
	}
	v, err := strconv.ParseInt(text, 10, 64)
	if err != nil || v < least || v > most {
		t.fail(column, fmt.Sprintf("a whole number from %d to %d", least, most))
		return least
	}
	return v
}

// wholeOr reads a whole number that may be empty, or whose column may be missing: then it is zero.
func (t *table) wholeOr(column string, least, most int64) int64 {
	if t.field(column) == "" {
		return 0
	}
	return t.whole(column, least, most)
}

// decimal reads a number that is not negative. The words say the unit: "seconds".
func (t *table) decimal(column string, most int64, words string) float64 {
	text := t.field(column)
	v, err := strconv.ParseFloat(text, 64)
	if err != nil || v > float64(most) || strings.Trim(text, "0123456789.eE+-") != "" || strings.HasPrefix(text, "-") {
		t.fail(column, fmt.Sprintf("a number from 0 to %d (%s)", most, words))
		return 0
	}
	return v
}

// units names the units of time that traces use.
var units = map[time.Duration]string{time.Second: "seconds", time.Millisecond: "milliseconds"}

// time reads a time or a duration in the unit, exact to the nanosecond as far as the digits go.
func (t *table) time(column string, unit time.Duration) time.Duration {
	v := t.decimal(column, maxSeconds*int64(time.Second/unit), units[unit])
	return time.Duration(math.Round(v * float64(unit)))
}

// timeOr reads a time in seconds that may be empty, or whose column may be missing, and says whether it is there.
func (t *table) timeOr(column string) (at time.Duration, known bool) {
	if t.field(column) == "" {
		return 0, false
	}
	return t.time(column, time.Second), true
}

// lasting keeps a measured duration above zero, which stands for an unknown one: what a trace gives as nothing took less
// than its unit, and counts as one unit.
func lasting(d, unit time.Duration) time.Duration {
	if d == 0 {
		return unit
	}
	return d
}

// life reads when a pod came and how long it ran from three columns in seconds, each of which may be empty. A pod without
// a creation was there at time 0. It runs from scheduled_time to deletion_time; without the latter to the end of the
// trace, and how long it would have run is not known if it was created and never scheduled. Unknown durations are 0.
func (t *table) life() (arrive, duration time.Duration) {
	created, hasCreation := t.timeOr("creation_time")
	scheduled, ran := t.timeOr("scheduled_time")
	deleted, ended := t.timeOr("deletion_time")
	start, column := created, "creation_time"
	if ran {
		start, column = scheduled, "scheduled_time"
	}
	if ran && scheduled < created {
		t.fail("scheduled_time", fmt.Sprintf("nothing, or a time from creation_time (%s) on", t.field("creation_time")))
	}
	if ended && deleted < start {
		t.fail("deletion_time", fmt.Sprintf("nothing, or a time from %s (%s) on", column, t.field(column)))
	}
	if !ended || (hasCreation && !ran) {
		return created, 0
	}
	return created, lasting(deleted-start, time.Second)
}

// models reads the GPU models that a pod may use, "A|B": sorted, each once; nil for any.
func (t *table) models(column string) []string {
	text := t.field(column)
	if text == "" {
		return nil
	}
	list := strings.Split(text, "|")
	for _, m := range list {
		if !printable(m) {
			t.fail(column, `names of GPU models with "|" between them, or nothing`)
			return nil
		}
	}
	slices.Sort(list)
	if list = slices.Compact(list); len(list) > vgpu.MaxVariants {
		t.fail(column, fmt.Sprintf("at most %d GPU models", vgpu.MaxVariants))
	}
	return list
}

// room reads CPU and memory in thousandths of a core and MiB. Least is the least of each.
func (t *table) room(least int64) vgpu.Room {
	return vgpu.Room{
		MilliCPU: t.whole("cpu_milli", least, maxMilliCPU),
		Memory:   vgpu.Bytes(t.whole("memory_mib", least, maxMemoryMiB)) * vgpu.MiB,
	}
}
