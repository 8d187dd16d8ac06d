package command

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tandem-gpu/tandem/internal/kubectl/proposal"
	"github.com/tandem-gpu/tandem/internal/kubectl/wording"
	"github.com/tandem-gpu/tandem/pkg/outlook"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// shownPods is how many pods each list of simulate has without -o wide.
const shownPods = 20

// simulation is the command simulate, as the flags say.
type simulation struct {
	*options
	as                   form
	length               time.Duration
	limit                int
	fromCluster          bool
	config, present, add string
}

// simulated is the answer of simulate for programs.
type simulated struct {
	*outlook.Answer
	// Notes name what is in the files of the change and makes no difference to a simulation.
	Notes []string `json:"notes"`
}

func (o *options) simulateCommand() *cobra.Command {
	s := &simulation{options: o}
	c := &cobra.Command{
		Use:   "simulate",
		Short: "Simulates what happens next in the cluster, with other rules or more pods, and shows what would change",
		Long: `Simulates what happens next in the cluster, with other rules or more pods, and shows what would change. Nothing changes in the cluster.

The simulator starts from the snapshot: pods on nodes stay until the end that they declare, and pods that wait are tried in the order of
the queue, by the scheduler's own decisions. --config has other arguments of Tandem's plugins, --add has pods in addition: Pods, Jobs and
PodGroups. Without either the answer is what comes as things stand. docs/guides/kubectl.md says what a simulation does not know.`,
		Example: `  kubectl tandem simulate --for 8h
  kubectl tandem simulate --add job.yaml
  kubectl tandem simulate --config new.yaml --present old.yaml --snapshot now.json -o wide`,
		Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := s.checkFlags(); err != nil {
				return err
			}
			line := o.line()
			defer line.Close()
			snap, _, err := o.read(c.Context(), line)
			if err != nil {
				return err
			}
			line.Step("playing the cluster on")
			answer, err := s.answer(snap, line.Part)
			line.Close()
			if err != nil {
				return err
			}
			return s.write(snap, answer)
		},
	}
	s.as.addTo(c)
	f := c.Flags()
	f.DurationVar(&s.length, "for", time.Hour, "`time` to play, as 30m or 8h")
	f.BoolVar(&s.fromCluster, "from-cluster", false, "ask the scheduler, as without --snapshot")
	f.StringVar(&s.config, "config", "", "`file` with a KubeSchedulerConfiguration to try")
	f.StringVar(&s.present, "present", "", "`file` with the KubeSchedulerConfiguration of the scheduler, which a snapshot does not have; without it the defaults")
	f.StringVar(&s.add, "add", "", "`file` with Pods, Jobs and PodGroups to add")
	f.IntVar(&s.limit, "limit", 16, "show so many GPUs at most in each map; 0 shows all")
	c.AddCommand(o.simulateFleetCommand())
	return c
}

func (s *simulation) checkFlags() error {
	switch {
	case s.length <= 0 || s.length > outlook.Longest:
		return usage("--for: %v, legal is more than 0s, up to %v", s.length, outlook.Longest)
	case s.limit < 0:
		return usage("--limit: %d, legal is 0 or more", s.limit)
	case s.fromCluster && s.file != "":
		return usage("--from-cluster and --snapshot are two sources, legal is one")
	}
	return s.check()
}

// answer plays the snapshot.
func (s *simulation) answer(snap *snapshot.Snapshot, progress func(done, of int)) (*simulated, error) {
	out := &simulated{Notes: []string{}}
	present, notes, err := rulesOf("--present", s.present)
	if err != nil {
		return nil, err
	}
	out.Notes = append(out.Notes, notes...)
	change := &outlook.Change{Progress: progress}
	if s.config != "" {
		if change.Rules, notes, err = rulesOf("--config", s.config); err != nil {
			return nil, err
		}
		out.Notes = append(out.Notes, notes...)
	}
	if s.add != "" {
		added, err := s.added(snap)
		if err != nil {
			return nil, err
		}
		change.Pods, change.Gangs, out.Notes = added.Pods, added.Gangs, append(out.Notes, added.Notes...)
	}
	slices.Sort(out.Notes)
	out.Notes = slices.Compact(out.Notes)
	out.Answer, err = outlook.Compare(snap, *present, change, s.length)
	return out, err
}

