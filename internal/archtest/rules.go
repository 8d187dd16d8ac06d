package archtest

import (
	"path"
	"slices"
	"strings"
)

// core lists the packages that decide, with the core packages that each may import. A new one is a decision about the
// architecture, so its author adds it here.
var core = map[string][]string{
	"vgpu":          nil,
	"fragmentation": {"vgpu"},
	"interference":  {"vgpu"},
	"placement":     {"vgpu", "fragmentation", "interference"},
	"gang":          {"vgpu", "placement"},
	"preemption":    {"vgpu", "placement", "gang"},
	"elastic":       {"vgpu", "gang", "lifetime"},
	"contest":       nil,
	"resize":        {"contest", "elastic"},
	"traffic":       {"vgpu", "interference"},
	"notebook":      nil,
	"lifetime":      nil,
	"reservation":   {"vgpu", "gang"},
	"snapshot":      {"vgpu"},
	"why":           {"vgpu", "placement", "gang", "preemption", "snapshot"},
	"outlook":       {"vgpu", "fragmentation", "placement", "gang", "snapshot", "sim"},
	"sim": {
		"vgpu", "fragmentation", "interference", "placement", "gang", "reservation", "preemption", "elastic", "resize", "traffic", "snapshot",
	},
	"shadow": {"vgpu", "fragmentation", "interference", "placement", "gang", "sim"},
}

// coreStd lists the standard library that core may import: nothing that does I/O, knows the time or is random.
var coreStd = []string{"cmp", "errors", "fmt", "iter", "maps", "math", "slices", "sort", "strconv", "strings"}

// timeValues lists the core packages that may use values of package time, and clock what they may not use of it.
var (
	timeValues = []string{"contest", "elastic", "notebook", "outlook", "reservation", "resize", "shadow", "snapshot", "traffic", "sim"}
	clock      = []string{"Now", "Since", "Until", "After", "AfterFunc", "Sleep", "Tick", "NewTicker", "NewTimer"}
)

// api and plugins list the other directories under pkg/.
var (
	api     = []string{"v1alpha1", "config"}
	plugins = []string{"gpushare", "gpugang", "gpupreempt", "gpuqueue"}
)

// nameless lists package names that say nothing.
var nameless = []string{"util", "utils", "common", "helper", "helpers", "types", "core", "manager", "base", "misc", "shared"}

// unpackaged lists the directories of fakes and of what tests need, beside test/: production does not import them.
var unpackaged = []string{"internal/testkit", "internal/sandbox", "internal/archtest", "internal/agent/fixture"}

// violations returns what package p, and only p, does against the rules. The graph has the imports of each directory of
// the module.
func (p *source) violations(graph map[string][]string) []string {
	rules := []func(*source) []string{places, names, comments, generated, coreImports, pluginImports, simImports, labImports, fakeImports, asking}
	var all []string
	for _, rule := range rules {
		all = append(all, rule(p)...)
	}
	for _, rule := range []func(*source, map[string][]string) []string{agentImports, ofAgent} {
		all = append(all, rule(p, graph)...)
	}
	return all
}

// places: this file lists every directory under pkg/.
func places(p *source) []string {
	parts := strings.Split(p.dir, "/")
	if parts[0] != "pkg" {
		return nil
	}
	known := false
	switch {
	case len(parts) == 2:
		_, known = core[parts[1]]
	case len(parts) > 2 && parts[1] == "api":
		known = slices.Contains(api, parts[2])
	case len(parts) > 2 && parts[1] == "plugins":
		known = slices.Contains(plugins, parts[2])
	}
	if !known {
		return []string{"is a directory under pkg/ that internal/archtest/rules.go does not know"}
	}
	return nil
}

// names: a package's name says what it is about.
func names(p *source) []string {
	for _, name := range []string{p.name, path.Base(p.dir)} {
		if slices.Contains(nameless, name) {
			return []string{"is named " + name + ", which says nothing"}
		}
	}
	return nil
}

// comments: a package says what it is for.
func comments(p *source) []string {
	if p.doc == "" {
		return []string{"has no package comment"}
	}
	return nil
}

// generated: only API types have generated code.
func generated(p *source) []string {
	if within(p.dir, "pkg/api/v1alpha1") || within(p.dir, "pkg/api/config") {
		return nil
	}
	var all []string
	for _, f := range p.files {
		if strings.HasPrefix(f, "zz_generated") {
			all = append(all, "has the generated file "+f)
		}
	}
	return all
}

// coreImports: core imports lower core packages and what cannot touch the world.
func coreImports(p *source) []string {
	name, ok := strings.CutPrefix(p.dir, "pkg/")
	allowed, isCore := core[name]
	if !ok || !isCore {
		return nil
	}
	all := p.banned(func(i string) bool {
		lower, ours := strings.CutPrefix(i, p.module+"/pkg/")
		switch {
		case ours:
			return !slices.Contains(allowed, lower)
		case i == "time":
			return !slices.Contains(timeValues, name)
		}
		return !slices.Contains(coreStd, i) && !strings.HasPrefix(i, "gonum.org/")
	}, "core may not")
	for _, use := range p.clocks {
		all = append(all, "uses time."+use+": core is told the time")
	}
	return all
}

// pluginImports: plugins do not know each other.
func pluginImports(p *source) []string {
	own := under(p.dir, "pkg/plugins")
	if own == "" {
		return nil
	}
	var all []string
	for _, i := range p.imports {
		if other := under(i, p.module+"/pkg/plugins"); other != "" && other != own {
			all = append(all, "imports the plugin "+other)
		}
	}
	return all
}

