// Package wording writes for people what packages why and outlook found out.
package wording

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/pkg/why"
)

// hidden is what a pod is called whose namespace the reader may not see.
const hidden = "another team"

// Name returns how people are told of a pod or a gang, "namespace/name".
func Name(path string) string {
	if n := snapshot.NameOf(path, ""); n.Namespace == snapshot.Other && strings.HasPrefix(n.Name, snapshot.Other+":") {
		return hidden
	}
	return path
}

// Count writes a number of things.
func Count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// reasons are what refuses a pod on a node, in words.
var reasons = map[string]string{
	string(vgpu.IllegalSlots):             "its slots are more than a device's and no multiple of them",
	string(vgpu.MemoryAboveDevice):        "no device has so much memory",
	string(vgpu.ComputeLimitBelowRequest): "its compute limit is below its request there",
	string(vgpu.MemoryLimitBelowRequest):  "its memory limit is below its request there",
	string(vgpu.LimitAboveDevice):         "its limit is above what a device has",
	string(vgpu.TooFewDevices):            "the node has fewer devices than it asks for",
	string(vgpu.NoShareFits):              "no healthy device has the slots, memory or MPS clients free",
	string(vgpu.NoWholeDevices):           "too few healthy devices are wholly free",
	string(vgpu.NoTogether):               "its containers fit alone, and not together",
	string(vgpu.NoAllowedModel):           "no device is of a model that it may use",
	string(vgpu.PromiseBroken):            "a promised slowdown would break",
	string(vgpu.NoDevices):                "the node has no devices",
	why.HostFull:                          "the host has too little CPU or memory free",
	why.Stray:                             "pods without an assignment hold the node's slots",
}

// Reason returns the words for a reason of an answer. The problems of nodes are words already.
func Reason(reason string) string {
	if words, ok := reasons[reason]; ok {
		return words
	}
	return reason
}

// Answer writes why pods wait. The first line is one sentence.
func Answer(a *why.Answer, at time.Time, all bool) string {
	var b strings.Builder
	b.WriteString(sentence(a, at) + "\n")
	if n := len(a.Alike); n > 0 {
		fmt.Fprintf(&b, "%s that ask%s for the same wait%s too: %s.\n", Count(n, "other pod"), third(n), third(n), names(a.Alike))
	}
	refused(&b, a)
	if len(a.Changes) > 0 {
		b.WriteString("\nTried on the snapshot, each alone; " + subject(a) + " would fit\n")
		for i := range a.Changes {
			fmt.Fprintf(&b, "  %s\n", change(a, &a.Changes[i], at))
			if all {
				where(&b, a.Changes[i].Places)
			}
		}
	} else if len(a.Fits) == 0 && !decided(a) {
		b.WriteString("\nNo change that was tried makes it fit: less of the GPU or the host, other models, pods and kept room that go, devices and nodes that recover.\n")
	}
	unknowns(&b, a)
	if help := advice(a); help != "" {
		b.WriteString("\nWhat to change: " + help + "\n")
	}
	return b.String()
}

// subject names who waits.
func subject(a *why.Answer) string {
	if a.Gang != nil {
		return "gang " + Name(a.Gang.Namespace+"/"+a.Gang.Name)
	}
	return Name(a.Pods[0].Path())
}

// refused writes how many nodes refuse the pod for which reason, and the nearest miss.
func refused(b *strings.Builder, a *why.Answer) {
	if len(a.Nodes) > 0 {
		b.WriteString("\nNodes that refuse " + Name(a.Pods[0].Path()) + "\n")
	}
	for _, n := range a.Nodes {
		fmt.Fprintf(b, "  %d: %s\n", n.Nodes, Reason(n.Reason))
	}
	for _, n := range a.Others {
		fmt.Fprintf(b, "  %d at the last attempt: %s\n", n.Nodes, plugin(n.Reason))
	}
	if a.Miss != nil {
		fmt.Fprintf(b, "Nearest miss: %s\n", a.Miss)
	}
	if a.Host != nil {
		fmt.Fprintf(b, "Nearest host: %s\n", host(a.Host))
	}
}

// change writes a change that helps.
func change(a *why.Answer, c *why.Change, at time.Time) string {
	each := ""
	if a.Gang != nil && len(a.Pods) > 1 {
		each = " in each pod"
	}
	switch c.Kind {
	case why.LessMemory:
		return fmt.Sprintf("at %v of GPU memory%s", c.Memory, each)
	case why.FewerSlots:
		return fmt.Sprintf("with %s%s", Count(int(c.Slots), "slot"), each)
	case why.AsGang:
		return fmt.Sprintf("as a gang of %d pods with %s each", c.Members, Count(int(c.Slots), "slot"))
	case why.AnyModel:
		return "if it might use " + strings.Join(c.Models, ", ") + " too, with the slots of its request"
	case why.LessHost:
		return "with " + hostAmounts(c) + " of the host" + each
	case why.NodesReturn:
		return "once " + nodes(c.Nodes)
	case why.FewerMembers:
		return fmt.Sprintf("if %s were enough", Count(c.Members, "member"))
	case why.DevicesRecover:
		text := "once " + devices(c)
		if commands := uncordon(c); commands != "" {
			text += ": " + commands
		}
		return text
	case why.PodsEnd:
		in := duration.HumanDuration(max(0, time.Unix(c.At, 0).Sub(at)))
		return fmt.Sprintf("in %s at the latest, as declared, when %s ended, unless other pods take the room", in, ended(c.Leave))
	case why.PodsLikelyEnd:
		return likely(c, at)
	case why.HoldsEnd:
		return fmt.Sprintf("if the scheduler kept no room for %s%s", leaving(c.Leave), until(c.Leave))
	}
	return fmt.Sprintf("if %s would leave: %s; %s", Count(len(c.Leave), "pod"), leaving(c.Leave), notDone(c.Leave))
}

