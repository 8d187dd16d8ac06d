package command

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tandem-gpu/tandem/internal/kubectl/connection"
	"github.com/tandem-gpu/tandem/internal/kubectl/wording"
	"github.com/tandem-gpu/tandem/internal/spelling"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/pkg/why"
)

// found is the answer of why: of pods that wait, and of pods that have their devices.
type found struct {
	Waits []*why.Answer `json:"waits"`
	Runs  []running     `json:"runs"`
	// Overbooked are pods on a node whose shares do not fit there.
	Overbooked []overbooked `json:"overbooked,omitempty"`
}

// running is a pod with devices.
type running struct {
	snapshot.Pod
	Node string `json:"node"`
	// NotStarted is what keeps a container of the pod from running, by the kubelet of the node: "" for nothing, and where it is not known.
	NotStarted string `json:"notStarted,omitempty"`
}

// overbooked is a pod whose share does not fit on its node.
type overbooked struct {
	snapshot.Overbooked
	Node string `json:"node"`
}

// mostAsked bounds the pods with devices of which the API server is asked whether they run: more make a question about a large job slow.
const mostAsked = 16

func (o *options) whyCommand() *cobra.Command {
	var as form
	c := &cobra.Command{
		Use:   "why POD|gang/NAME|job/NAME",
		Short: "Says why a pod or a gang waits, and what would help",
		Long: `Says why a pod or a gang waits, and what would help.

First comes one sentence, then the nodes by what refuses the pod there and the nearest miss, then changes after which it would fit:
each has been tried on the snapshot with the scheduler's own decisions. job/NAME stands for the pods of a Job, a
JobSet, a PyTorchJob or another job; of pods without an owner in the snapshot for those whose names begin with NAME-. About a pod that the snapshot lacks, the API server is asked.`,
		Example: `  kubectl tandem why train-0 -n team-a
  kubectl tandem why gang/train -o wide
  kubectl tandem why job/night --snapshot now.json -o json`,
		Args: func(c *cobra.Command, args []string) error {
			if len(args) != 1 {
				return usage("why wants one POD, gang/NAME or job/NAME, has %d arguments; see %s --help", len(args), c.CommandPath())
			}
			return nil
		},
		ValidArgsFunction: o.completePods,
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			line := o.line()
			defer line.Close()
			s, _, err := o.read(c.Context(), line)
			if err != nil {
				return err
			}
			line.Step("trying what would help")
			f, err := find(s, o.namespace(), args[0])
			if err == nil {
				o.lookAtContainers(c.Context(), f.Runs)
			}
			line.Close()
			if err != nil {
				return o.lookUp(c.Context(), err)
			}
			return o.writeFound(s, f, as)
		},
	}
	as.addTo(c)
	return c
}

