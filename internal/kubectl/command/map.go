package command

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tandem-gpu/tandem/internal/kubectl/wording"
	"github.com/tandem-gpu/tandem/internal/picture"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// page is a part of the map: its JSON is that of vgpu.Map, with what is left out.
type page struct {
	vgpu.Map
	// GPUsLeft are those that the filters let through, behind the shown ones. PodsLeft are those that wait and are not shown.
	GPUsLeft int `json:"gpus_left"`
	PodsLeft int `json:"pods_left"`

	shown, filtered int
}

func (o *options) mapCommand() *cobra.Command {
	var as form
	f := &filter{}
	c := &cobra.Command{
		Use:   "map",
		Short: "Shows who has which part of which GPU, and who waits",
		Long: `Shows who has which part of which GPU, and who waits.

Each line is one GPU, drawn to scale: the pods on it side by side, in parentheses room that the scheduler keeps for a pod, and dots
where it is free. Filters narrow it down: a GPU is shown where all of them let it through.`,
		Example: `  kubectl tandem map
  kubectl tandem map --only free --model NVIDIA-A100-SXM4-40GB
  kubectl tandem map --node 'gpu-1*' -n team-a -o wide`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			err := o.check()
			if err == nil {
				err = f.check()
			}
			if err != nil {
				return err
			}
			f.namespace = ""
			if c.Flags().Changed("namespace") {
				f.namespace = o.overrides.Context.Namespace
			}
			line := o.line()
			s, _, err := o.read(c.Context(), line)
			line.Close()
			if err != nil {
				return err
			}
			return o.writeMap(s, f, as)
		},
	}
	as.addTo(c)
	c.Flags().StringSliceVar(&f.nodes, "node", nil, "`pattern` of names of nodes, such as gpu-1*; several with commas")
	c.Flags().StringSliceVar(&f.models, "model", nil, "`name` of a GPU model; several with commas")
	c.Flags().StringVar(&f.only, "only", "", "GPUs that are so: "+strings.Join(states, ", "))
	c.Flags().IntVar(&f.limit, "limit", 64, "show so many GPUs at most, and as many pods that wait; 0 shows all")
	c.Flags().IntVar(&f.skip, "skip", 0, "leave out so many GPUs before the first")
	_ = c.RegisterFlagCompletionFunc("only", cobra.FixedCompletions(states, cobra.ShellCompDirectiveNoFileComp)) // fails without the flag only
	return c
}

func (o *options) writeMap(s *snapshot.Snapshot, f *filter, as form) error {
	m, err := s.Map()
	if err != nil {
		return fmt.Errorf("draw map: %w", err)
	}
	p := f.page(m)
	if as.forPrograms() {
		return as.write(o.streams.Out, p)
	}
	var b strings.Builder
	p.draw(&b, o.paint(), as == wide, f)
	_, err = fmt.Fprint(o.streams.Out, b.String())
	return err
}

// states are the values of --only.
var states = []string{"free", "sick", "held"}

// filter says which GPUs are shown.
type filter struct {
	nodes, models   []string
	namespace, only string
	limit, skip     int
}

func (f *filter) check() error {
	for _, n := range f.nodes {
		if _, err := path.Match(n, ""); err != nil {
			return usage("--node: %q, legal are names in which * stands for any letters, ? for one, and [ab] for one of a few", n)
		}
	}
	switch {
	case f.only != "" && !slices.Contains(states, f.only):
		return usage("--only: %q, legal are %s", f.only, strings.Join(states, ", "))
	case f.limit < 0:
		return usage("--limit: %d, legal is 0 or more", f.limit)
	case f.skip < 0:
		return usage("--skip: %d, legal is 0 or more", f.skip)
	}
	return nil
}

// page returns the part of the map that the filter lets through.
func (f *filter) page(m vgpu.Map) *page {
	p := &page{Map: vgpu.Map{AtSeconds: m.AtSeconds, Nodes: []vgpu.MapNode{}, Pending: []vgpu.MapPending{}}}
	for _, n := range m.Nodes {
		if !f.onNode(n.Name) {
			continue
		}
		all := n.Devices
		n.Devices = []vgpu.MapDevice{}
		for i := range all {
			if !f.lets(&n, &all[i]) {
				continue
			}
			p.filtered++
			switch {
			case p.filtered <= f.skip:
			case f.limit > 0 && p.shown == f.limit:
				p.GPUsLeft++
			default:
				p.shown++
				n.Devices = append(n.Devices, all[i])
			}
		}
		if len(n.Devices) > 0 {
			p.Nodes = append(p.Nodes, n)
		}
	}
	for _, w := range m.Pending {
		switch {
		case f.namespace != "" && namespaceOf(w.Pod) != f.namespace:
		case f.limit > 0 && len(p.Pending) == f.limit:
			p.PodsLeft++
		default:
			p.Pending = append(p.Pending, w)
		}
	}
	return p
}