// simulates lists the simulator and what is made of it: package outlook and kubectl tandem, which plays snapshots with it, and shadow mode,
// which plays what Tandem would have done. The program that writes the page of messages lists the checks of kubectl tandem. Beside these
// only the laboratory and tests import them.
var simulates = []string{
	"pkg/sim", "pkg/outlook", "internal/simulator", "cmd/simulator", "internal/kubectl", "cmd/kubectl-tandem",
	"pkg/shadow", "internal/shadow/recorder", "internal/shadow/reports", "cmd/shadow", "internal/messages/reference",
}

// laboratory is the directory that repeats published experiments.
const laboratory = "evaluation"

// simImports: the simulator stays out of production.
func simImports(p *source) []string {
	outside := within(p.dir, "test") || within(p.dir, laboratory)
	if outside || slices.ContainsFunc(simulates, func(d string) bool { return within(p.dir, d) }) {
		return nil
	}
	return p.banned(func(i string) bool {
		return slices.ContainsFunc(simulates, func(d string) bool { return within(i, p.module+"/"+d) })
	}, "the simulator")
}

// labImports: the product, the simulator among it, imports neither the laboratory nor the library that draws its figures.
func labImports(p *source) []string {
	if within(p.dir, "test") || within(p.dir, laboratory) {
		return nil
	}
	return p.banned(func(i string) bool {
		return within(i, p.module+"/"+laboratory) || within(i, "gonum.org/v1/plot")
	}, "the laboratory")
}

// fakeImports: production imports neither fakes nor what tests need.
func fakeImports(p *source) []string {
	if within(p.dir, "test") || slices.ContainsFunc(unpackaged, func(d string) bool { return within(p.dir, d) }) {
		return nil
	}
	return p.banned(func(i string) bool {
		return i == "testing" || within(i, p.module+"/test") ||
			slices.ContainsFunc(unpackaged, func(d string) bool { return within(i, p.module+"/"+d) })
	}, "what is for tests")
}

// deciding lists the packages outside of pkg/ that decide by types of Kubernetes and ask nobody, and clients what asks.
var (
	deciding = []string{"internal/kubectl/checks", "internal/kubectl/consumption", "internal/kubectl/decisions", "internal/kubectl/live"}
	clients  = []string{"context", "net", "os", "k8s.io/client-go", "k8s.io/klog"}
)

// asking: packages that decide read no cluster, no file and no clock.
func asking(p *source) []string {
	if !slices.Contains(deciding, p.dir) {
		return nil
	}
	all := p.banned(func(i string) bool {
		return slices.ContainsFunc(clients, func(c string) bool { return within(i, c) })
	}, "what decides asks nobody")
	for _, use := range p.clocks {
		all = append(all, "uses time."+use+": what decides is told the time")
	}
	return all
}

// agent lists the directories of the node agent, and scheduling the core packages that decide for the whole cluster: the
// agent carries their decisions out and links none of them.
var (
	agent      = []string{"internal/agent", "cmd/device-plugin"}
	scheduling = []string{"pkg/gang", "pkg/placement", "pkg/preemption", "pkg/reservation", "pkg/sim"}
)

// agentImports: the agent imports nothing that schedules, directly or through packages of this module. The graph has the
// imports of each directory of the module; a violation names the way.
func agentImports(p *source, graph map[string][]string) []string {
	if !slices.ContainsFunc(agent, func(d string) bool { return within(p.dir, d) }) {
		return nil
	}
	var all []string
	for _, banned := range scheduling {
		if way := wayTo(p.dir, banned, graph); way != nil {
			all = append(all, "imports "+strings.Join(way[1:], ", which imports ")+": the agent schedules nothing")
		}
	}
	return all
}

// aboveAgent lists what knows nothing of the agent: what scheduler and controllers share, and what decides.
var aboveAgent = []string{"internal/cluster", "pkg"}

// ofAgent: neither internal/cluster nor pkg/ imports the agent, directly or through packages of this module.
func ofAgent(p *source, graph map[string][]string) []string {
	if !slices.ContainsFunc(aboveAgent, func(d string) bool { return within(p.dir, d) }) {
		return nil
	}
	if way := wayTo(p.dir, "internal/agent", graph); way != nil {
		return []string{"imports " + strings.Join(way[1:], ", which imports ") + ": the agent"}
	}
	return nil
}

// wayTo returns the shortest way of imports from a directory to one that is within another, with both ends, and nil
// where there is none. Among equally short ways it returns the one that sorts first.
func wayTo(from, to string, graph map[string][]string) []string {
	before := map[string]string{from: ""}
	for queue := []string{from}; len(queue) > 0; queue = queue[1:] {
		for _, i := range graph[queue[0]] {
			if _, seen := before[i]; seen {
				continue
			}
			before[i] = queue[0]
			if within(i, to) {
				return way(i, before)
			}
			queue = append(queue, i)
		}
	}
	return nil
}

// way returns the directories from the one that nothing is before to the end.
func way(end string, before map[string]string) []string {
	var all []string
	for dir := end; dir != ""; dir = before[dir] {
		all = append(all, dir)
	}
	slices.Reverse(all)
	return all
}

func (p *source) banned(is func(string) bool, what string) []string {
	var all []string
	for _, i := range p.imports {
		if is(i) {
			all = append(all, "imports "+i+": "+what)
		}
	}
	return all
}

// within reports whether a slash-separated path is dir or below it.
func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// under returns the element of path p that follows dir, "" when p is not below dir.
func under(p, dir string) string {
	rest, ok := strings.CutPrefix(p, dir+"/")
	if !ok {
		return ""
	}
	first, _, _ := strings.Cut(rest, "/")
	return first
}