// completePods proposes the pods and gangs that wait, of a snapshot in a file: the shell waits for the answer, so no scheduler is
// asked.
func (o *options) completePods(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 || o.file == "" || o.file == "-" {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	line := o.line()
	defer line.Close()
	s, _, err := o.read(c.Context(), line)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return known(s, o.namespace()), cobra.ShellCompDirectiveNoFileComp
}

// find answers a question about a pod, a gang or a job.
func find(s *snapshot.Snapshot, namespace, what string) (*found, error) {
	kind, name, ok := strings.Cut(what, "/")
	if !ok {
		kind, name = "pod", what
	}
	if name == "" {
		return nil, usage("%q names nothing: legal are POD, pod/NAME, gang/NAME and job/NAME", what)
	}
	matches := func(p *asked) bool { return p.Namespace == namespace && p.Name.Name == name }
	switch kind {
	case "pod", "pods", "po":
		kind = "pod"
	case "gang", "podgroup":
		matches = func(p *asked) bool { return p.gang != nil && p.gang.Namespace == namespace && p.gang.Name == name }
	case "job":
		matches = func(p *asked) bool { return p.Namespace == namespace && p.ofJob(name) }
	default:
		return nil, usage("%q: legal are POD, pod/NAME, gang/NAME and job/NAME", what)
	}
	f, err := search(s, matches)
	if err != nil {
		return nil, err
	}
	if len(f.Waits)+len(f.Runs)+len(f.Overbooked) == 0 {
		return nil, missing(s, namespace, kind, name)
	}
	return f, nil
}

// asked is what a question may name a pod by.
type asked struct {
	snapshot.Name
	gang   *snapshot.GangName
	owners []string
}

// ofJob reports whether a pod belongs to a job of a kind whose name ends in Job, or to a JobSet. A pod of which the snapshot has no owner
// is known by its name, which begins with the job's.
func (p *asked) ofJob(name string) bool {
	if len(p.owners) == 0 {
		return strings.HasPrefix(p.Name.Name, name+"-")
	}
	return slices.ContainsFunc(p.owners, func(owner string) bool {
		kind, of, _ := strings.Cut(owner, "/")
		return of == name && (strings.HasSuffix(kind, "Job") || kind == "JobSet")
	})
}

// search returns the answers about the pods that match. Members of one gang have one answer.
func search(s *snapshot.Snapshot, matches func(*asked) bool) (*found, error) {
	f, gangs := &found{Waits: []*why.Answer{}, Runs: []running{}}, map[snapshot.GangName]bool{}
	for i := range s.Nodes {
		for k := range s.Nodes[i].Pods {
			if p := &s.Nodes[i].Pods[k]; matches(&asked{p.Name, p.Gang, p.Owners}) {
				f.Runs = append(f.Runs, running{Pod: *p, Node: s.Nodes[i].Name})
			}
		}
	}
	for i := range s.Nodes {
		for _, o := range s.Nodes[i].Overbooked {
			if matches(&asked{Name: o.Name}) {
				f.Overbooked = append(f.Overbooked, overbooked{o, s.Nodes[i].Name})
			}
		}
	}
	first := make([]*snapshot.Pending, 0, len(s.Pending)) // of the answers
	for i := range s.Pending {
		p := &s.Pending[i]
		if !matches(&asked{p.Name, p.Gang, p.Owners}) || p.Gang != nil && gangs[*p.Gang] {
			continue
		}
		if at := slices.IndexFunc(first, func(o *snapshot.Pending) bool { return why.Alike(s, o, p) }); at >= 0 {
			f.Waits[at].Alike = append(f.Waits[at].Alike, p.Name)
			continue
		}
		var a *why.Answer
		var err error
		if p.Gang != nil {
			gangs[*p.Gang] = true
			a, err = why.Gang(s, *p.Gang)
		} else {
			a, err = why.Pod(s, p.UID)
		}
		if err != nil {
			return nil, err
		}
		f.Waits, first = append(f.Waits, a), append(first, p)
	}
	slices.SortFunc(f.Runs, func(a, b running) int { return cmp.Or(cmp.Compare(a.Path(), b.Path()), cmp.Compare(a.UID, b.UID)) })
	slices.SortFunc(f.Waits, func(a, b *why.Answer) int { return cmp.Compare(a.Pods[0].Path(), b.Pods[0].Path()) })
	return f, nil
}

// missing is the error for something that the snapshot does not have.
func missing(s *snapshot.Snapshot, namespace, kind, name string) error {
	text := fmt.Sprintf("the snapshot has no %s %s in the namespace %s: it does not exist, has ended, asks for no vGPUs, or has another scheduler", kind, name, namespace)
	if s.PendingLeftOut > 0 {
		text += fmt.Sprintf("; %s that wait are left out of the snapshot", wording.Count(s.PendingLeftOut, "pod"))
	}
	if s.Redacted {
		text += "; you may not see the pods of all namespaces"
	}
	names := known(s, namespace)
	for i := range names {
		names[i] = strings.TrimPrefix(names[i], kind+"/")
	}
	if near, ok := spelling.Nearest(name, names); ok {
		text += fmt.Sprintf("; there is %s", near)
	}
	return &missingError{text, kind, namespace, name, wording.Shown{LeftOut: s.PendingLeftOut, Redacted: s.Redacted}}
}

// missingError is about something that the snapshot does not have.
type missingError struct {
	text, kind, namespace, name string
	shown                       wording.Shown
}

func (e *missingError) Error() string { return e.text }

// lookUp returns what the API server knows about a pod that the snapshot does not have. It returns the error as it is where the snapshot
// is from a file, and where the caller may not read the pod.
func (o *options) lookUp(ctx context.Context, err error) error {
	var missing *missingError
	if !errors.As(err, &missing) || missing.kind != "pod" || o.file != "" {
		return err
	}
	config, unread := o.kubeconfigs().ClientConfig()
	if unread != nil {
		return err
	}
	pod, unread := connection.Pod(ctx, config, missing.namespace, missing.name)
	switch {
	case apierrors.IsNotFound(unread):
		return fmt.Errorf("there is no pod %s in the namespace %s: its name is another, or its owner did not create it or has parked it", missing.name, missing.namespace)
	case unread != nil:
		return err
	}
	return errors.New(strings.TrimSuffix(wording.Absent(pod, o.scheduler.Name, missing.shown), "."))
}

// lookAtContainers asks the API server for pods that have devices whether their containers run, where the snapshot is not from a file and
// the caller may read the pods.
func (o *options) lookAtContainers(ctx context.Context, runs []running) {
	if o.file != "" || len(runs) == 0 || len(runs) > mostAsked {
		return
	}
	config, err := o.kubeconfigs().ClientConfig()
	if err != nil {
		return
	}
	for i := range runs {
		pod, err := connection.Pod(ctx, config, runs[i].Namespace, runs[i].Name.Name)
		if err != nil {
			return // what holds for one holds for all: no connection, or no right
		}
		if vgpu.UID(pod.UID) == runs[i].UID {
			runs[i].NotStarted = wording.NotStarted(pod)
		}
	}
}

// known returns the names of the pods and gangs of a namespace, as why takes them.
func known(s *snapshot.Snapshot, namespace string) []string {
	var all []string
	add := func(n *snapshot.Name, g *snapshot.GangName) {
		if n.Namespace == namespace {
			all = append(all, n.Name)
		}
		if g != nil && g.Namespace == namespace {
			all = append(all, "gang/"+g.Name)
		}
	}
	for i := range s.Pending {
		add(&s.Pending[i].Name, s.Pending[i].Gang)
	}
	for i := range s.Nodes {
		for k := range s.Nodes[i].Pods {
			add(&s.Nodes[i].Pods[k].Name, s.Nodes[i].Pods[k].Gang)
		}
		for k := range s.Nodes[i].Overbooked {
			add(&s.Nodes[i].Overbooked[k].Name, nil)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func (o *options) writeFound(s *snapshot.Snapshot, f *found, as form) error {
	if as.forPrograms() {
		return as.write(o.streams.Out, f)
	}
	parts := make([]string, 0, len(f.Waits)+len(f.Runs))
	for _, a := range f.Waits {
		text := wording.Answer(a, s.At, as == wide)
		if as == wide {
			text += said(s, a.Pods[0].UID)
		}
		parts = append(parts, text)
	}
	for i := range f.Runs {
		parts = append(parts, wording.Runs(&f.Runs[i].Pod, f.Runs[i].Node, f.Runs[i].NotStarted, s.At))
	}
	for i := range f.Overbooked {
		parts = append(parts, wording.Overbooked(&f.Overbooked[i].Overbooked, f.Overbooked[i].Node))
	}
	_, err := fmt.Fprint(o.streams.Out, strings.Join(parts, "\n"))
	return err
}

// said returns what the scheduler wrote into the condition of a pod.
func said(s *snapshot.Snapshot, uid vgpu.UID) string {
	for i := range s.Pending {
		if p := &s.Pending[i]; p.UID == uid && p.Refused != nil && p.Refused.Message != "" {
			return "\nThe scheduler said at the last attempt: " + p.Refused.Message + "\n"
		}
	}
	return ""
}
