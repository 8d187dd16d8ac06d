package faults

import (
	"bytes"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tandem-gpu/tandem/internal/sandbox"
	"github.com/tandem-gpu/tandem/test/fakegpu"
	"github.com/tandem-gpu/tandem/test/fakekubelet"
)

const (
	// followStep is the pause between two comparisons of tenants with the containers that should run.
	followStep = 100 * time.Millisecond
	// backoff is how long the program of a container that ended stays away.
	backoff = time.Second
	// tenantGrace is the time between SIGTERM and SIGKILL.
	tenantGrace = 3 * time.Second
)

// tenants runs a program for each container that the kubelet says runs, again when it ends, as a container runtime
// and the kubelet do.
type tenants struct {
	node *Node
	quit chan struct{}
	done chan struct{}

	mu   sync.Mutex
	runs map[string]*tenant // by pod UID

	counting sync.Mutex
	// events counts what the programs said, by first word; stories have all of it, by pod UID.
	events  map[string]int
	stories map[string][]string
}

// tenant is the program of one container.
type tenant struct {
	tenants     *tenants
	uid, device string
	limited     bool // by MPS
	process     *sandbox.Process

	mu    sync.Mutex
	line  []byte    // so far
	last  string    // its last word
	since time.Time // of last
	// asking: a call to the agent whether the program may start again is under way.
	asking bool
}

func newTenants(n *Node) *tenants {
	return &tenants{node: n, quit: make(chan struct{}), done: make(chan struct{}), runs: map[string]*tenant{}, events: map[string]int{}, stories: map[string][]string{}}
}

func (ts *tenants) start() {
	go func() {
		defer close(ts.done)
		tick := time.NewTicker(followStep)
		defer tick.Stop()
		for {
			select {
			case <-ts.quit:
				ts.follow(nil)
				return
			case <-tick.C:
				if list, known := ts.node.containers(); known {
					ts.follow(list)
				}
			}
		}
	}()
}

// stop ends all programs.
func (ts *tenants) stop() {
	select {
	case <-ts.quit:
		return
	default:
	}
	close(ts.quit)
	if ts.node.spec.Mute || ts.node.processes == nil {
		return // never started
	}
	select {
	case <-ts.done:
	case <-time.After(time.Minute):
	}
}

// follow starts what should run and does not, and ends what should not.
func (ts *tenants) follow(list []fakekubelet.Container) {
	wanted := map[string]fakekubelet.Container{}
	for _, c := range list {
		if c.Kind == "app" {
			wanted[c.UID] = c
		}
	}
	ts.mu.Lock()
	var leaving []*tenant
	for uid, t := range ts.runs {
		if _, ok := wanted[uid]; !ok {
			leaving = append(leaving, t)
			delete(ts.runs, uid)
		}
	}
	for uid, c := range wanted {
		switch t := ts.runs[uid]; {
		case t == nil:
			ts.launch(c)
		case t.over():
			ts.restart(t, c)
		case t.astray():
			ts.record(uid, []string{astray})
			leaving = append(leaving, t) // its container ends, and starts again
		}
	}
	ts.mu.Unlock()
	var all sync.WaitGroup
	for _, t := range leaving {
		all.Go(t.end)
	}
	all.Wait()
}

// over reports whether the program ended some time ago.
func (t *tenant) over() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.ended() && time.Since(t.since) >= backoff
}

// restart starts the program of a container again once the agent lets it. The caller holds the lock.
func (ts *tenants) restart(t *tenant, c fakekubelet.Container) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asking {
		return
	}
	t.asking = true
	go func() {
		refused := ts.node.preStart(c)
		ts.mu.Lock()
		defer ts.mu.Unlock()
		if refused == nil && ts.runs[c.UID] == t {
			ts.launch(c)
			return
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		t.asking, t.since = false, time.Now() // the backoff begins anew
	}()
}

// astray is the event of a program that found no daemon where its environment says that one is. Between
// PreStartContainer and its first CUDA call a daemon may have ended; CUDA then runs the program without limits, unless
// the compute mode forbids it.
const astray = "astray"

