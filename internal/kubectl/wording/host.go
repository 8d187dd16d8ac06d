package wording

import (
	"fmt"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/snapshot"
	"github.com/tandem-gpu/tandem/pkg/why"
)

// plugins are the other plugins of the scheduler, by what they look at.
var plugins = map[string]string{
	"NodeUnschedulable": "the node is cordoned",
	"TaintToleration":   "a taint that the pod does not tolerate",
	"NodeAffinity":      "the node selector or node affinity of the pod",
	"NodeName":          "the node name in the pod",
	"NodeResourcesFit":  "CPU, memory or another resource of the node",
	"InterPodAffinity":  "affinity or anti-affinity to other pods",
	"PodTopologySpread": "topology spread constraints of the pod",
	"VolumeBinding":     "volumes of the pod",
	"NodePorts":         "ports of the host",
	"GPUGang":           "the plan of its gang, which has other nodes",
}

// plugin says what a plugin of the scheduler looks at.
func plugin(name string) string {
	if words, ok := plugins[name]; ok {
		return fmt.Sprintf("%s (plugin %s)", words, name)
	}
	return "the plugin " + name + " of the scheduler"
}

// lookedAt says what a plugin of the scheduler looks at, after a colon.
func lookedAt(name string) string {
	if words, ok := plugins[name]; ok {
		return ": " + words
	}
	return ""
}

// host says what a host lacks.
func host(m *why.HostMiss) string {
	var short []string
	if m.WantMilliCPU > m.FreeMilliCPU {
		short = append(short, fmt.Sprintf("%s of CPU are free, and the pod asks for %s", cores(max(0, m.FreeMilliCPU)), cores(m.WantMilliCPU)))
	}
	if m.WantMemoryBytes > m.FreeMemoryBytes {
		short = append(short, fmt.Sprintf("%v of memory are free, and the pod asks for %v", max(0, m.FreeMemoryBytes), m.WantMemoryBytes))
	}
	return fmt.Sprintf("on %s %s", m.Node, strings.Join(short, "; "))
}

// cores writes an amount of CPU as a manifest has it.
func cores(milli int64) string {
	if milli%1000 == 0 {
		return fmt.Sprint(milli / 1000)
	}
	return fmt.Sprintf("%dm", milli)
}

// hostAmounts writes the amounts of a host of a change.
func hostAmounts(c *why.Change) string {
	var amounts []string
	if c.MilliCPU > 0 {
		amounts = append(amounts, cores(c.MilliCPU)+" of CPU")
	}
	if c.HostMemory > 0 {
		amounts = append(amounts, c.HostMemory.String()+" of memory")
	}
	return strings.Join(amounts, " and ")
}

// devices names devices that have to recover, with what ails them.
func devices(c *why.Change) string {
	sick, cordons := make([]string, 0, len(c.Devices)), make([]string, 0, len(c.Devices))
	for i, name := range c.Devices {
		if isCordoned(c.Reasons[i]) {
			cordons = append(cordons, name+inBrackets(strings.ToLower(c.Reasons[i][:1])+c.Reasons[i][1:]))
			continue
		}
		sick = append(sick, name+inBrackets(c.Reasons[i]))
	}
	var parts []string
	if len(sick) > 0 {
		parts = append(parts, strings.Join(sick, ", ")+" can be used again")
	}
	if n := len(cordons); n == 1 {
		parts = append(parts, cordons[0]+" is uncordoned")
	} else if n > 1 {
		parts = append(parts, strings.Join(cordons, ", ")+" are uncordoned")
	}
	return strings.Join(parts, ", and ")
}

func isCordoned(reason string) bool { return strings.HasPrefix(reason, snapshot.Cordoned) }

// uncordon returns the commands that uncordon all devices of a change, "" where one of them is not cordoned.
func uncordon(c *why.Change) string {
	commands := make([]string, 0, len(c.Devices))
	for i, name := range c.Devices {
		if !isCordoned(c.Reasons[i]) {
			return ""
		}
		node, device, _ := strings.Cut(name, "/")
		commands = append(commands, fmt.Sprintf("kubectl tandem uncordon %s %s", node, device))
	}
	return strings.Join(commands, ", ")
}

// nodes names nodes that have to take pods again.
func nodes(closed []why.ClosedNode) string {
	names := make([]string, 0, len(closed))
	for _, n := range closed {
		names = append(names, fmt.Sprintf("%s takes pods again%s", n.Name, inBrackets(n.Problem)))
	}
	return strings.Join(names, ", and ")
}
