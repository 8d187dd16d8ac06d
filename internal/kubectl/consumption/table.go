package consumption

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tandem-gpu/tandem/internal/kubectl/wording"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// column is a column of a table.
type column struct {
	title string
	right bool
	of    func(*Row) string
}

// unknown stands for what nobody has measured, predicted or reported.
const unknown = "-"

// columns are those of a group, with one for pods whose shares do not fit where a row has any.
func columns(rows []Row, by string) []column {
	all := []column{{strings.ToUpper(by), false, func(r *Row) string { return shownAs(r, by) }}}
	switch by {
	case ByPod:
		all = append(all, column{"NODE", false, func(r *Row) string { return wording.Plain(r.Node) }})
	case ByNode, ByDevice:
		all = append(all, column{"GPUS", true, func(r *Row) string { return gpus(r.OfMilli) }})
	}
	if by != ByPod {
		all = append(all, column{"PODS", true, func(r *Row) string { return strconv.Itoa(r.Pods) }})
	}
	all = append(all,
		column{"HELD", true, func(r *Row) string { return gpus(r.HeldMilli) }},
		column{"USED", true, func(r *Row) string { return r.measured(r.UsedMilli) }},
		column{"WASTE", true, func(r *Row) string { return r.measured(r.WasteMilli) }},
		column{"MEMORY", true, memory},
		column{"SLOWDOWN", true, func(r *Row) string {
			if r.SlowdownMilli == 0 {
				return unknown
			}
			return gpus(r.SlowdownMilli)
		}})
	if by == ByPod {
		all = append(all, column{"RATE", true, func(r *Row) string {
			if r.RateMicro == nil {
				return unknown
			}
			return strconv.FormatFloat(float64(*r.RateMicro)/1e6, 'g', 4, 64)
		}})
	}
	if slices.ContainsFunc(rows, func(r Row) bool { return len(r.Overbooked) > 0 }) {
		all = append(all, column{"NOTE", false, func(r *Row) string { return wording.Plain(overbooked(r, by)) }})
	}
	return all
}

// overbooked says which pods of a row do not fit on their devices, "" for none.
func overbooked(r *Row, by string) string {
	switch n := len(r.Overbooked); {
	case n == 0:
		return ""
	case by == ByPod:
		o := &r.Overbooked[0]
		return fmt.Sprintf("its %s of %s do not fit", wording.Count(int(o.Slots), "slot"), strings.Join(o.Devices, ", "))
	case by == ByNamespace && n == 1:
		return "1 pod does not fit"
	case by == ByNamespace:
		return fmt.Sprintf("%d pods do not fit", n)
	}
	names := make([]string, 0, len(r.Overbooked))
	for i := range r.Overbooked {
		names = append(names, wording.Name(r.Overbooked[i].Pod))
	}
	return "overbooked by " + strings.Join(names, ", ")
}

// shownAs is what people read for the name of a row.
func shownAs(r *Row, by string) string {
	switch {
	case by == ByPod:
		return wording.Plain(wording.Name(r.Name))
	case by == ByNamespace && r.Name == snapshot.Other:
		return wording.Hidden
	}
	return wording.Plain(r.Name)
}

// gpus writes thousandths with two digits.
func gpus(milli int64) string { return fmt.Sprintf("%d.%02d", milli/1000, milli%1000/10) }

// measured writes a sum over the measured pods, with a + where other pods are not measured.
func (r *Row) measured(sum *int64) string {
	switch {
	case sum == nil:
		return unknown
	case r.Unmeasured > 0:
		return gpus(*sum) + "+"
	}
	return gpus(*sum)
}

// memory writes what is used of what is held.
func memory(r *Row) string {
	used := unknown
	if r.UsedBytes != nil {
		used = short(*r.UsedBytes)
	}
	return used + "/" + short(r.HeldBytes)
}

// short writes memory with one digit behind the point at most.
func short(b vgpu.Bytes) string {
	for _, unit := range []struct {
		size vgpu.Bytes
		name string
	}{{vgpu.GiB, "Gi"}, {vgpu.MiB, "Mi"}} {
		if b >= unit.size {
			return strings.TrimSuffix(strconv.FormatFloat(float64(b)/float64(unit.size), 'f', 1, 64), ".0") + unit.name
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// Table returns the lines of a table, the titles first. A width above 0 bounds the lines: names are cut then, and what does not fit behind them.
func Table(rows []Row, by string, width int) []string {
	all := columns(rows, by)
	cells := make([][]string, 0, len(rows)+1)
	titles := make([]string, len(all))
	for c := range all {
		titles[c] = all[c].title
	}
	cells = append(cells, titles)
	for i := range rows {
		line := make([]string, len(all))
		for c := range all {
			line[c] = all[c].of(&rows[i])
		}
		cells = append(cells, line)
	}
	widths := make([]int, len(all))
	total := 2 * (len(all) - 1)
	for c := range all {
		for _, line := range cells {
			widths[c] = max(widths[c], utf8.RuneCountInString(line[c]))
		}
		total += widths[c]
	}
	if width > 0 && total > width { // the names are the longest
		widths[0] = max(leastName, widths[0]-(total-width))
	}
	lines := make([]string, 0, len(cells))
	for _, line := range cells {
		lines = append(lines, cut(aligned(line, all, widths), width))
	}
	return lines
}

// leastName is the room for names on narrow terminals.
const leastName = 12

func aligned(line []string, all []column, widths []int) string {
	var b strings.Builder
	for c, text := range line {
		if c > 0 {
			b.WriteString("  ")
		}
		text = cut(text, widths[c])
		pad := strings.Repeat(" ", widths[c]-utf8.RuneCountInString(text))
		if all[c].right {
			b.WriteString(pad + text)
		} else {
			b.WriteString(text + pad)
		}
	}
	return strings.TrimRight(b.String(), " ")
}

// cut shortens a text to so many letters; 0 is no bound.
func cut(text string, width int) string {
	if width <= 0 || utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
}
