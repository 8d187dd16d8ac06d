package reservation

import (
	"cmp"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/tandem-gpu/tandem/pkg/gang"
	"github.com/tandem-gpu/tandem/pkg/vgpu"
	"github.com/tandem-gpu/tandem/test/must"
)

var update = flag.Bool("update", false, "write docs/gang-phases.md anew")

// world is what a scenario happens in: the gangs as the API has them, and the machine.
type world struct {
	t     fails
	state *State
	now   time.Time
	gangs map[string]*Facts
	of    map[vgpu.UID]string
	// begun are the evictions that began last, by preemptor, with their victims.
	begun map[string]BeginEvictions
	evict map[Evictions][]Chosen
	// asked is the version of the last Plan of a gang.
	asked map[string]Version
	// seen are the transitions so far, with the command that made them.
	seen map[transition]bool
}

// fails is a test.
type fails interface {
	must.T
	Fatalf(format string, args ...any)
}

// transition is a change of a phase or of a need.
type transition struct{ from, to, by string }

func newWorld(t fails, drains gang.Drains) *world {
	begin := time.Unix(1_000_000, 0).UTC()
	w := &world{t: t, now: begin, gangs: map[string]*Facts{}, of: map[vgpu.UID]string{}, asked: map[string]Version{}, seen: map[transition]bool{}}
	w.begun, w.evict = map[string]BeginEvictions{}, map[Evictions][]Chosen{}
	w.state = New(Config{Deadline: 5 * time.Minute, Drains: drains, After: time.Minute, Timeout: time.Hour, Began: begin, EvictionsPerMinute: 6})
	return w
}

// Each file under testdata is a story about one gang, or about some: commands say what happens, and below them stand the effects, and
// the phase and the need of each gang that has changed. The members of all gangs have different names.
func TestScenarios(t *testing.T) {
	seen := map[transition]bool{}
	datadriven.Walk(t, filepath.Join("testdata", "scenarios"), func(t *testing.T, path string) {
		w := newWorld(t, gang.AllDrains)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t = t
			return w.run(d)
		})
		maps.Copy(seen, w.seen)
	})
	if t.Failed() {
		return
	}
	checkPage(t, seen)
}

// run carries out one command.
func (w *world) run(d *datadriven.TestData) string {
	switch d.Cmd {
	case "gang":
		return w.declare(d)
	case "wait":
		w.now = w.now.Add(w.duration(d.CmdArgs[0].Key))
		return ""
	case "next":
		if g := w.state.next(w.now); g != nil {
			return g.Name
		}
		return "none"
	case "show":
		return w.show(d.CmdArgs[0].Key)
	case "no-reservations": // room is never kept while pods end
		w.state = New(Config{Deadline: 5 * time.Minute, Drains: gang.NoDrains, Began: w.now})
		return ""
	case "least":
		return w.least(d.CmdArgs[0].Key)
	case "show-pod":
		return w.showPod(vgpu.UID(d.CmdArgs[0].Key))
	case "victims":
		return w.showVictims()
	}
	return w.step(d.Cmd, w.event(d))
}

func (w *world) least(name string) string {
	f := w.facts(name)
	least := strconv.Itoa(w.state.Least(&f))
	if least == strconv.Itoa(OnlyWhole) {
		least = "all"
	}
	return least
}

// step takes an event, and tells the effects and what the gangs are in that have changed.
func (w *world) step(by string, e Event) string {
	before := w.phases()
	var out strings.Builder
	for _, effect := range w.state.Step(e, w.now) {
		switch effect := effect.(type) {
		case Plan:
			w.asked[w.of[e.(Tried).UID]] = effect.Version
		case BeginEvictions:
			w.begins(e, effect)
		}
		fmt.Fprintln(&out, w.describe(effect))
	}
	after := w.phases()
	for _, name := range slices.Sorted(maps.Keys(after)) {
		if before[name] == after[name] {
			continue
		}
		fmt.Fprintln(&out, strings.TrimSuffix(fmt.Sprintf("%s: %s, %s", name, after[name][0], after[name][1]), ", "))
		start := [2]string{Unplaced.String(), Satisfied.String()} // of a gang of which nothing was remembered
		if after[name][1] == "" {
			start = [2]string{Roomless.String()}
		}
		for i := range 2 {
			was := cmp.Or(before[name][i], start[i])
			if was != after[name][i] {
				w.seen[transition{was, after[name][i], by}] = true
			}
		}
	}
	for name := range before {
		if _, ok := after[name]; !ok {
			fmt.Fprintf(&out, "%s is forgotten\n", name)
			if was := before[name][0]; before[name][1] == "" && was != Roomless.String() {
				w.seen[transition{was, Roomless.String(), by}] = true
			}
		}
	}
	return out.String()
}

