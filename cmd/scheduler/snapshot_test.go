package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/tandem-gpu/tandem/internal/scheduler/snapshots"
	"github.com/tandem-gpu/tandem/test/must"
)

// elected is a configuration with a lease of its own.
const elected = `
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
leaderElection: {leaderElect: true, resourceName: of-file, resourceNamespace: ns-of-file}
`

// The snapshot goes by the lease of the scheduler: a flag that is given counts, then the file, then the default.
func TestLeaseOf(t *testing.T) {
	file := "--config=" + write(t, "elected.yaml", elected)
	tests := []struct {
		name  string
		flags []string
		want  *snapshots.Lease
	}{
		{"defaults", nil, &snapshots.Lease{Namespace: "kube-system", Name: "kube-scheduler"}},
		{"file", []string{file}, &snapshots.Lease{Namespace: "ns-of-file", Name: "of-file"}},
		{"flag beside a file", []string{file, "--leader-elect-resource-namespace=ns"}, &snapshots.Lease{Namespace: "ns", Name: "of-file"}},
		{"flags", []string{"--leader-elect-resource-name=n", "--leader-elect-resource-namespace=ns"}, &snapshots.Lease{Namespace: "ns", Name: "n"}},
		{"no election", []string{file, "--leader-elect=false"}, nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			c := command(newGates(), newCaches(func(error) {}))
			must.OK(t, c.ParseFlags(test.flags))
			got, err := leaseOf(c)
			must.OK(t, err)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// The port is open unless the flag is 0, or the scheduler has no port at all and the flag does not ask for this one.
func TestSnapshotIsWanted(t *testing.T) {
	for flags, want := range map[string]bool{
		"": true, "--snapshot-secure-port=0": false, "--secure-port=0": false, "--secure-port=0 --snapshot-secure-port=1": true,
	} {
		c, s := app.NewSchedulerCommand(), &serving{}
		s.wrap(c)
		must.OK(t, c.ParseFlags(strings.Fields(flags)))
		if got := s.isWanted(); got != want {
			t.Errorf("with %q it is wanted: %v", flags, got)
		}
	}
}

// Other machines reach the map only when the flag turns it on.
func TestMapIsWanted(t *testing.T) {
	for flags, want := range map[string]bool{
		"": false, "--bind-address=192.0.2.7": false, "--bind-address=::": false, "--bind-address=127.0.0.1": true, "--bind-address=::1": true,
		"--snapshot-map": true, "--snapshot-map --bind-address=192.0.2.7": true, "--bind-address=127.0.0.1 --snapshot-map=false": false,
	} {
		c, s := app.NewSchedulerCommand(), &serving{}
		s.wrap(c)
		must.OK(t, c.ParseFlags(strings.Fields(flags)))
		if got := s.wantsMap(); got != want {
			t.Errorf("with %q the map is wanted: %v", flags, got)
		}
	}
}

func TestHelpNamesTheFlag(t *testing.T) {
	var out bytes.Buffer
	c := command(newGates(), newCaches(func(error) {}))
	c.SetOut(&out)
	c.SetErr(&out)
	must.OK(t, c.Help())
	if !strings.Contains(out.String(), "--snapshot-secure-port") || !strings.Contains(out.String(), "--snapshot-map") || !strings.Contains(out.String(), "--secure-port") {
		t.Errorf("the help is:\n%s", out.String())
	}
}
