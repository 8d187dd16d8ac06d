package learning

import (
	"cmp"
	"context"
	"hash/fnv"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/interference"
)

// Options are the settings of a Learner.
type Options struct {
	// Model that predicts; the book corrects it.
	Model interference.Model
	// MaxProfiles is how many WorkloadProfiles the learner makes itself. Beyond that it deletes those with the oldest
	// observations. MaxProfiles also bounds the workloads that the learner keeps without a WorkloadProfile.
	MaxProfiles int
	// Frozen: the learner uses declarations and earlier results, and neither learns nor writes.
	Frozen bool
	// Client to write WorkloadProfiles with; nil disables writing.
	Client dynamic.Interface
	// Clock returns the time; nil is time.Now.
	Clock func() time.Time
	// Interval is the length of one observation, and WarmUp the time at the start of each tenant group that the learner
	// leaves out. Stale is how long a publication counts. 0 are the defaults.
	Interval, WarmUp, Stale time.Duration
	// WritesPerSecond bounds the average rate of requests to the API server; 0 is the default.
	WritesPerSecond float64
}

const (
	// defaultInterval is some times the minute over which agents smooth what they publish. Shorter observations are noisier
	// and depend on each other; longer ones see fewer of the short jobs.
	defaultInterval = 2 * time.Minute
	// defaultWarmUp leaves out loading and compiling, which are unlike the work that follows.
	defaultWarmUp = 2 * time.Minute
	// defaultStale is longer than agents wait between publications while any value changes. A longer one takes the
	// silence of a dead agent for a steady use, a shorter one loses the use of steady pods.
	defaultStale = 10 * time.Minute
	// defaultWrites writes 10,000 changed workloads within an hour and a half, at less than what one busy Deployment
	// costs the API server. A larger number writes faster and costs more.
	defaultWrites = 2
	// refresh is the time between two snapshots. A shorter time shows news sooner and costs more.
	refresh = time.Second
	// pace is the time between two reads of all devices. The time of an observation is a multiple of it.
	pace = 10 * time.Second
	// settling is the time between two rounds over the whole book. A shorter time costs more.
	settling = 10 * time.Minute
)

// Learner learns from telemetry. Callers may use its methods at the same time.
type Learner struct {
	options Options
	// shown is what the scheduler sees; stale says that a declaration is missing in it.
	shown atomic.Pointer[Snapshot]
	stale atomic.Bool
	// numbers of workloads by "namespace/name" of their WorkloadProfile, whether or not it exists. The learner never
	// reuses a number.
	numbers names

	mu        sync.Mutex
	book      *interference.Book
	workloads map[interference.Workload]*workload
	last      interference.Workload
	// models are the GPU models: gpus has the place of each in models, from 1.
	models  []string
	gpus    map[string]interference.GPU
	pods    map[types.UID]*pod
	devices map[place]*device
	// dirty are workloads whose part of the snapshot is out of date. podsChanged says the same of the pods,
	// levelsChanged of all values that one settling changes.
	dirty       map[interference.Workload]bool
	podsChanged bool
	observed    bool
	looked      time.Time
	settled     time.Time
	// queue are the workloads to write, those that have waited longest first, and lateQueue those that come after all of them.
	queue, lateQueue []interference.Workload

	made    int
	pause   time.Time
	strikes int
	counts  counts
}

// workload is what the learner knows of one workload.
type workload struct {
	number interference.Workload
	name   string
	// key is nil where the learner need not make a WorkloadProfile.
	key   *workloads.WorkloadKey
	owner interference.Owner
	// pods that have not ended.
	pods int
	// profile is what its WorkloadProfile declares, nil where there is none; made says that a learner made it.
	profile *workloads.Workload
	made    bool
	records []*record
	// written is the content of its status; wrote says that this process wrote it.
	written []brief
	wrote   bool
	queued  bool
	// late says that it is in the queue of those that come last.
	late bool
	// unsaid says that its status does not name the illegal values of its declaration, or names old ones.
	unsaid bool
	// refused says that no WorkloadProfile can hold the workload.
	refused bool
	seen    int64 // seconds since 1970
}

// New returns an empty Learner. New starts nothing.
func New(o Options) *Learner {
	if o.Clock == nil {
		o.Clock = time.Now
	}
	o.Interval = cmp.Or(o.Interval, defaultInterval)
	o.WarmUp = cmp.Or(o.WarmUp, defaultWarmUp)
	o.Stale = cmp.Or(o.Stale, defaultStale)
	o.WritesPerSecond = cmp.Or(o.WritesPerSecond, defaultWrites)
	o.MaxProfiles = max(1, o.MaxProfiles)
	l := &Learner{
		options: o, book: interference.NewBook(o.Model, 2*o.MaxProfiles),
		workloads: map[interference.Workload]*workload{}, gpus: map[string]interference.GPU{},
		pods: map[types.UID]*pod{}, devices: map[place]*device{}, dirty: map[interference.Workload]bool{},
	}
	l.shown.Store(&Snapshot{numbers: &l.numbers})
	return l
}