// phases returns the phase and the need of each gang.
func (w *world) phases() map[string][2]string {
	all := map[string][2]string{}
	for _, ref := range w.state.Refs() {
		p, n := w.state.Phase(ref)
		all[titleOf(ref)] = [2]string{p.String(), n.String()}
	}
	for uid := range w.state.pods {
		p, _ := w.state.PodRoom(uid)
		all["pod "+string(uid)] = [2]string{p.String()}
	}
	return all
}

// titleOf returns the name of a gang in scenarios: "nameless" has none.
func titleOf(ref Ref) string {
	if ref.Name == "" {
		return "nameless"
	}
	return ref.Name
}

// declare says what the API knows of a gang: "gang train min=2 a b@n1 c=deleted". A member is deleted, gated,
// new (made after its siblings were bound), old (bound an hour ago) or older (made two hours ago).
func (w *world) declare(d *datadriven.TestData) string {
	f := &Facts{Ref: Ref{Source: "label", Namespace: "default", Name: d.CmdArgs[0].Key}}
	if d.HasArg("queued") {
		f.Queued, f.Source = true, "native"
	}
	if f.Name == "nameless" {
		f.Name = ""
	}
	for _, a := range d.CmdArgs[1:] {
		switch a.Key {
		case "min":
			f.MinCount = w.number(a.Vals[0])
		case "problem":
			f.Problem = &Problem{Message: strings.ReplaceAll(a.Vals[0], "_", " ")}
		case "lacks":
			f.Problem = &Problem{Message: strings.ReplaceAll(a.Vals[0], "_", " "), Waits: true}
		case "queued":
		default:
			f.Members = append(f.Members, w.member(a.Key, a.Vals))
		}
	}
	for i := range f.Members {
		w.of[f.Members[i].UID] = titleOf(f.Ref)
	}
	w.gangs[titleOf(f.Ref)] = f
	return ""
}

func (w *world) member(text string, words []string) Member {
	name, node, _ := strings.Cut(text, "@")
	m := Member{UID: vgpu.UID(name), Pod: "default/" + name, Node: node, Created: w.now.Unix() - 100}
	if node != "" {
		m.Scheduled = w.now.Unix() - 10
	}
	for _, word := range words {
		switch word {
		case "deleted":
			m.Deleted = true
		case "gated":
			m.Gated = true
		case "new":
			m.Created = w.now.Unix() - 5
		case "older":
			m.Created = w.now.Unix() - 7200
		case "old":
			m.Scheduled = w.now.Unix() - 3600
			m.Created = w.now.Unix() - 3700
		default:
			w.t.Fatalf("member %s is %q: want deleted, gated, new, old or older", name, word)
		}
	}
	return m
}

func (w *world) number(text string) int {
	n, err := strconv.Atoi(text)
	must.OK(w.t, err)
	return n
}

func (w *world) duration(text string) time.Duration {
	t, err := time.ParseDuration(text)
	must.OK(w.t, err)
	return t
}

// facts returns a gang as the API has it now.
func (w *world) facts(name string) Facts {
	f := w.gangs[name]
	if f == nil {
		return Facts{Ref: Ref{Source: "label", Namespace: "default", Name: name}}
	}
	return *f
}

// args are the words of a command after its subject.
type args struct {
	w *world
	d *datadriven.TestData
}

func (a *args) has(key string) bool { return a.d.HasArg(key) }

// text returns the value of a word, with spaces for "_", "" where it is not there.
func (a *args) text(key string) string {
	for _, arg := range a.d.CmdArgs {
		if arg.Key == key {
			return strings.ReplaceAll(strings.Join(arg.Vals, ","), "_", " ")
		}
	}
	return ""
}

func (a *args) list(key string) []string {
	if text := a.text(key); text != "" {
		return strings.Split(text, ",")
	}
	return nil
}

func (a *args) uids(key string) []vgpu.UID {
	var all []vgpu.UID
	for _, name := range a.list(key) {
		all = append(all, vgpu.UID(name))
	}
	return all
}

func (a *args) count(key string) int {
	if a.text(key) == "" {
		return 0
	}
	return a.w.number(a.text(key))
}

