package gangs

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// author writes random histories. It knows what it named, not what became of it.
type author struct {
	*rand.Rand
	native  bool
	elastic bool
	steps   []step
	nodes   []string
	gpus    map[string]int
	gangs   []string
	pods    []string
	// members by gang.
	members map[string]int
	total   int
	// names of the verbs, as often as they are likely.
	likely []string
}

// themes say which verbs are likely beside the arrivals: each history has one.
var themes = [][]string{
	{"clock", "clock", "delete", "recreate", "arrive"},
	{"fault", "fault", "fault", "clock", "clock", "heal", "delete"},
	{"restart", "fault", "clock", "clock"},
	{"drain", "drain", "uncordon", "clock", "clock", "recreate", "delete"},
	{"drain", "uncordon", "uncordon", "succeed", "lose", "node", "clock", "clock", "clock", "evictfault", "heal"},
	{"lose", "node", "sick", "well", "clock", "unready", "ready", "recreate"},
	{"delete", "delete", "recreate", "recreate", "deletegang", "clock", "arrive"},
	{"ungroup", "regroup", "regroup", "clock", "delete"},
	{"succeed", "succeed", "succeed", "clock", "clock", "delete", "recreate", "restart", "lose", "node"},
	{"fault", "restart", "lose", "node", "delete", "recreate", "clock", "clock", "evictfault", "heal", "sick", "well", "drain", "uncordon"},
	{"pod", "pod", "pod", "pod", "clock", "clock", "delete"},
	{"gang", "gang", "pod", "clock", "clock", "clock", "evictfault", "restart", "delete"},
}

// elasticThemes are those of histories with a controller.
var elasticThemes = [][]string{
	{"clock", "clock", "clock", "pod", "delete"},
	{"crash", "crash", "clock", "clock", "clock", "pod"},
	{"controlfault", "controlfault", "clock", "clock", "clock", "pod"},
	{"edit", "edit", "clock", "clock"},
	{"drain", "drain", "uncordon", "crash", "clock", "clock", "clock", "pod"},
	{"crash", "controlfault", "evictfault", "edit", "restart", "fault", "lose", "node", "clock", "clock", "clock", "heal", "delete", "pod"},
}

// write returns the history of a seed.
func write(seed uint64, k kit) []step {
	a := &author{Rand: rand.New(rand.NewPCG(seed, 0)), native: k.native, elastic: k.elastic, members: map[string]int{}, gpus: map[string]int{}}
	for i := range 1 + a.IntN(5) {
		a.addNode(fmt.Sprintf("n%d", i+1))
	}
	theme := themes[a.IntN(len(themes))]
	if a.elastic && a.chance(60) {
		theme = elasticThemes[a.IntN(len(elasticThemes))]
	}
	a.likely = append([]string{"gang", "gang", "pod"}, theme...)
	a.likely = append(a.likely, theme...)
	a.addGang()
	for range 12 + a.IntN(30) {
		a.add(a.likely[a.IntN(len(a.likely))])
	}
	return a.steps
}

func (a *author) write(verb, name string, options ...string) {
	s := step{verb: verb, name: name, options: map[string]string{}, rush: a.IntN(5) == 0}
	for _, o := range options {
		if key, value, _ := strings.Cut(o, "="); value != "" && value != "0" {
			s.options[key] = value
		}
	}
	a.steps = append(a.steps, s)
}

// one returns one of the words.
func (a *author) one(words ...string) string { return words[a.IntN(len(words))] }

// chance is true that often of a hundred.
func (a *author) chance(percent int) bool { return a.IntN(100) < percent }

func (a *author) addNode(name string) {
	gpus, _ := strconv.Atoi(a.one("1", "2", "2", "4", "4", "8"))
	a.nodes = append(a.nodes, name)
	a.gpus[name] = gpus
	a.total += gpus
	a.write("node", name, "gpus="+strconv.Itoa(gpus), "rack="+a.one("r1", "r2", "r3"), "island="+a.one("0", "0", "2", "4"), "cpus="+a.one("64", "64", "8"))
}

