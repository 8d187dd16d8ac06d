package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Map is the picture of a cluster at one moment; its JSON is that of vgpu.Map.
type Map struct{ vgpu.Map }

// pictureWidth is the width of a device in characters.
const pictureWidth = 60

// Table draws a line per device with the slices to scale, and lists the pods that wait with the reasons.
func (m Map) Table(w io.Writer) error {
	var b strings.Builder
	at := time.Duration(m.AtSeconds * float64(time.Second))
	fmt.Fprintf(&b, "after %v\n", at)
	for i := range m.Nodes {
		m.node(&b, &m.Nodes[i])
	}
	fmt.Fprintf(&b, "\nwaiting: %d\n", len(m.Pending))
	for _, p := range m.Pending {
		since := time.Duration(p.SinceSeconds * float64(time.Second))
		who := p.Pod
		if p.Members > 0 {
			who = fmt.Sprintf("gang %s of %d", p.Pod, p.Members)
		}
		fmt.Fprintf(&b, "  %s, since %v: %s\n", who, since, p.Reason)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (m Map) node(b *strings.Builder, n *vgpu.MapNode) {
	cores := strconv.FormatFloat(float64(n.FreeMilliCPU)/1000, 'f', -1, 64)
	fmt.Fprintf(b, "\n%s  %s cores and %v of memory free\n", n.Name, cores, n.FreeMemory)
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
			sick = "  sick"
		}
		fmt.Fprintf(b, "  %-*s  %-*s  %s  %*s%s\n", name, d.Name, model, d.Model, picture(d), used, taken(d), sick)
	}
}

// taken writes how many slots of the device have an owner: "6/10".
func taken(d *vgpu.MapDevice) string {
	sum := vgpu.Slots(0)
	for _, s := range d.Slices {
		sum += s.To - s.From
	}
	return fmt.Sprintf("%d/%d", sum, d.Slots)
}

// picture draws the slices of a device side by side, as wide as they are large: "│train │nb │ │". A slice too narrow
// for a character is only its border; the part beyond the device is missing.
func picture(d *vgpu.MapDevice) string {
	var b strings.Builder
	column := func(s vgpu.Slots) int { return int(min(s, d.Slots) * pictureWidth / d.Slots) }
	cell := func(text, fill string, from, to vgpu.Slots) {
		width := column(to) - column(from)
		if width < 1 {
			return
		}
		b.WriteString("│" + pad(text, fill, width-1))
	}
	end := vgpu.Slots(0)
	for _, s := range d.Slices {
		text := s.Pod
		if s.Held {
			text = "(" + text + ")"
		}
		cell(text, " ", s.From, s.To)
		end = s.To
	}
	if end < d.Slots {
		cell("", "·", end, d.Slots)
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