func (a *args) time(key string) time.Duration {
	if a.text(key) == "" {
		return 0
	}
	return a.w.duration(a.text(key))
}

// places reads words such as "a=n1" or, with a device, "a=n1/g0".
func (a *args) places() []Place {
	var all []Place
	for _, arg := range a.d.CmdArgs[1:] {
		if _, member := a.w.of[vgpu.UID(arg.Key)]; member && len(arg.Vals) == 1 {
			all = append(all, placeOf(arg.Key, arg.Vals[0]))
		}
	}
	return all
}

func placeOf(name, at string) Place {
	node, device, held := strings.Cut(at, "/")
	p := Place{Assignment: vgpu.Assignment{UID: vgpu.UID(name), Pod: "default/" + name, Node: node}}
	if held {
		p.Containers = []vgpu.ContainerAssignment{{Name: "main", Devices: []vgpu.DeviceID{vgpu.DeviceID(device)}}}
	}
	return p
}

// event reads a command. Its first word is a member, or a gang.
func (w *world) event(d *datadriven.TestData) Event {
	a := &args{w, d}
	subject := ""
	if len(d.CmdArgs) > 0 {
		subject = d.CmdArgs[0].Key
	}
	uid := vgpu.UID(subject)
	name, isMember := w.of[uid]
	if !isMember {
		name = subject
	}
	f := w.facts(name)
	if e := memberEvent(a, d.Cmd, f, uid); e != nil {
		return e
	}
	if e := gangEvent(a, d.Cmd, f); e != nil {
		return e
	}
	if e := podEvent(a, d.Cmd, uid); e != nil {
		return e
	}
	w.t.Fatalf("there is no command %q", d.Cmd)
	return nil
}

// memberEvent reads the commands about a member.
func memberEvent(a *args, cmd string, f Facts, uid vgpu.UID) Event {
	version := a.w.asked[titleOf(f.Ref)]
	if a.has("stale") {
		version--
	}
	switch cmd {
	case "enqueue":
		return Enqueued{Gang: f, UID: uid}
	case "try":
		return Tried{Gang: f, UID: uid, Pod: "default/" + string(uid), Priority: int32(a.count("priority")), Grouped: a.has("grouped"),
			Again: a.has("again"), Stands: !a.has("lost"), Still: a.uids("still")}
	case "plan":
		places := a.places()
		return PlanFound{Gang: f, UID: uid, Version: version, Places: places, Have: len(places), Others: a.uids("others")}
	case "refuse":
		return PlanRefused{
			Gang: f, UID: uid, Version: version, SkipExplanation: a.has("brief"), Surplus: a.text("surplus"), Void: a.text("void"),
			Refusal: Refusal{Reason: gang.Reason(a.text("why")), Message: "no place", Lacking: a.count("lacking"), Host: a.has("host")},
			Kept:    KeptRoom{Stands: a.has("stands"), Taken: a.list("taken"), Short: a.list("short")},
		}
	case "sought":
		return sought(a, f, uid)
	case "hold-failed":
		return HoldFailed{Gang: f, UID: uid, Pod: uid, Why: "others took the devices"}
	case "reserve":
		return Reserved{Ref: f.Ref, UID: uid}
	case "permit":
		return Permitted{Gang: f, UID: uid}
	case "unreserve":
		return Unreserved{Gang: f, UID: uid, Pod: "default/" + string(uid)}
	case "bound":
		return Bound{Gang: f, UID: uid}
	case "node-refused":
		return NodeRefused{Gang: f, UID: uid, Node: a.text("node"), Limited: a.has("limited"), Why: "it lacks something"}
	case "withdraw":
		return Withdrawn{Gang: f, UID: uid}
	}
	return nil
}

func sought(a *args, f Facts, uid vgpu.UID) Event {
	e := RoomSought{Ref: f.Ref, UID: uid, Later: a.text("later"), Anywhere: a.has("anywhere")}
	if places := a.places(); len(places) > 0 {
		e.Found = &gang.Plan{Until: int64(a.count("until"))}
		for _, p := range places {
			e.Found.Places = append(e.Found.Places, p.Assignment)
			if p.Held() {
				e.Holds = append(e.Holds, vgpu.Hold{Assignment: p.Assignment})
			}
		}
	}
	return e
}

