package wording

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tandem-gpu/tandem/pkg/outlook"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Outlook says in one sentence what comes, or what a change makes of it.
func Outlook(a *outlook.Answer) string {
	if a.Changed == nil {
		return fmt.Sprintf("Within %s, %s.", length(a), comes(a.AsIs))
	}
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d of those that wait now %s %s", n, get(n), what))
		}
	}
	sooner, later, lost, elsewhere := 0, 0, 0, 0
	for i := range a.Differ {
		switch d := &a.Differ[i]; {
		case d.Changed.Node == "":
			lost++
		case d.Sooner():
			sooner++
		case d.Later():
			later++
		default:
			elsewhere++
		}
	}
	more := len(a.Changed.Pods) - len(a.AsIs.Pods)
	if more > 0 {
		got := bound(a.Changed.Pods) - bound(a.AsIs.Pods) + lost - gained(a)
		parts = append(parts, fmt.Sprintf("%d of %s in addition %s a node", got, Count(more, "pod"), get(got)))
	}
	add(sooner, "a node sooner")
	add(later, "a node later")
	add(lost, "no node any more")
	add(elsewhere, "another node")
	if before, after := len(a.AsIs.Preempted), len(a.Changed.Preempted); before != after {
		parts = append(parts, fmt.Sprintf("%s preempted, as things stand %d", are(after), before))
	}
	if len(parts) == 0 {
		return fmt.Sprintf("Within %s the change makes no difference to the pods that wait, and none to who is preempted.", length(a))
	}
	return fmt.Sprintf("With the change, within %s: %s.", length(a), strings.Join(parts, "; "))
}

// gained counts the pods that get a node with the change only.
func gained(a *outlook.Answer) int {
	n := 0
	for i := range a.Differ {
		if a.Differ[i].AsIs.Node == "" && a.Differ[i].Changed.Node != "" {
			n++
		}
	}
	return n
}

func length(a *outlook.Answer) string {
	return duration.HumanDuration(time.Duration(a.Seconds) * time.Second)
}

func get(n int) string {
	if n == 1 {
		return "gets"
	}
	return "get"
}

func are(n int) string {
	if n == 1 {
		return "1 pod is"
	}
	return fmt.Sprintf("%d pods are", n)
}

// comes says what becomes of those that wait.
func comes(o *outlook.Outlook) string {
	text := "no pod waits"
	if all := len(o.Pods); all > 0 {
		text = fmt.Sprintf("%d of %s that wait%s %s a node", bound(o.Pods), Count(all, "pod"), map[bool]string{true: "s"}[all == 1], get(bound(o.Pods)))
	}
	if len(o.Preempted) > 0 {
		text += fmt.Sprintf(", and %s preempted", are(len(o.Preempted)))
	}
	return text
}

func bound(pods []outlook.Wait) int {
	n := 0
	for i := range pods {
		if pods[i].Node != "" {
			n++
		}
	}
	return n
}

// column is one column of the table: the figures of a moment, and what came until then, which is nil in the column of the present.
type column struct {
	head string
	*outlook.Figures
	until *outlook.Outlook
}

// rows are the rows of the table that are about a moment.
var rows = []struct {
	name string
	cell func(c *column) string
}{
	{"GPUs in use", func(c *column) string { return fmt.Sprintf("%d of %d", c.GPUsInUse, c.GPUs) }},
	{"slots free", func(c *column) string { return fmt.Sprintf("%d of %d", c.FreeSlots, c.Slots) }},
	{"GPU memory free", func(c *column) string { return fmt.Sprintf("%s of %s", gib(c.FreeMemoryBytes), gib(c.MemoryBytes)) }},
	{"free GPUs lost to fragments", func(c *column) string {
		return fmt.Sprintf("%.2f", float64(c.FragmentationMilliGPU)/float64(vgpu.WholeGPU))
	}},
	{"largest gang of whole GPUs", func(c *column) string { return fmt.Sprintf("%d, %d on one node", c.LargestGang, c.LargestOnNode) }},
	{"mean slowdown beside others", func(c *column) string { return slowdown(c.Figures) }},
}

// gib writes an amount in GiB, so that two amounts of a cell have one unit.
func gib(b vgpu.Bytes) string {
	return strconv.FormatFloat(math.Round(100*float64(b)/float64(vgpu.GiB))/100, 'f', -1, 64) + "Gi"
}

// counts are the rows of the table that are about what came.
var counts = []struct {
	name string
	cell func(o *outlook.Outlook) string
}{
	{"pods that got a node", func(o *outlook.Outlook) string { return fmt.Sprint(bound(o.Pods)) }},
	{"their mean wait", meanWait},
	{"pods preempted", func(o *outlook.Outlook) string { return fmt.Sprint(len(o.Preempted)) }},
}

