package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tandem-gpu/tandem/internal/agent/mps"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/fakekubelet"
)

// example is the container whose whole environment the demo shows.
const example = "nb-bob"

// render returns the picture, the devices of each container, and the refused pods with the reasons.
func (r *report) render(width int, colours bool) string {
	var b strings.Builder
	heading := func(text string) { fmt.Fprintf(&b, "\n%s\n", paint(colours, bold, text)) }
	heading("Who has which part of which GPU")
	b.WriteString(legend(colours))
	b.WriteString(draw(r.gpus(), width, colours))
	heading("What each container was given, as its CDI spec says")
	b.WriteString(r.table())
	heading("The whole of it for " + example)
	b.WriteString(r.whole(example))
	heading("Who was refused, and why")
	for _, a := range r.refused {
		fmt.Fprintf(&b, "  %s (%s)\n", paint(colours, red, a.name), a.why)
		b.WriteString(wrap(a.message, width, "      "))
	}
	b.WriteString("\n")
	return b.String()
}

func legend(colours bool) string {
	if !colours {
		return ""
	}
	kinds := []kind{notebook, training, inference}
	parts := make([]string, 0, len(kinds))
	for _, k := range kinds {
		parts = append(parts, paint(colours, k.colour(), " "+string(k)+" "))
	}
	return "  " + strings.Join(parts, " ") + "\n"
}

// gpus turns the report into the picture's terms: the containers that run now, the greatest first.
func (r *report) gpus() []gpu {
	all := make([]gpu, 0, len(r.devices))
	for _, d := range r.devices {
		g := gpu{node: d.node, name: d.name(), model: d.Model, slots: int(d.Slots)}
		for _, name := range r.order {
			p := r.pods[name]
			for _, c := range p.assignment.Containers {
				if c.Kind == vgpu.Init || !slices.Contains(c.Devices, d.ID) {
					continue
				}
				owner := p.name
				if len(p.containers) > 1 {
					owner += "/" + c.Name
				}
				g.slices = append(g.slices, slice{owner, p.kind, int(c.Share.Slots)})
			}
		}
		slices.SortStableFunc(g.slices, func(a, b slice) int { return cmp.Compare(b.slots, a.slots) })
		all = append(all, g)
	}
	return all
}

// table shows the environment and device files of each container; no part of it comes from the assignment.
func (r *report) table() string {
	var rows [][]string
	rows = append(rows, []string{"CONTAINER", "GPU", "SLOTS", "SM LIMIT", "MEMORY LIMIT", "DEVICE FILES"})
	for _, name := range r.order {
		p := r.pods[name]
		for _, c := range r.containers {
			if c.UID == p.uid {
				rows = append(rows, r.row(p, &c))
			}
		}
	}
	return columns(rows)
}

func (r *report) row(p *observed, c *fakekubelet.Container) []string {
	env := environment(c)
	var gpus []string
	for _, id := range strings.Split(env["NVIDIA_VISIBLE_DEVICES"], ",") {
		if d := r.device(vgpu.DeviceID(id)); d != nil {
			gpus = append(gpus, d.node+"/"+d.name())
		} else {
			gpus = append(gpus, "?"+id)
		}
	}
	slices.Sort(gpus)
	percent, memory := "-", "-"
	if value := env[mps.PercentVariable]; value != "" {
		percent = value + " %"
	}
	if _, value, found := strings.Cut(env[mps.MemoryVariable], "="); found {
		memory = value
	}
	name := p.name + "/" + c.Name
	if c.Kind != "app" {
		name += " (" + c.Kind + ")"
	}
	files := strings.ReplaceAll(strings.Join(gpuFiles(c), " "), "/dev/", "")
	return []string{name, strings.Join(gpus, " "), fmt.Sprint(len(c.Slots)), percent, memory, files}
}

// columns aligns rows.
func columns(rows [][]string) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], len(text))
		}
	}
	var b strings.Builder
	for _, row := range rows {
		line := " "
		for i, text := range row {
			line += " " + fmt.Sprintf("%-*s", widths[i]+1, text)
		}
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	return b.String()
}

func (r *report) whole(name string) string {
	p := r.pods[name]
	if p == nil {
		return ""
	}
	var b strings.Builder
	for _, c := range r.containers {
		if c.UID != p.uid {
			continue
		}
		line := func(what string, values []string) {
			for i, v := range values {
				if i > 0 {
					what = ""
				}
				fmt.Fprintf(&b, "  %-7s  %s\n", what, v)
			}
		}
		line("device", c.CDI)
		line("env", c.Env)
		line("files", c.Devices)
		line("mounts", shorten(c.Mounts, "/"+p.assignment.Node+"/"))
		line("slots", c.Slots)
	}
	return b.String()
}

// shorten cuts off the part of a mount's host path that differs from run to run.
func shorten(mounts []string, after string) []string {
	short := slices.Clone(mounts)
	for i, m := range short {
		if _, rest, found := strings.Cut(m, after); found {
			short[i] = "…/" + rest
		}
	}
	return short
}

// wrap breaks text into indented lines at blanks.
func wrap(text string, width int, indent string) string {
	var b strings.Builder
	line := indent
	for _, word := range strings.Fields(text) {
		if len(line) > len(indent) && len(line)+1+len(word) > width {
			b.WriteString(line + "\n")
			line = indent
		}
		if len(line) > len(indent) {
			line += " "
		}
		line += word
	}
	return b.String() + line + "\n"
}

// summary and more count the checks.
func (r *report) summary() string {
	return fmt.Sprintf("%d pods run, %d containers hold what is assigned to them,", len(r.pods), len(r.containers))
}

func (r *report) more() string {
	return fmt.Sprintf("%d GPUs are within capacity, %d pods were refused with a reason", len(r.devices), len(r.refused))
}