// gangEvent reads the commands about a gang.
func gangEvent(a *args, cmd string, f Facts) Event {
	switch cmd {
	case "changed":
		return Changed{Gang: f}
	case "tick":
		return Ticked{Gang: f, InPermit: a.uids("in-permit"), VictimsLeft: a.has("victims"), Blocked: a.list("blocked")}
	case "group-refused":
		e := GroupRefused{Gang: f, Nodes: map[string]int{}}
		for _, node := range a.list("nodes") {
			e.Nodes[node] = a.count("took")
		}
		return e
	case "want":
		return RoomWanted{Ref: f.Ref}
	case "make-room":
		made := Made{Places: map[vgpu.UID]Place{}, Victims: map[vgpu.UID]Victim{}, Lacking: a.count("lacking"), Unbound: a.count("lacking"),
			Until: a.w.now.Add(time.Minute)}
		for _, p := range a.places() {
			p.Pinned = true
			made.Places[p.UID] = p
		}
		for _, v := range a.list("victims") {
			made.Victims[vgpu.UID(v)] = Victim{Pod: "default/" + v}
		}
		return RoomMade{Gang: f, Room: made}
	case "try-room":
		return RoomTried{Ref: f.Ref, On: a.has("on")}
	case "give-up":
		return RoomGivenUp{Ref: f.Ref, Why: "no pod has a lower priority", Pause: a.time("pause")}
	case "vacate":
		return Vacated{Ref: f.Ref, Members: a.uids("members")}
	case "doubts-end":
		return DoubtsEnded{}
	case "released":
		return Released{Gang: f, Left: a.count("left")}
	}
	return nil
}

// describe says what an effect is.
func (w *world) describe(effect Effect) string {
	switch e := effect.(type) {
	case Give:
		text := fmt.Sprintf("give %s/%s", e.Place.Node, e.Place.UID)
		if e.Place.Pinned {
			text += " pinned"
		}
		return text
	case Refuse:
		return strings.TrimRight(fmt.Sprintf("refuse: %s%s", e.Why, describeTurn(&e)), " ")
	case Plan:
		return "plan"
	case SeekRoom:
		return fmt.Sprintf("seek room, not on %v", slices.Sorted(maps.Keys(e.Avoid)))
	case Wait:
		return fmt.Sprintf("wait, briefly %v", e.Briefly)
	case Hold:
		return fmt.Sprintf("hold %s/%s for %s", e.Hold.Node, e.Hold.Containers[0].Devices[0], e.Hold.UID)
	case Release:
		return "release " + string(e.UID)
	case Open:
		return "open the gate"
	case Allow:
		return "allow " + string(e.UID)
	case Reject:
		return fmt.Sprintf("reject %s: %s", e.UID, e.Why)
	}
	return describeMissing(effect)
}

func describeMissing(effect Effect) string {
	switch e := effect.(type) {
	case Activate:
		return fmt.Sprintf("activate %v", e.UIDs)
	case Denominate:
		return fmt.Sprintf("denominate %s from %s", e.UID, e.Node)
	case Evict:
		return fmt.Sprintf("evict %v", e.UIDs)
	case Missing:
		return fmt.Sprintf("tell %v: %s", e.UIDs, e.Why)
	case Start:
		return fmt.Sprintf("start after %v on %v", e.Waited, e.Nodes)
	case Count:
		return strings.TrimRight(fmt.Sprintf("count %v %s", e.What, e.Reason), " ")
	}
	return describePod(effect)
}

func describeTurn(e *Refuse) string {
	text := ""
	switch e.Turn.Kind {
	case Kept:
		text = fmt.Sprintf("; room is kept on %v for %v", e.Turn.Nodes, e.Turn.Left)
	case Behind:
		text = "; behind " + e.Turn.Ahead.Name
	case NotYet:
		text = "; " + e.Turn.Text
	case InVain:
		text = fmt.Sprintf("; in vain, short are %v", e.Turn.Nodes)
	}
	if e.Victims > 0 {
		text += fmt.Sprintf("; %d victims", e.Victims)
	}
	return text
}

// checkPage fails where docs/gang-phases.md does not show the transitions of the scenarios.
func checkPage(t *testing.T, seen map[transition]bool) {
	page := filepath.Join("..", "..", "docs", "gang-phases.md")
	want := phasesPage(seen)
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil { //nolint:gosec // a page that all may read
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	must.OK(t, err)
	if string(got) != want {
		t.Error("docs/gang-phases.md is not what the scenarios show: run go test ./pkg/reservation -run TestScenarios -update")
	}
}