// Figures writes the table of the figures: now, and at the end without and with the change.
func Figures(a *outlook.Answer) string {
	columns := []column{{"NOW", &a.Now, nil}, {"AS THINGS STAND", &a.AsIs.Figures, a.AsIs}}
	if a.Changed != nil {
		columns = append(columns, column{"WITH THE CHANGE", &a.Changed.Figures, a.Changed})
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	row := func(name string, cell func(c *column) string) {
		for i := range columns {
			name += "\t" + cell(&columns[i])
		}
		fmt.Fprintln(w, name)
	}
	row("", func(c *column) string { return c.head })
	row("pods that wait", func(c *column) string {
		if c.until == nil {
			return fmt.Sprint(len(a.AsIs.Pods))
		}
		return fmt.Sprint(len(c.until.Pods) - bound(c.until.Pods))
	})
	for _, r := range counts {
		row(r.name, func(c *column) string {
			if c.until == nil {
				return "-"
			}
			return r.cell(c.until)
		})
	}
	for _, r := range rows {
		row(r.name, r.cell)
	}
	w.Flush() //nolint:errcheck // the writer is a strings.Builder
	return b.String()
}

// slowdown writes the mean slowdown, and of how many shares none is known.
func slowdown(f *outlook.Figures) string {
	text := "unknown"
	if f.SlowdownMilli > 0 {
		text = fmt.Sprintf("%.2f", float64(f.SlowdownMilli)/vgpu.NoSlowdown)
	}
	if f.UnknownSlowdowns > 0 {
		text += fmt.Sprintf(", %s not known", Count(f.UnknownSlowdowns, "share"))
	}
	return text
}

// meanWait writes how long the pods that got a node have waited, since they were created.
func meanWait(o *outlook.Outlook) string {
	sum, n := int64(0), int64(0)
	for i := range o.Pods {
		if o.Pods[i].Node != "" {
			sum, n = sum+o.Pods[i].WaitedSeconds, n+1
		}
	}
	if n == 0 {
		return "-"
	}
	return duration.HumanDuration(time.Duration(sum/n) * time.Second)
}

// Fates writes a line for each pod that waits, up to a number, 0 for all.
func Fates(a *outlook.Answer, most int) string {
	last := a.AsIs
	if a.Changed != nil {
		last = a.Changed
	}
	if len(last.Pods) == 0 {
		return ""
	}
	asIs := map[vgpu.UID]outlook.Wait{}
	for _, p := range a.AsIs.Pods {
		asIs[p.UID] = p
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	head := "POD\tAS THINGS STAND"
	if a.Changed != nil {
		head += "\tWITH THE CHANGE"
	}
	fmt.Fprintln(w, head)
	for i := range last.Pods {
		if most > 0 && i == most {
			fmt.Fprintf(w, "and %d more: -o wide shows all\n", len(last.Pods)-most)
			break
		}
		p := &last.Pods[i]
		before, there := asIs[p.UID]
		line := Name(p.Path()) + "\t" + fate(&before)
		if !there {
			line = Name(p.Path()) + "\t-"
		}
		if a.Changed != nil {
			line += "\t" + fate(p)
		}
		fmt.Fprintln(w, line)
	}
	w.Flush() //nolint:errcheck // the writer is a strings.Builder
	return b.String()
}

// fate says where and when a pod gets a node.
func fate(w *outlook.Wait) string {
	if w.Node == "" {
		return "waits"
	}
	return w.Node + " " + after(w.AfterSeconds)
}

func after(seconds int64) string {
	if seconds == 0 {
		return "at once"
	}
	return "after " + duration.HumanDuration(time.Duration(seconds)*time.Second)
}

// Preempted writes a line for each pod that leaves for another, up to a number, 0 for all.
func Preempted(o *outlook.Outlook, most int) string {
	var b strings.Builder
	for i := range o.Preempted {
		if most > 0 && i == most {
			fmt.Fprintf(&b, "  and %d more: -o wide shows all\n", len(o.Preempted)-most)
			break
		}
		p := &o.Preempted[i]
		back := "waits at the end"
		if p.Back != "" {
			back = "has " + p.Back + " at the end"
		}
		who := Name(p.For)
		if gang, ok := strings.CutPrefix(p.For, "gang "); ok {
			who = "gang " + Name(gang)
		}
		fmt.Fprintf(&b, "  %s leaves %s %s for %s, and %s\n", Name(p.Path()), p.Node, after(p.AfterSeconds), who, back)
	}
	return b.String()
}

// gapWords say what each gap is about, and of what things it counts.
var gapWords = map[outlook.Gap]struct{ words, thing string }{
	outlook.Endless:      {"pods on nodes without a declared end run on for the whole time", "pod"},
	outlook.HostUse:      {"the CPU and memory of the host that pods on nodes ask for do not come free when they end", "pod"},
	outlook.Leaving:      {"pods that are being evicted are taken as gone, and wait again", "pod"},
	outlook.LeftOut:      {"pods that wait and are not in the snapshot are not played", "pod"},
	outlook.Malformed:    {"pods whose requests are not legal wait on, and are not played", "pod"},
	outlook.Gated:        {"pods with scheduling gates wait on, and are not played", "pod"},
	outlook.Incomplete:   {"pods that wait for more members of their gangs wait on", "pod"},
	outlook.OtherPlugins: {"pods that selectors, taints or affinities kept off some nodes may get such a node here", "pod"},
	outlook.Topology:     {"topologies that gangs ask for are not simulated", "gang"},
	outlook.ClosedNodes:  {"nodes that take no pods now take none for the whole time", "node"},
	outlook.Slowdowns:    {"how much new neighbours slow each other down is not known", "share"},
	outlook.Names:        {"names are left out of the snapshot", ""},
}

// Gaps says what the answer does not know: of the snapshot, and of the files of the change.
func Gaps(a *outlook.Answer, notes []string) string {
	last := a.AsIs
	if a.Changed != nil {
		last = a.Changed
	}
	lines := make([]string, 0, len(last.Gaps)+len(notes))
	for gap, n := range last.Gaps {
		words := gapWords[gap]
		if words.thing == "" {
			lines = append(lines, words.words)
			continue
		}
		lines = append(lines, fmt.Sprintf("%s (%s)", words.words, Count(n, words.thing)))
	}
	for _, n := range notes {
		lines = append(lines, "the simulation does not go by "+n)
	}
	if len(lines) == 0 {
		return ""
	}
	slices.SortFunc(lines, cmp.Compare[string])
	return "The answer does not know\n  " + strings.Join(lines, "\n  ") + "\n"
}