// Run updates the snapshot and writes WorkloadProfiles until ctx ends.
func (l *Learner) Run(ctx context.Context) {
	var writer sync.WaitGroup
	if l.options.Client != nil && !l.options.Frozen {
		writer.Go(func() { l.writing(ctx) })
	}
	defer writer.Wait()
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	for {
		l.step(l.options.Clock())
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// step handles the time since the last step, and updates the snapshot.
func (l *Learner) step(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if passed := now.Sub(l.looked); passed >= pace || passed < 0 {
		l.looked = now
		for _, at := range l.places() {
			l.advance(l.devices[at], now)
		}
	}
	if passed := now.Sub(l.settled); passed >= settling || passed < 0 {
		l.settled = now
		l.prune()
		if l.observed {
			l.book.Settle(1)
			l.observed = false
			for w := range l.workloads {
				l.dirty[w] = true
			}
		}
	}
	l.show()
}

// places returns the devices in order.
func (l *Learner) places() []place {
	all := make([]place, 0, len(l.devices))
	for at := range l.devices {
		all = append(all, at)
	}
	slices.SortFunc(all, func(a, b place) int { return cmp.Or(cmp.Compare(a.node, b.node), cmp.Compare(a.id, b.id)) })
	return all
}

// named returns the workload of a WorkloadProfile's name, and makes it where there is none.
func (l *Learner) named(namespace, name string) *workload {
	path := namespace + "/" + name
	if n, ok := l.numbers.number(path); ok {
		return l.workloads[n]
	}
	l.last++
	w := &workload{number: l.last, name: path, owner: ownerOf(namespace), seen: l.options.Clock().Unix()}
	l.workloads[w.number] = w
	l.numbers.set(path, w.number)
	return w
}

// names are the numbers of workloads. The lock is for short calls only.
type names struct {
	mu      sync.RWMutex
	numbers map[string]interference.Workload
}

func (n *names) number(name string) (interference.Workload, bool) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	w, ok := n.numbers[name]
	return w, ok
}

func (n *names) each(do func(name string, w interference.Workload)) {
	n.mu.RLock()
	defer n.mu.RUnlock()
	for name, w := range n.numbers {
		do(name, w)
	}
}

func (n *names) set(name string, w interference.Workload) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.numbers == nil {
		n.numbers = map[string]interference.Workload{}
	}
	n.numbers[name] = w
}

func (n *names) remove(name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.numbers, name)
}

// ownerOf returns a number that stands for a namespace: a hash, which needs no table.
func ownerOf(namespace string) interference.Owner {
	h := fnv.New32a()
	_, _ = h.Write([]byte(namespace))
	return interference.Owner(h.Sum32() | 1)
}

// forget drops a workload without pods; of one with pods it drops the learned values.
func (l *Learner) forget(w *workload) {
	l.book.Forget(w.number)
	w.records, w.written, w.wrote = nil, nil, false
	l.dirty[w.number] = true
	if w.pods == 0 && w.profile == nil {
		delete(l.workloads, w.number)
		l.numbers.remove(w.name)
	}
}

// prune drops workloads that have neither pods nor a WorkloadProfile. It drops workloads without learned values at
// once, the others beyond MaxProfiles, the oldest observations first.
func (l *Learner) prune() {
	idle := make([]*workload, 0, len(l.workloads))
	for _, w := range l.workloads {
		if w.pods > 0 || w.profile != nil || w.queued {
			continue
		}
		if len(w.records) == 0 {
			l.forget(w)
			continue
		}
		idle = append(idle, w)
	}
	slices.SortFunc(idle, func(a, b *workload) int {
		return cmp.Or(cmp.Compare(a.seen, b.seen), cmp.Compare(a.number, b.number))
	})
	for len(idle) > l.options.MaxProfiles {
		l.forget(idle[0])
		idle = idle[1:]
	}
}

// gpu returns the number of a GPU model. Models come from GPUNodes and from what the scheduler wrote, never from users.
func (l *Learner) gpu(model string) interference.GPU {
	n, ok := l.gpus[model]
	if !ok {
		l.models = append(l.models, model)
		n = interference.GPU(len(l.models))
		l.gpus[model] = n
		for w := range l.workloads {
			l.dirty[w] = true
		}
	}
	return n
}