// add writes one step of a verb.
func (a *author) add(verb string) {
	node := a.nodes[a.IntN(len(a.nodes))]
	device := "device=" + strconv.Itoa(a.IntN(a.gpus[node]))
	switch verb {
	case "gang":
		a.addGang()
	case "pod":
		a.addPod()
	case "clock":
		a.write("clock", "", "for="+a.one("1s", "3s", "10s", "10s", "30s", "70s"))
	case "crash":
		a.write("crash", "", "after="+a.one("0", "1", "2", "3", "5"), "answered="+a.one("0", "1"), "for="+a.one("1s", "20s", "90s"))
	case "controlfault":
		a.write("fault", a.one("", a.someGang(), a.someGang()), "what="+controlFault, "kind="+a.one(kinds...), "count="+a.one("1", "1", "2", "5"))
	case "edit":
		a.write("edit", a.someGang(), "workers="+a.one("0", "1", "2", "3", "4", "8"))
	case "heal", "restart":
		a.write(verb, "")
	case "drain":
		a.write(verb, node, "every="+a.one("0", "1s", "1s", "4s", "12s"))
	case "lose", "node", "unready", "ready", "uncordon":
		a.write(verb, node)
	case "sick", "well":
		a.write(verb, node, device)
	case "fault":
		a.write("fault", a.target(), "kind="+a.one(kinds...), "count="+a.one("1", "1", "2", "5", "-1"))
	case "evictfault":
		a.write("fault", a.target(), "kind="+a.one("refuse", "error"), "what="+a.one(evictFault, deleteFault), "count="+a.one("1", "3"))
	case "delete":
		a.write("delete", a.somePod())
	case "succeed":
		name := a.someGang()
		a.write("succeed", name, "count="+a.one("1", "1", "2", "3", "5"))
		if a.chance(40) {
			a.write("fail", name)
			a.write("recreate", name)
		}
	case "arrive":
		a.write("arrive", a.someGang(), "count="+a.one("1", "2"))
	case "regroup":
		a.write("regroup", a.someGang(), "min="+strconv.Itoa(1+a.IntN(5)))
	default: // recreate, deletegang, ungroup
		a.write(verb, a.someGang())
	}
}

func (a *author) addGang() {
	name := fmt.Sprintf("g%d", len(a.gangs)+1)
	members, slots := 1+a.IntN(6), a.one("2", "3", "5", "5", "10", "10", "10", "20")
	if a.chance(30) { // more than half of the cluster
		members, slots = min(20, a.total/2+1+a.IntN(a.total/2+1)), "10"
	}
	least := members
	uneven := members > 1 && a.chance(4)
	if !uneven && a.chance(30) {
		least = 1 + a.IntN(members)
	}
	a.gangs = append(a.gangs, name)
	a.members[name] = members
	source := a.source()
	options := []string{
		"source=" + source, "members=" + strconv.Itoa(members), "min=" + strconv.Itoa(least), "slots=" + slots,
		"priority=" + a.one("0", "0", "0", "5", "10"), "cpus=" + a.one("0", "0", "0", "1", "3"),
	}
	options = append(options, a.wishes()...)
	options = append(options, a.life()...)
	if a.chance(15) {
		options = append(options, "later="+strconv.Itoa(a.IntN(members)))
	}
	if a.chance(10) {
		options = append(options, "launcher=1")
	}
	if uneven {
		options = append(options, "uneven=1")
	}
	if a.chance(30) {
		options = append(options, "again=1")
	}
	if source != "native" && a.chance(40) { // the scheduler's own queue waits for done members of a native group
		options = append(options, "job=1")
	}
	if a.elastic && !uneven && a.chance(60) {
		options = append(options, a.sizes(members)...)
	}
	a.write("gang", name, options...)
}

// sizes makes a gang elastic: all members are its largest size.
func (a *author) sizes(members int) []string {
	least := 1 + a.IntN(members)
	sizes := fmt.Sprintf("%d-%d", least, members)
	if members > least+1 && a.chance(40) {
		sizes = fmt.Sprintf("%d,%d", least, members)
	}
	return []string{"min=" + strconv.Itoa(least), "elastic=" + sizes, "agile=" + a.one("0", "1", "1")}
}

// wishes mostly do not contradict each other.
func (a *author) wishes() []string {
	required := a.one("", "", "", "", "rack", "rack", "hostname", "nvlink", "rack,nvlink")
	if required == "" || a.chance(3) {
		return []string{"required=" + required, "preferred=" + a.one("", "", "rack", "hostname,rack", "nvlink")}
	}
	return []string{"required=" + required}
}

func (a *author) source() string {
	if a.native {
		return a.one("native", "native", "native", "label")
	}
	return a.one("label", "xk8s")
}

// life says how long pods run: for ever, a while that nobody is told, or one that the pod declares.
func (a *author) life() []string {
	switch a.IntN(4) {
	case 0:
		return []string{"runs=" + a.one("10s", "30s", "90s")}
	case 1:
		return []string{"ends=" + a.one("10s", "30s", "90s")}
	}
	return nil
}

func (a *author) addPod() {
	name := fmt.Sprintf("p%d", len(a.pods)+1)
	a.pods = append(a.pods, name)
	options := []string{
		"slots=" + a.one("0", "1", "3", "5", "5", "10", "10", "20"), "priority=" + a.one("0", "0", "0", "5", "10"), "cpus=" + a.one("0", "0", "2"),
	}
	if a.chance(30) {
		options = append(options, "again=1")
	}
	a.write("pod", name, append(options, a.life()...)...)
}

func (a *author) someGang() string { return a.gangs[a.IntN(len(a.gangs))] }

// somePod returns a single pod or a member.
func (a *author) somePod() string {
	if len(a.pods) > 0 && a.chance(40) {
		return a.pods[a.IntN(len(a.pods))]
	}
	g := a.someGang()
	return g + "-" + strconv.Itoa(a.IntN(a.members[g]))
}

// target returns what a fault is for: mostly a gang, or one of its members.
func (a *author) target() string {
	switch a.IntN(4) {
	case 0:
		return ""
	case 1:
		return a.somePod()
	}
	return a.someGang()
}