func (f *filter) onNode(name string) bool {
	return len(f.nodes) == 0 || slices.ContainsFunc(f.nodes, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}

// lets reports whether the filter lets a device through.
func (f *filter) lets(n *vgpu.MapNode, d *vgpu.MapDevice) bool {
	if len(f.models) > 0 && !slices.Contains(f.models, d.Model) {
		return false
	}
	if f.namespace != "" && !slices.ContainsFunc(d.Slices, func(s vgpu.MapSlice) bool { return namespaceOf(s.Pod) == f.namespace }) {
		return false
	}
	switch f.only {
	case "free":
		return d.Healthy && n.Problem == "" && (len(d.Slices) == 0 || d.Slices[len(d.Slices)-1].To < d.Slots)
	case "sick":
		return !d.Healthy
	case "held":
		return slices.ContainsFunc(d.Slices, func(s vgpu.MapSlice) bool { return s.Held })
	}
	return true
}

func namespaceOf(pod string) string {
	return snapshot.NameOf(pod, "").Namespace
}

// draw writes the page for people.
func (p *page) draw(b *strings.Builder, paint picture.Paint, all bool, f *filter) {
	at := time.Unix(int64(p.AtSeconds), 0).UTC()
	fmt.Fprintf(b, "state since %s\n", at.Format(time.RFC3339))
	shared := sharedNamespace(p.Nodes)
	if shared != "" {
		fmt.Fprintf(b, "all pods on these GPUs are of the namespace %s\n", shared)
	}
	for i := range p.Nodes {
		n := readable(p.Nodes[i])
		short := n
		if shared != "" {
			short = without(n, shared+"/")
		}
		paint.Node(b, &short)
		if all {
			list(b, &n)
		}
	}
	switch {
	case p.filtered == 0:
		b.WriteString("\nno GPU is shown: the snapshot has none that passes --node, --model, --namespace and --only together\n")
	case p.shown == 0:
		fmt.Fprintf(b, "\nno GPU is shown: the filters let %d through, and --skip leaves out %d\n", p.filtered, f.skip)
	}
	if p.GPUsLeft > 0 {
		fmt.Fprintf(b, "\n%s more: --skip %d shows the next, --limit 0 all; --node, --namespace, --model and --only narrow them down\n", wording.Count(p.GPUsLeft, "GPU"), f.skip+p.shown)
	}
	fmt.Fprintf(b, "\nwaiting: %d\n", len(p.Pending)+p.PodsLeft)
	for _, w := range p.Pending {
		who := wording.Name(w.Pod)
		if w.Members > 0 {
			who = fmt.Sprintf("gang %s, %s", who, wording.Count(w.Members, "pod"))
		}
		fmt.Fprintln(b, strings.TrimRight(fmt.Sprintf("  %s, for %s: %s", who, age(at, w.SinceSeconds), w.Reason), ": "))
	}
	if p.PodsLeft > 0 {
		fmt.Fprintf(b, "  and %d more\n", p.PodsLeft)
	}
}

// sharedNamespace returns the namespace of all pods on the devices, "" where there are several, one pod alone, or none.
func sharedNamespace(nodes []vgpu.MapNode) string {
	namespaces, pods := map[string]bool{}, 0
	for i := range nodes {
		for k := range nodes[i].Devices {
			for _, s := range nodes[i].Devices[k].Slices {
				namespaces[namespaceOf(s.Pod)] = true
				pods++
			}
		}
	}
	if len(namespaces) != 1 || pods < 2 || namespaces[snapshot.Other] {
		return ""
	}
	return slices.Collect(maps.Keys(namespaces))[0]
}

// without returns a node with the names of pods without a prefix.
func without(n vgpu.MapNode, prefix string) vgpu.MapNode {
	n.Devices = slices.Clone(n.Devices)
	for k := range n.Devices {
		d := &n.Devices[k]
		d.Slices = slices.Clone(d.Slices)
		for j := range d.Slices {
			d.Slices[j].Pod = strings.TrimPrefix(d.Slices[j].Pod, prefix)
		}
	}
	return n
}

// readable returns a node with the names of pods as people are told of them.
func readable(n vgpu.MapNode) vgpu.MapNode {
	n.Devices = slices.Clone(n.Devices)
	for k := range n.Devices {
		d := &n.Devices[k]
		d.Slices = slices.Clone(d.Slices)
		for j := range d.Slices {
			d.Slices[j].Pod = wording.Name(d.Slices[j].Pod)
		}
	}
	return n
}

// age returns how long ago a second was.
func age(at time.Time, seconds float64) string {
	if seconds == 0 {
		return "an unknown time"
	}
	return duration.HumanDuration(max(0, at.Sub(time.Unix(int64(seconds), 0))))
}

// list writes all slices of a node, with their memory.
func list(b *strings.Builder, n *vgpu.MapNode) {
	for i := range n.Devices {
		d := &n.Devices[i]
		for _, s := range d.Slices {
			kept := ""
			if s.Held {
				kept = ", kept for it"
			}
			fmt.Fprintf(b, "    %s  %d of %d slots, %v  %s%s\n", d.Name, s.To-s.From, d.Slots, s.Memory, s.Pod, kept)
		}
	}
}

// escapes are the colours of the parts of a picture.
var escapes = map[picture.Kind]string{
	picture.Title: "\x1b[1m", picture.Taken: "\x1b[36m", picture.Held: "\x1b[33m", picture.Free: "\x1b[2m", picture.Sick: "\x1b[31m",
}

// paint returns the colours, nil for none.
func (o *options) paint() picture.Paint {
	if !o.coloured() {
		return nil
	}
	return func(k picture.Kind, text string) string { return escapes[k] + text + "\x1b[0m" }
}
