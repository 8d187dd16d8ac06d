package gpugang

import (
	"slices"
	"testing"
	"testing/synctest"

	v1 "k8s.io/api/core/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

// snapshotOf returns the gangs and preemptions as the machine publishes them.
func (c *cluster) snapshotOf() *snapshot.Snapshot {
	c.T.Helper()
	s := &snapshot.Snapshot{Source: snapshot.FromScheduler, ElasticTargets: c.plugin.machine.SnapshotTargets()}
	s.Gangs, s.Preemptions = c.plugin.machine.SnapshotGangs()
	if err := s.Check(); err != nil {
		c.T.Fatal(err)
	}
	return s
}

// gangIn returns a gang of a snapshot by its name.
func (c *cluster) gangIn(s *snapshot.Snapshot, name string) snapshot.Gang {
	c.T.Helper()
	for _, g := range s.Gangs {
		if g.Name == name {
			return g
		}
	}
	c.T.Fatalf("the snapshot has no gang %s: %+v", name, s.Gangs)
	return snapshot.Gang{}
}

// A gang that runs has its members on nodes; one that waits says why; one for which pods leave has its places and its victims.
func TestSnapshotOfGangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1, 1)
		c.Create(members("runs", 2, 2, 3)...)
		c.AwaitBound("runs", 2)
		synctest.Wait()
		g := c.gangIn(c.snapshotOf(), "runs")
		if g.Source != "label" || g.Namespace != "default" || g.MinCount != 2 || g.Members != 2 || g.Bound != 2 || g.Need != "Satisfied" || len(g.Places) != 0 {
			t.Errorf("the gang that runs is %+v", g)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		c := crowded(t, 2)
		g := c.gangIn(c.snapshotOf(), "large")
		if g.Members != 2 || g.Bound != 0 || g.Phase != "Unplaced" || g.Need != "Refused" || g.Message == "" || g.WaitsSince.IsZero() {
			t.Errorf("the gang that waits is %+v", g)
		}
		c.keep("n1", "n2")
		s := c.snapshotOf()
		if g := c.gangIn(s, "large"); g.Need != "Preempting" || len(g.Places) != 2 {
			t.Errorf("the gang for which pods leave is %+v", g)
		}
		if len(s.Preemptions) != 1 || s.Preemptions[0].Gang == nil || s.Preemptions[0].Gang.Name != "large" || len(s.Preemptions[0].Victims) != 2 {
			t.Errorf("the preemptions are %+v", s.Preemptions)
		}
	})
}

// The levels that a gang requires and prefers are in the snapshot, each in its own list.
func TestSnapshotOfTopology(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1, 1)
		pods := requireLevel(members("close", 2, 2, 3), v1.LabelTopologyZone)
		for _, p := range pods {
			p.Annotations[v1alpha1.AnnotationPreferredTopology] = v1.LabelHostname
		}
		c.Create(pods...)
		synctest.Wait()
		g := c.gangIn(c.snapshotOf(), "close")
		if !slices.Equal(g.RequiredTopology, []string{v1.LabelTopologyZone}) || !slices.Equal(g.PreferredTopology, []string{v1.LabelHostname}) {
			t.Errorf("the gang requires %v and prefers %v", g.RequiredTopology, g.PreferredTopology)
		}
	})
}

// An ElasticTarget is in the snapshot, and the pods of its gang lead to it.
func TestSnapshotOfTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, 1, 1, 1)
		pods := elasticMembers("grows", 3)
		c.Create(pods...)
		c.setTarget("grows", 3)
		c.AwaitBound("grows", 3)
		synctest.Wait()
		want := snapshot.ElasticTarget{GangName: snapshot.GangName{Source: "label", Namespace: "default", Name: "grows"}, Workers: 3, Min: 2, Max: 6}
		if got := c.snapshotOf().ElasticTargets; len(got) != 1 || got[0] != want {
			t.Errorf("the targets are %+v, want %+v", got, want)
		}
		if gang := c.plugin.machine.SnapshotGang(pods[0]); gang == nil || *gang != want.GangName {
			t.Errorf("the pod is of gang %v", gang)
		}
		if gang := c.plugin.machine.SnapshotGang(&v1.Pod{}); gang != nil {
			t.Errorf("a pod of no gang is of %v", gang)
		}
	})
}
