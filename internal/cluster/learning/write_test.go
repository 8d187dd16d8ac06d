package learning

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/tandem-gpu/tandem/internal/cluster/workloads"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// server is an API server of WorkloadProfiles whose watch feeds a learner.
type server struct {
	*fake.FakeDynamicClient
	world *world
}

func newServer(tb testing.TB, devices int, o Options, objects ...runtime.Object) *server {
	tb.Helper()
	client := fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(),
		map[schema.GroupVersionResource]string{v1alpha1.WorkloadProfiles: "WorkloadProfileList"}, objects...)
	o.Client = client
	return &server{client, newWorld(tb, devices, o)}
}

// sync writes all that waits, and feeds what is there to the learner as a watch does.
func (s *server) sync(tb testing.TB) {
	tb.Helper()
	for range 100 {
		if !s.world.learner.write(tb.Context()) {
			break
		}
		for _, p := range s.profiles(tb) {
			s.world.learner.Profile(p)
		}
	}
	s.world.learner.step(s.world.clock.now)
}

func (s *server) profiles(tb testing.TB) []*v1alpha1.WorkloadProfile {
	tb.Helper()
	list, err := s.Resource(v1alpha1.WorkloadProfiles).List(tb.Context(), metav1.ListOptions{})
	must.OK(tb, err)
	var all []*v1alpha1.WorkloadProfile
	for i := range list.Items {
		p := &v1alpha1.WorkloadProfile{}
		must.OK(tb, runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, p))
		all = append(all, p)
	}
	return all
}

func (s *server) writes(verb string) int {
	n := 0
	for _, a := range s.Actions() {
		if a.GetVerb() == verb {
			n++
		}
	}
	return n
}