func (t *tenant) astray() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.limited && t.last == "without MPS" && !t.ended()
}

func (t *tenant) ended() bool {
	if t.process == nil {
		return true
	}
	select {
	case <-t.process.Done():
		return true
	default:
		return false
	}
}

// launch starts the program of a container. The caller holds the lock.
func (ts *tenants) launch(c fakekubelet.Container) {
	t := &tenant{tenants: ts, uid: c.UID, since: time.Now()}
	ts.runs[c.UID] = t
	for _, e := range c.Env {
		if device, ok := strings.CutPrefix(e, "NVIDIA_VISIBLE_DEVICES="); ok {
			t.device = device
		}
		t.limited = t.limited || strings.HasPrefix(e, "CUDA_MPS_PIPE_DIRECTORY=")
	}
	cmd := exec.Command(ts.node.world.programs["tenant"], "--in-flight", "--sm=5", "--bw=5", "--memory=1048576")
	cmd.Env = append(onHost(c), fakegpu.StateVariable+"="+ts.node.state())
	cmd.Stdout = t
	process, err := ts.node.processes.Start("tenant-"+c.UID, cmd)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.process = process; err != nil {
		t.last = err.Error()
	}
}

// Write takes what the program says.
func (t *tenant) Write(text []byte) (int, error) {
	t.mu.Lock()
	t.line = append(t.line, text...)
	var said []string
	for {
		end := bytes.IndexByte(t.line, '\n')
		if end < 0 {
			break
		}
		t.last, t.since = string(t.line[:end]), time.Now()
		t.line = t.line[end+1:]
		said = append(said, t.last)
	}
	t.mu.Unlock()
	t.tenants.record(t.uid, said)
	return len(text), nil
}

func (ts *tenants) record(uid string, said []string) {
	ts.counting.Lock()
	defer ts.counting.Unlock()
	for _, line := range said {
		word, _, _ := strings.Cut(line, " ")
		ts.events[word]++
	}
	ts.stories[uid] = append(ts.stories[uid], said...)
}

// story is what the program of a pod has said in all of its lives.
func (ts *tenants) story(uid string) []string {
	ts.counting.Lock()
	defer ts.counting.Unlock()
	return slices.Clone(ts.stories[uid])
}

// counts returns how often programs said what, by first word.
func (ts *tenants) counts() map[string]int {
	ts.counting.Lock()
	defer ts.counting.Unlock()
	return maps.Clone(ts.events)
}

// onHost is the environment of a container for a process that sees the host's folders.
func onHost(c fakekubelet.Container) []string {
	env := make([]string, 0, len(c.Env))
	for _, e := range c.Env {
		name, value, _ := strings.Cut(e, "=")
		for _, m := range c.Mounts {
			if host, inside, _ := strings.Cut(m, ":"); inside == value {
				value = host
			}
		}
		env = append(env, name+"="+value)
	}
	return env
}

// said returns the last word of the program of a pod.
func (ts *tenants) said(uid string) string {
	ts.mu.Lock()
	t := ts.runs[uid]
	ts.mu.Unlock()
	if t == nil {
		return "nothing: it does not run"
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.last
}

// kill sends SIGKILL to one program that works on the device, as the kernel would for lack of memory, and reports
// whether there was one.
func (ts *tenants) kill(device string) bool {
	ts.mu.Lock()
	defer ts.mu.Unlock()
	for _, uid := range slices.Sorted(maps.Keys(ts.runs)) {
		t := ts.runs[uid]
		t.mu.Lock()
		works := t.device == device && strings.HasPrefix(t.last, "connected") && !t.ended()
		t.mu.Unlock()
		if works {
			t.process.Stop(0)
			return true
		}
	}
	return false
}

// end sends the program SIGTERM, and SIGKILL when it does not end.
func (t *tenant) end() {
	if t.process != nil {
		t.process.Stop(tenantGrace)
	}
}
