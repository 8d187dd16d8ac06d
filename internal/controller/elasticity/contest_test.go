package elasticity

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/test/must"
)

// setServers is what another writer does.
func (w *serverWorld) setServers(replicas int32, generation int64) {
	w.Helper()
	set := serverSet(replicas)
	set.Generation = generation
	must.OK(w, w.kube.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("statefulsets"), set, "ns"))
	w.look()
}

// TestAnotherWriterOfTheServers: somebody writes the number of servers back after each pass. After two writes it is left alone for half an hour, and for longer after
// each further one: a condition and an event say so, and a restart in that time changes nothing. Another rate is tried at once.
func TestAnotherWriterOfTheServers(t *testing.T) {
	pods := members(t, "train", 8, 4, 0)
	w := newServerWorld(t, wants("190", pods), 1)
	at, step, lasts := 0, 15, 0
	run := func(passes int) (writes int) {
		for range passes {
			before := len(w.patches)
			w.pass(at)
			writes += len(w.patches) - before
			w.setServers(1, 0)
			at += step
		}
		return writes
	}
	if n := run(10); n != 2 {
		t.Fatalf("the number was written %d times before it was left alone", n)
	}
	told := slices.DeleteFunc(w.events(), func(e string) bool { return !strings.Contains(e, "AnotherWriter") })
	if len(told) != 1 || !strings.Contains(told[0], "leaves its servers alone: StatefulSet ps was changed from 1 to 2 servers") {
		t.Errorf("events %q", told)
	}
	if n := testutil.ToFloat64(w.metrics.contests.WithLabelValues(contestServers)); n != 1 {
		t.Errorf("%v contests", n)
	}
	contested := w.condition()
	if contested.Reason != reasonOtherWriter || contested.Status != metav1.ConditionFalse || !strings.Contains(contested.Message, "its managedFields say who writes spec.replicas") {
		t.Errorf("condition %+v", contested)
	}
	for range 3 { // each process leaves the number alone until half an hour is over
		w.start()
		w.look()
		if n := run(20); n != 0 {
			t.Errorf("a new process wrote %d times", n)
		}
	}
	if again := w.condition(); again.Message != contested.Message || !again.LastTransitionTime.Equal(&contested.LastTransitionTime) {
		t.Errorf("a new process says %+v, before %+v", again, contested)
	}
	step = 60
	for range 8 {
		n := run(60)
		lasts += n
		if n > 3 {
			t.Errorf("the number was written %d times in an hour", n)
		}
	}
	if lasts == 0 {
		t.Error("the number was never tried again")
	}
	w.put(wants("195", pods)...)
	if n := run(1); n != 1 {
		t.Errorf("another rate was tried %d times at once", n)
	}
}

// TestServersOfAnotherWriter: while somebody else writes the number of servers, the members are chosen for the servers that there are, and the condition says whether
// that is enough.
func TestServersOfAnotherWriter(t *testing.T) {
	w := newServerWorld(t, wants("160", members(t, "train", 8, 4, 0)), 1)
	for i := range 4 {
		w.pass(15 * i)
		w.setServers(1, 0)
	}
	w.put(members(t, "train", 8, 8, 0)...)
	w.put(wants("160", members(t, "train", 8, 8, 0))...)
	w.pass(90)
	w.check("train", 8, reasonRate)
	if c := w.condition(); c.Reason != reasonOtherWriter || c.Status != metav1.ConditionTrue {
		t.Errorf("8 members with 1 server have 180: %+v", c)
	}
	written := len(w.patches)
	w.setServers(0, 0)
	w.pass(100)
	w.same("writes of a number that somebody else holds at 0", written, len(w.patches))
}

// TestServersReadLate: an informer that does not show a write yet is no other writer. The user asks for one server again after 21 minutes.
func TestServersReadLate(t *testing.T) {
	w := newServerWorld(t, wants("160", members(t, "train", 8, 4, 0)), 1)
	for i, at := range []int{0, 21 * 60} {
		generation := int64(1 + 2*i)
		w.setServers(1, generation)
		w.pass(at)
		w.pass(at + 10)
		w.setServers(2, generation+1)
		w.pass(at + 20)
	}
	if c := w.condition(); c.Reason != reasonReached || len(w.patches) < 2 {
		t.Errorf("condition %+v, patches %q", c, w.patches)
	}
}

// TestServersMadeAnew: the object of the servers is deleted and made anew with one server and its first generation. The controller scales it as it did before.
func TestServersMadeAnew(t *testing.T) {
	w := newServerWorld(t, wants("160", members(t, "train", 8, 4, 0)), 1)
	w.setServers(1, 1)
	w.pass(0)
	w.setServers(2, 2)
	w.pass(10)
	set := serverSet(1)
	set.UID, set.Generation = "another", 1
	must.OK(t, w.kube.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("statefulsets"), set, "ns"))
	w.look()
	before := len(w.patches)
	w.pass(20)
	w.same("writes", before+1, len(w.patches))
}

// TestServersInAPause: its user scales the servers of a gang that is paused, which is no contest afterwards. An annotation that is not legal does not make the rate so.
func TestServersInAPause(t *testing.T) {
	w := newServerWorld(t, wants("160", members(t, "train", 8, 4, 0)), 1)
	w.setServers(1, 1)
	w.pass(0)
	w.setServers(2, 2)
	w.pass(10)
	reached := w.condition()
	w.hold("three")
	w.pass(20)
	w.same("with an annotation that is not legal", reached, w.condition())
	w.hold("paused")
	w.setServers(1, 3)
	w.pass(30)
	w.hold("")
	for i := range 3 {
		w.pass(40 + 20*i)
		w.setServers(2, int64(4+2*i))
		w.pass(50 + 20*i)
	}
	if c := w.condition(); c.Reason != reasonReached {
		t.Errorf("after the pause: %+v", c)
	}
}