// most is how many names of pods a line has.
const most = 4

// leaving names pods, and counts those of others.
func leaving(pods []why.Leaving) string {
	var names []string
	others := 0
	for i := range pods {
		if name := Name(pods[i].Path()); name == hidden || len(names) == most {
			others++
		} else {
			names = append(names, name)
		}
	}
	hiddenOnly := slices.IndexFunc(pods, func(l why.Leaving) bool { return Name(l.Path()) != hidden }) < 0
	switch {
	case others > 0 && hiddenOnly:
		names = append(names, fmt.Sprintf("%s of other teams", Count(others, "pod")))
	case others > 0:
		names = append(names, Count(others, "more pod"))
	}
	return strings.Join(names, ", ")
}

// names lists pods.
func names(pods []snapshot.Name) string {
	all := make([]why.Leaving, 0, len(pods))
	for _, p := range pods {
		all = append(all, why.Leaving{Name: p})
	}
	return leaving(all)
}

// third is the ending of a verb whose subject is a number of things.
func third(n int) string {
	if n == 1 {
		return "s"
	}
	return ""
}

// ended names pods that have ended.
func ended(pods []why.Leaving) string {
	if len(pods) == 1 {
		return leaving(pods) + " has"
	}
	return leaving(pods) + " have"
}

// until says by when the present users of kept room have ended, where that is known of all.
func until(holds []why.Leaving) string {
	latest := int64(0)
	for i := range holds {
		if holds[i].Until == 0 {
			return ""
		}
		latest = max(latest, holds[i].Until)
	}
	return ", which waits for others to end by " + time.Unix(latest, 0).UTC().Format(time.RFC3339)
}

// notDone says why the scheduler does not make this room by itself.
func notDone(pods []why.Leaving) string {
	var highest *why.Leaving
	already := true
	for i := range pods {
		already = already && pods[i].Already
		if pods[i].Higher && (highest == nil || pods[i].Priority > highest.Priority) {
			highest = &pods[i]
		}
	}
	who, guarded := "one of them", "lower priorities, so the scheduler does it unless preemption is off, limited, or guards one of them"
	if len(pods) == 1 {
		who, guarded = "it", "its priority is lower, so the scheduler does it unless preemption is off, limited, or guards the pod"
	}
	switch {
	case already:
		return "already being evicted"
	case highest != nil && highest.Equal:
		return fmt.Sprintf("not done because %s has the same priority, %d", who, highest.Priority)
	case highest != nil:
		return fmt.Sprintf("not done because %s has a higher priority, %d", who, highest.Priority)
	}
	return guarded
}

// where lists the places after a change.
func where(b *strings.Builder, places []why.Place) {
	for _, p := range places {
		devices := make([]string, 0, len(p.Devices))
		for _, d := range p.Devices {
			devices = append(devices, string(d))
		}
		fmt.Fprintf(b, "    %s on %s: %s\n", Name(p.Pod), p.Node, strings.Join(devices, ", "))
	}
}

// notKnown says what the snapshot does not have.
var notKnown = map[why.Unknown]string{
	why.Slowdowns:    "how workloads slow each other down: promises of max-slowdown were not tried, and may refuse what is said to fit",
	why.OtherPlugins: "which nodes other plugins refused: what is said to fit may be on one of them",
	why.Topology:     "topologies that gangs require: such a gang may find no room where it is said to fit",
	why.Attempts:     "what the scheduler finds when it tries: CPU and memory of hosts may be out of date",
	why.Guards:       "which pods are protected from eviction, and disruption budgets",
}

func unknowns(b *strings.Builder, a *why.Answer) {
	if len(a.Unknown) > 0 {
		b.WriteString("\nNot tried, or not in the snapshot\n")
	}
	for _, u := range a.Unknown {
		fmt.Fprintf(b, "  %s\n", notKnown[u])
	}
}

// Overbooked writes what is the matter with a pod whose share does not fit on its node.
func Overbooked(o *snapshot.Overbooked, node string) string {
	devices := make([]string, 0, len(o.Devices))
	for _, d := range o.Devices {
		devices = append(devices, string(d))
	}
	return fmt.Sprintf("%s is on %s, and its %s of %s do not fit beside the shares of other pods: two schedulers placed pods there, or the devices have shrunk. "+
		"The devices take no new pods until enough of them have ended.\n\nWhat to change: delete the pod if it does not run, and see to it that one scheduler of the name is active (leaderElect: true).\n",
		Name(o.Path()), node, Count(int(o.Slots), "slot"), strings.Join(devices, ", "))
}

// Runs writes where a pod is. notStarted is what keeps its containers from running, "" for nothing.
func Runs(p *snapshot.Pod, node, notStarted string, at time.Time) string {
	var b strings.Builder
	state := "runs"
	switch {
	case p.Reserved:
		state = "has its devices and is being bound"
	case notStarted != "":
		state = "has its devices and does not run"
	}
	fmt.Fprintf(&b, "%s %s on %s", Name(p.Path()), state, node)
	if !p.Since.IsZero() {
		fmt.Fprintf(&b, ", for %s", duration.HumanDuration(max(0, at.Sub(p.Since))))
	}
	if notStarted != "" {
		b.WriteString(": " + notStarted)
	}
	b.WriteString(".\n")
	for _, c := range p.Containers {
		for _, d := range c.Devices {
			fmt.Fprintf(&b, "  %s: %s and %v of %s\n", c.Name, Count(int(c.Slots), "slot"), c.MemoryBytes, d)
		}
	}
	return b.String()
}