// rulesOf reads the rules of a file, the defaults without one.
func rulesOf(flag, file string) (*outlook.Rules, []string, error) {
	if file == "" {
		rules, err := proposal.Defaults()
		return rules, nil, err
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", flag, err)
	}
	rules, notes, err := proposal.Rules(raw)
	if err != nil {
		return nil, nil, usage("%s: %s: %w", flag, file, err)
	}
	return rules, notes, nil
}

// added reads the pods in addition. Their gangs are new.
func (s *simulation) added(snap *snapshot.Snapshot) (*proposal.Added, error) {
	raw, err := os.ReadFile(s.add)
	if err != nil {
		return nil, fmt.Errorf("--add: %w", err)
	}
	added, err := proposal.Pods(raw, s.namespace(), snap.At)
	if err != nil {
		return nil, usage("--add: %s: %w", s.add, err)
	}
	for i := range added.Gangs {
		g := added.Gangs[i].GangName
		if slices.ContainsFunc(snap.Gangs, func(other snapshot.Gang) bool { return other.GangName == g }) {
			return nil, usage("--add: %s: the gang %s/%s is in the snapshot already, legal is another name", s.add, g.Namespace, g.Name)
		}
	}
	return added, nil
}

// write writes the answer.
func (s *simulation) write(snap *snapshot.Snapshot, a *simulated) error {
	if s.as.forPrograms() {
		return s.as.write(s.streams.Out, a)
	}
	most := shownPods
	if s.as == wide {
		most = 0
	}
	var parts []string
	for _, part := range []string{
		wording.Outlook(a.Answer) + "\n", wording.Figures(a.Answer), wording.Fates(a.Answer, most), preempted(a.Answer, most), wording.Gaps(a.Answer, a.Notes),
	} {
		if part != "" {
			parts = append(parts, part)
		}
	}
	maps, err := s.maps(snap, a.Answer)
	if err != nil {
		return err
	}
	_, err = fmt.Fprint(s.streams.Out, strings.Join(append(parts, maps), "\n"))
	return err
}

// preempted writes who leaves for whom.
func preempted(a *outlook.Answer, most int) string {
	text := ""
	if list := wording.Preempted(a.AsIs, most); list != "" {
		text += "Preempted as things stand\n" + list
	}
	if a.Changed != nil {
		if list := wording.Preempted(a.Changed, most); list != "" {
			text += "Preempted with the change\n" + list
		}
	}
	return text
}

// maps draws the nodes that differ twice: now and at the end, or at the end without and with the change.
func (s *simulation) maps(now *snapshot.Snapshot, a *outlook.Answer) (string, error) {
	first, second, titles := now, a.AsIs.After, [2]string{"now", "at the end"}
	if a.Changed != nil {
		first, second, titles = a.AsIs.After, a.Changed.After, [2]string{"at the end as things stand", "at the end with the change"}
	}
	before, err := first.Map()
	if err != nil {
		return "", fmt.Errorf("draw map: %w", err)
	}
	after, err := second.Map()
	if err != nil {
		return "", fmt.Errorf("draw map: %w", err)
	}
	if len(before.Nodes) != len(after.Nodes) {
		return "", errors.New("draw map: the nodes are not those of the snapshot")
	}
	var left, right []vgpu.MapNode
	for i := range before.Nodes {
		if !reflect.DeepEqual(before.Nodes[i].Devices, after.Nodes[i].Devices) {
			left, right = append(left, before.Nodes[i]), append(right, after.Nodes[i])
		}
	}
	if len(left) == 0 {
		return fmt.Sprintf("All GPUs are the same %s and %s.\n", titles[0], titles[1]), nil
	}
	return s.drawing(titles[0], left) + "\n" + s.drawing(titles[1], right), nil
}

// drawing draws nodes, with no more GPUs than the limit.
func (s *simulation) drawing(title string, nodes []vgpu.MapNode) string {
	var b strings.Builder
	p := (&filter{limit: s.limit}).page(vgpu.Map{Nodes: nodes})
	fmt.Fprintf(&b, "GPUs of the nodes that differ, %s\n", title)
	for i := range p.Nodes {
		n := readable(p.Nodes[i])
		s.paint().Node(&b, &n)
	}
	if p.GPUsLeft > 0 {
		fmt.Fprintf(&b, "\n%s more: --limit 0 shows all\n", wording.Count(p.GPUsLeft, "GPU"))
	}
	return b.String()
}