// declared is a user's profile.
func declared(tb testing.TB, namespace, name string) runtime.Object {
	tb.Helper()
	p := &v1alpha1.WorkloadProfile{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	p.Spec.Uses = []v1alpha1.DeclaredUse{{Model: "*", SMUtilizationPercent: new(int32(10))}}
	u, err := unstructuredOf(p)
	must.OK(tb, err)
	return u
}

// The learner writes what it has learned: for a workload without a profile into one that it makes, for others into
// theirs, whose spec stays. Nothing is written where nothing changed.
func TestStatusIsWritten(t *testing.T) {
	s := newServer(t, 2, Options{}, declared(t, "team-b", "mine"))
	for _, p := range s.profiles(t) {
		s.world.learner.Profile(p)
	}
	a, b := two()
	s.world.place(0, a)
	s.world.place(1, b)
	named := s.world.gpus[1].running[0].pod
	s.world.learner.PodGone(named.UID)
	named.Labels[v1alpha1.LabelProfile] = "mine"
	s.world.learner.Pod(named)
	s.world.run(15 * time.Minute)
	s.sync(t)
	all := s.profiles(t)
	if len(all) != 2 {
		t.Fatalf("%d profiles", len(all))
	}
	for _, p := range all {
		read := workloads.ReadProfile(p)
		if len(read.Malformed) > 0 || len(read.Learned()) != 1 {
			t.Fatalf("%s: %v, learned %v", p.Name, read.Malformed, read.Learned())
		}
		l := read.Learned()[0]
		want := map[string]float64{"team-a": .8, "team-b": .6}[p.Namespace]
		near(t, p.Name+": SM", l.SM, want, .011)
		made := p.Namespace == "team-a"
		if (p.Labels[v1alpha1.LabelLearned] == "true") != made || (p.Status.Workload != nil) != made || len(p.Status.Conditions) != 1 {
			t.Errorf("%s: labels %v, status %+v", p.Name, p.Labels, p.Status)
		}
		if !made && (len(p.Spec.Uses) != 1 || *p.Spec.Uses[0].SMUtilizationPercent != 10) {
			t.Errorf("the spec of a user is %+v now", p.Spec)
		}
	}
	if made, err := workloads.LearnedProfile(workloads.WorkloadOf(s.world.gpus[0].running[0].pod)); err != nil || all[0].Name != made.Name ||
		cmp.Diff(made.Status.Workload, all[0].Status.Workload) != "" {
		t.Errorf("the profile is %s of %+v, want that of the pod, %+v (%v)", all[0].Name, all[0].Status.Workload, made, err)
	}
	before := s.writes("update")
	if before < 2 || before > 4 {
		t.Errorf("%d writes of two workloads", before)
	}
	for range 4 {
		s.world.publish()
		s.world.run(5 * time.Minute)
	}
	s.sync(t)
	if now := s.writes("update"); now != before {
		t.Errorf("%d writes although nothing changed", now-before)
	}
}

// A declaration of which nothing has been learned says in its status which of its values are illegal, and no longer when they have been
// corrected. A legal one has no status, and nothing is written twice.
func TestIllegalDeclarationsAreNamed(t *testing.T) {
	curve := func(rates ...int64) (list []v1alpha1.ProfileThroughput) {
		for i, rate := range rates {
			list = append(list, v1alpha1.ProfileThroughput{Model: "A100", SharePercent: int32(50 * (i + 1)), Rate: resource.NewQuantity(rate, resource.DecimalSI)})
		}
		return list
	}
	s := newServer(t, 1, Options{}, declared(t, "team", "falls"), declared(t, "team", "rises"))
	change := func(name string, list []v1alpha1.ProfileThroughput) {
		for _, p := range s.profiles(t) {
			if p.Name != name {
				s.world.learner.Profile(p)
				continue
			}
			p.Spec.Throughputs = list
			object, err := unstructuredOf(p)
			must.OK(t, err)
			_, err = s.Resource(v1alpha1.WorkloadProfiles).Namespace(p.Namespace).Update(t.Context(), object, metav1.UpdateOptions{})
			must.OK(t, err)
			s.world.learner.Profile(p)
		}
		s.sync(t)
	}
	conditions := func() (all []string) {
		for _, p := range s.profiles(t) {
			for _, c := range p.Status.Conditions {
				all = append(all, p.Name+": "+c.Reason+": "+c.Message)
			}
		}
		return all
	}
	change("rises", curve(100, 200))
	change("falls", curve(200, 100))
	const want = "falls: Malformed: spec.throughputs: the rate on A100 at 100% is worse than at 50%, or the share stands twice: "
	if got := conditions(); len(got) != 1 || !strings.HasPrefix(got[0], want) {
		t.Errorf("conditions %q, want %q", got, want)
	}
	writes := s.writes("update")
	change("other", nil)
	if now := s.writes("update"); now != writes {
		t.Errorf("%d writes although nothing changed", now-writes)
	}
	change("falls", curve(100, 200))
	if got := conditions(); len(got) != 1 || !strings.HasPrefix(got[0], "falls: Agrees: ") {
		t.Errorf("conditions %q after the curve has been corrected", got)
	}
}

// However many illegal profiles users write, what was learned is written before them.
func TestLearnedComesBeforeIllegalDeclarations(t *testing.T) {
	s := newServer(t, 2, Options{})
	a, b := two()
	s.world.place(0, a)
	s.world.place(1, b)
	for i := range 50 {
		p := &v1alpha1.WorkloadProfile{ObjectMeta: metav1.ObjectMeta{Namespace: "other", Name: fmt.Sprint("falls-", i)}}
		for k, rate := range []int64{2, 1} {
			p.Spec.Throughputs = append(p.Spec.Throughputs, v1alpha1.ProfileThroughput{Model: "A100", SharePercent: int32(50 * (k + 1)), Rate: resource.NewQuantity(rate, resource.DecimalSI)})
		}
		object, err := unstructuredOf(p)
		must.OK(t, err)
		_, err = s.Resource(v1alpha1.WorkloadProfiles).Namespace("other").Create(t.Context(), object, metav1.CreateOptions{})
		must.OK(t, err)
		s.world.learner.Profile(p)
	}
	s.world.run(15 * time.Minute)
	for range 2 {
		s.world.learner.write(t.Context())
	}
	written := 0
	for _, p := range s.profiles(t) {
		if len(p.Status.Conditions) > 0 && p.Namespace != "other" {
			written++
		}
	}
	if written != 2 {
		t.Errorf("after two writes %d of two learned profiles are written", written)
	}
	s.sync(t)
	for _, p := range s.profiles(t) {
		if len(p.Status.Conditions) != 1 {
			t.Errorf("%s/%s has the conditions %v", p.Namespace, p.Name, p.Status.Conditions)
		}
	}
}

// A new process finds the profiles that the one before made.
func TestProfilesOfBefore(t *testing.T) {
	s := newServer(t, 1, Options{})
	a, _ := two()
	s.world.place(0, a)
	s.world.run(20 * time.Minute)
	s.sync(t)
	again := newServer(t, 1, Options{})
	again.FakeDynamicClient, again.world.learner.options.Client = s.FakeDynamicClient, s.FakeDynamicClient
	again.world.place(0, a)
	again.world.run(20 * time.Minute)
	again.sync(t) // it has not seen the profile: making it fails
	for _, p := range s.profiles(t) {
		again.world.learner.Profile(p)
	}
	again.sync(t)
	if all := s.profiles(t); len(all) != 1 || all[0].Status.Learned[0].SoloObservations < 3 {
		t.Errorf("%+v", all)
	}
}

// The learner makes no more profiles than it may. Those observed longest ago go, a user's never.
func TestBoundOfProfiles(t *testing.T) {
	s := newServer(t, 1, Options{MaxProfiles: 2}, declared(t, "team-z", "mine"))
	for _, p := range s.profiles(t) {
		s.world.learner.Profile(p)
	}
	var names []string
	for i := range 5 {
		j, _ := two()
		j.name = fmt.Sprintf("%c-0", 'a'+i)
		s.world.place(0, j)
		s.world.run(15 * time.Minute)
		s.world.place(0)
		s.sync(t)
		names = nil
		for _, p := range s.profiles(t) {
			names = append(names, p.Namespace)
		}
		slices.Sort(names)
		if i == 2 && !slices.Equal(names, []string{"team-a", "team-b", "team-z"}) {
			t.Errorf("within an hour of its last observation a profile went: %v", names)
		}
		if i >= 2 {
			s.world.run(90 * time.Minute)
		}
	}
	if want := []string{"team-d", "team-e", "team-z"}; !slices.Equal(names, want) {
		t.Errorf("profiles of %v, want %v", names, want)
	}
	if s.world.learner.counts.dropped[dropFull] == 0 {
		t.Error("nothing was counted as without room")
	}
}

// Writes that fail are tried again, more and more rarely, and nothing is lost.
func TestWritesThatFail(t *testing.T) {
	s := newServer(t, 1, Options{})
	fails := true
	s.PrependReactor("*", "workloadprofiles", func(clienttesting.Action) (bool, runtime.Object, error) {
		return fails, nil, errors.New("the API server is away")
	})
	a, _ := two()
	s.world.place(0, a)
	s.world.run(10 * time.Minute)
	tries := 0
	for range 3600 {
		if s.world.learner.write(t.Context()) {
			tries++
		}
		s.world.clock.now = s.world.clock.now.Add(time.Second)
	}
	if tries < 10 || tries > 30 || s.world.learner.counts.writes[resultFailed] != uint64(tries) {
		t.Errorf("%d tries within an hour, %v", tries, s.world.learner.counts.writes)
	}
	fails = false
	s.world.clock.now = s.world.clock.now.Add(longestPause)
	s.sync(t)
	if all := s.profiles(t); len(all) != 1 || len(all[0].Status.Learned) != 1 {
		t.Errorf("%+v", all)
	}
}

// Run shows and writes until its context ends.
func TestRun(t *testing.T) {
	s := newServer(t, 1, Options{WritesPerSecond: 100})
	a, _ := two()
	s.world.place(0, a)
	s.world.run(10 * time.Minute)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		s.world.learner.Run(ctx)
		close(done)
	}()
	for deadline := time.Now().Add(5 * time.Minute); s.writes("update") == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) { // only a hang takes so long
			t.Fatal("nothing was written")
		}
	}
	cancel()
	<-done
}
