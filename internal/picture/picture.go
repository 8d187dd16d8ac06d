// Package picture draws the nodes of a vgpu.Map as text: a line for each device, with the slices of the pods side by side and to
// scale.
package picture

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Width is the width of a device in characters.
const Width = 60

// Kind is what a part of a picture shows.
type Kind int

// Kinds of parts.
const (
	Title Kind = iota
	Taken
	Held
	Free
	Sick
)

// Paint colours a part of a picture; its result is as wide as the text. nil colours nothing.
type Paint func(k Kind, text string) string

// Node draws a node with its devices. Devices without slots have an empty picture.
func (p Paint) Node(b *strings.Builder, n *vgpu.MapNode) {
	cores := strconv.FormatFloat(float64(n.FreeMilliCPU)/1000, 'f', -1, 64)
	fmt.Fprintf(b, "\n%s  %s cores and %v of memory free", p.on(Title, n.Name), cores, n.FreeMemory)
	if n.Problem != "" {
		b.WriteString("  " + p.on(Sick, n.Problem))
	}
	b.WriteString("\n")
	name, model, used := 0, 0, 0
	for i := range n.Devices {
		d := &n.Devices[i]
		name, model = max(name, len(d.Name)), max(model, len(d.Model))
		used = max(used, len(taken(d)))
	}
	for i := range n.Devices {
		d := &n.Devices[i]
		sick := ""
		if !d.Healthy {
			sick = "  " + p.on(Sick, state(d))
		}
		fmt.Fprintf(b, "  %-*s  %-*s  %s  %*s%s\n", name, d.Name, model, d.Model, p.device(d), used, taken(d), sick)
	}
}

// cordoned is how the reason of a device begins that an administrator has switched off: such a device has no fault.
const cordoned = "Cordoned"

// state says why a device takes no work.
func state(d *vgpu.MapDevice) string {
	if note, is := strings.CutPrefix(d.Reason, cordoned); is {
		return "cordoned" + note
	}
	if strings.HasPrefix(d.Reason, "overbooked") {
		return d.Reason
	}
	return strings.TrimRight("sick: "+d.Reason, ": ")
}

func (p Paint) on(k Kind, text string) string {
	if p == nil {
		return text
	}
	return p(k, text)
}

// taken writes how many slots of the device have an owner: "6/10".
func taken(d *vgpu.MapDevice) string {
	sum := vgpu.Slots(0)
	for _, s := range d.Slices {
		sum += s.To - s.From
	}
	return fmt.Sprintf("%d/%d", sum, d.Slots)
}

// device draws the slices of a device side by side, as wide as they are large: "│train │nb │ │". A slice too narrow
// for a character is only its border; the part beyond the device is missing.
func (p Paint) device(d *vgpu.MapDevice) string {
	var b strings.Builder
	column := func(s vgpu.Slots) int { return int(min(s, d.Slots) * Width / d.Slots) }
	cell := func(k Kind, text, fill string, from, to vgpu.Slots) {
		width := column(to) - column(from)
		if width < 1 {
			return
		}
		b.WriteString("│" + p.on(k, pad(text, fill, width-1)))
	}
	end := vgpu.Slots(0)
	for _, s := range d.Slices {
		kind, text := Taken, s.Pod
		if s.Held {
			kind, text = Held, "("+text+")"
		}
		cell(kind, text, " ", s.From, s.To)
		end = s.To
	}
	if end < d.Slots {
		cell(Free, "", "·", end, d.Slots)
	}
	return b.String() + "│"
}

// pad cuts or fills text to a width.
func pad(text, fill string, width int) string {
	if n := utf8.RuneCountInString(text); n <= width {
		return text + strings.Repeat(fill, width-n)
	}
	runes := []rune(text)
	if width == 0 {
		return ""
	}
	return string(runes[:width-1]) + "…"
}
