package decisions

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	v1 "k8s.io/api/core/v1"
	events "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// grown is an event of an elastic job.
func grown() *events.Event {
	return &events.Event{
		ObjectMeta: metav1.ObjectMeta{UID: "e1", Namespace: "lab"}, EventTime: metav1.NewMicroTime(noon), ReportingController: "tandem-controller",
		Type: v1.EventTypeNormal, Reason: "ElasticGrow", Note: "grows from 3 to 6 members of gang lab/train, since GPUs are idle",
		Regarding: v1.ObjectReference{Kind: "Job", Namespace: "lab", Name: "train"},
	}
}

func TestOf(t *testing.T) {
	plain := Decision{
		At: noon, Component: "tandem-controller", Type: "Normal", Reason: "ElasticGrow", Namespace: "lab", Object: "Job/train",
		Message: "grows from 3 to 6 members of gang lab/train, since GPUs are idle", Count: 1,
	}
	for name, x := range map[string]struct {
		change func(*events.Event)
		want   func(*Decision)
	}{
		"as it is": {func(*events.Event) {}, func(*Decision) {}},
		"a series": {
			func(e *events.Event) {
				e.Series = &events.EventSeries{Count: 4, LastObservedTime: metav1.NewMicroTime(noon.Add(time.Minute))}
			}, func(d *Decision) { d.At, d.Count = noon.Add(time.Minute), 4 },
		},
		"of the older API": {
			func(e *events.Event) {
				e.EventTime, e.ReportingController = metav1.MicroTime{}, ""
				e.DeprecatedSource.Component, e.DeprecatedCount, e.DeprecatedLastTimestamp = "tandem-controller", 3, metav1.NewTime(noon)
			}, func(d *Decision) { d.Count = 3 },
		},
		"of an object without a namespace": {
			func(e *events.Event) {
				e.Namespace, e.Regarding = "default", v1.ObjectReference{Kind: "Node", Name: "gpu-1"}
			},
			func(d *Decision) { d.Namespace, d.Object = "default", "Node/gpu-1" },
		},
	} {
		e, want := grown(), plain
		x.change(e)
		x.want(&want)
		if diff := cmp.Diff(want, Of(e), cmpopts.IgnoreUnexported(Decision{})); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestFilter(t *testing.T) {
	for name, x := range map[string]struct {
		narrow func(*Filter)
		lets   bool
	}{
		"all":                       {func(*Filter) {}, true},
		"another program":           {func(f *Filter) { f.Components = []string{"kubelet"} }, false},
		"its reason":                {func(f *Filter) { f.Reasons = []string{"Preempted", "ElasticGrow"} }, true},
		"other reasons":             {func(f *Filter) { f.Reasons = []string{"Preempted"} }, false},
		"warnings":                  {func(f *Filter) { f.Type = "Warning" }, false},
		"since its time":            {func(f *Filter) { f.After = noon }, true},
		"since later":               {func(f *Filter) { f.After = noon.Add(time.Second) }, false},
		"its object":                {func(f *Filter) { f.Kind, f.Name = "job", "train" }, true},
		"its name":                  {func(f *Filter) { f.Name = "train" }, true},
		"a pod of the name":         {func(f *Filter) { f.Kind, f.Name = "pod", "train" }, false},
		"the gang that it tells of": {func(f *Filter) { f.Kind, f.Name = Gang, "train" }, true},
		"a gang with a longer name": {func(f *Filter) { f.Kind, f.Name = Gang, "trai" }, false},
	} {
		f, d := Filter{Components: []string{"tandem-scheduler", "tandem-controller"}}, Of(grown())
		x.narrow(&f)
		if f.Lets(&d) != x.lets {
			t.Errorf("%s: %v", name, !x.lets)
		}
	}
}

// A decision is told again where it was taken again, and not where it was only read again.
func TestTold(t *testing.T) {
	told, d := Told{}, Of(grown())
	if !told.New(&d) || told.New(&d) {
		t.Error("it is told never, or twice")
	}
	if d.Count = 2; !told.New(&d) || told.New(&d) {
		t.Error("the second time is not told, or twice")
	}
}

func TestLine(t *testing.T) {
	d := Of(grown())
	d.Message, d.Count = "grows\x1b[2J", 2
	for all, want := range map[bool]string{
		false: "  90s  ElasticGrow           Job/train: grows [2J (2 times)",
		true:  "2026-01-01T12:00:00Z  Normal   tandem-controller  ElasticGrow  lab/Job/train  grows [2J (2 times)",
	} {
		if got := d.Line(noon.Add(90*time.Second), all); got != want {
			t.Errorf("got %q", got)
		}
	}
}

// Sorted decisions have the newest last, whatever their order was.
func TestSort(t *testing.T) {
	older, newer := Of(grown()), Of(grown())
	newer.At = noon.Add(time.Hour)
	all := []Decision{newer, older}
	Sort(all)
	if !all[0].At.Equal(older.At) {
		t.Errorf("%+v", all)
	}
}
