package workloads

import (
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/pods"
)

// owned returns a pod of a controller, with one container of slots and one without.
func owned(apiVersion, kind, name string) *v1.Pod {
	p := pods.New("3", "")
	p.OwnerReferences = []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: "not-the-controller"},
		{APIVersion: apiVersion, Kind: kind, Name: name, Controller: new(true)},
	}
	p.Spec.Containers[0].Image, p.Spec.Containers[1].Image = "reg/bert@sha256:0", "envoy:1"
	return p
}

func labelled(p *v1.Pod, key, value string) *v1.Pod {
	p.Labels = map[string]string{key: value}
	return p
}

func TestWorkloadOf(t *testing.T) {
	const image = `"reg/bert@sha256:0"`
	key := func(kind, name string) WorkloadKey {
		return WorkloadKey{Namespace: "ns", OwnerKind: kind, OwnerName: name, Images: image}
	}
	bare, generated := owned("", "", ""), owned("", "", "")
	bare.OwnerReferences, generated.OwnerReferences = nil, nil
	generated.GenerateName, generated.Name = "train-", "train-x7k2p"
	several := owned("apps/v1", "StatefulSet", "db")
	several.Spec.InitContainers = []v1.Container{pods.Container("load", "1"), pods.Container("wait", ""), pods.Container("again", "1")}
	several.Spec.InitContainers[0].Image, several.Spec.InitContainers[1].Image = "a:1", "busybox"
	several.Spec.InitContainers[2].Image = "reg/bert@sha256:0"
	tests := []struct {
		name string
		pod  *v1.Pod
		want WorkloadKey
	}{
		{"profile", labelled(owned("apps/v1", "StatefulSet", "db"), v1alpha1.LabelProfile, "bert"), WorkloadKey{Namespace: "ns", Profile: "bert"}},
		{"Deployment", labelled(owned("apps/v1", "ReplicaSet", "web-5d4f8c7b9"), "pod-template-hash", "5d4f8c7b9"), key("Deployment.apps", "web")},
		{"ReplicaSet of its own", owned("apps/v1", "ReplicaSet", "web-5d4f8c7b9"), key("ReplicaSet.apps", "web-5d4f8c7b9")},
		{"another hash", labelled(owned("apps/v1", "ReplicaSet", "web-1"), "pod-template-hash", "2"), key("ReplicaSet.apps", "web-1")},
		{"nothing but a hash", labelled(owned("apps/v1", "ReplicaSet", "-2"), "pod-template-hash", "2"), key("ReplicaSet.apps", "-2")},
		{"ReplicaSet of another group", labelled(owned("example.com/v1", "ReplicaSet", "web-2"), "pod-template-hash", "2"), key("ReplicaSet.example.com", "web-2")},
		{"CronJob", owned("batch/v1", "Job", "nightly-29123456"), key("Job.batch", "nightly")},
		{"CronJob of old", owned("batch/v1", "Job", "nightly-1612345678"), key("Job.batch", "nightly")},
		{"Job", owned("batch/v1", "Job", "train-3"), key("Job.batch", "train-3")},
		{"Job of nine digits", owned("batch/v1", "Job", "train-123456789"), key("Job.batch", "train-123456789")},
		{"Job of digits", owned("batch/v1", "Job", "-29123456"), key("Job.batch", "-29123456")},
		{"Job of another group", owned("batch.volcano.sh/v1", "Job", "train-29123456"), key("Job.batch.volcano.sh", "train-29123456")},
		{"StatefulSet", owned("apps/v1", "StatefulSet", "db"), key("StatefulSet.apps", "db")},
		{"a core kind", owned("v1", "ReplicationController", "old"), key("ReplicationController", "old")},
		{"a malformed API version", owned("a/b/c", "Thing", "x"), key("Thing", "x")},
		{"bare", bare, key("Pod", "p")},
		{"generated name", generated, key("Pod", "train")},
		{"several images", several, WorkloadKey{Namespace: "ns", OwnerKind: "StatefulSet.apps", OwnerName: "db", Images: `"a:1" ` + image}},
	}
	names := map[string]string{}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := WorkloadOf(test.pod)
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("key (-want +got):\n%s", diff)
			}
			if before, ok := names[got.ProfileName()]; ok && before != got.String() {
				t.Errorf("%s and %s have the name %s", before, got, got.ProfileName())
			}
			names[got.ProfileName()] = got.String()
		})
	}
}

// The name is stored in the cluster: another one would orphan what was learned.
func TestProfileNameStays(t *testing.T) {
	k := WorkloadKey{Namespace: "ns", OwnerKind: "Deployment.apps", OwnerName: "web", Images: `"reg/bert@sha256:0"`}
	if got, want := k.ProfileName(), "learned-43e642600aec2e9d"; got != want {
		t.Errorf("%v has the name %s, want %s", k, got, want)
	}
	if got := (WorkloadKey{Namespace: "ns", Profile: "bert"}).ProfileName(); got != "bert" {
		t.Errorf("a named profile has the name %s", got)
	}
	if got, want := k.String(), "ns/Deployment.apps/web"; got != want {
		t.Errorf("it reads %s, want %s", got, want)
	}
}

func TestLearnedProfileRefuses(t *testing.T) {
	long := strings.Repeat("x", 1025)
	for name, k := range map[string]WorkloadKey{
		"a named profile": {Namespace: "ns", Profile: "bert"},
		"no owner":        {Namespace: "ns"},
		"a long kind":     {Namespace: "ns", OwnerKind: long},
		"a long name":     {Namespace: "ns", OwnerKind: "Pod", OwnerName: long},
		"a long image":    {Namespace: "ns", OwnerKind: "Pod", OwnerName: "x", Images: joinImages([]string{long})},
		"many images":     {Namespace: "ns", OwnerKind: "Pod", OwnerName: "x", Images: joinImages(strings.Split(strings.Repeat("i,", 64), ","))},
		"images unquoted": {Namespace: "ns", OwnerKind: "Pod", OwnerName: "x", Images: "a:1"},
	} {
		if got, err := LearnedProfile(k); err == nil || len(err.Error()) > 2048 {
			t.Errorf("%s: %+v, %v, want an error", name, got, err)
		}
	}
}

// TestWorkloadKeyProperty: a WorkloadProfile has the whole key, names are legal, and pods of one owner and
// images have one key whatever their names and the order of their containers.
func TestWorkloadKeyProperty(t *testing.T) {
	legal := regexp.MustCompile(`^learned-[0-9a-f]{16}$`)
	word := rapid.StringMatching(`[a-z][a-z0-9-]{0,20}[a-z0-9]`)
	image := rapid.OneOf(rapid.StringMatching(`[a-z/]{1,10}:[a-z0-9.]{1,5}`), rapid.String())
	names := map[string]WorkloadKey{}
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.SampledFrom([]string{"Job", "ReplicaSet", "PyTorchJob"}).Draw(t, "kind")
		p := owned("batch/v1", kind, word.Draw(t, "owner"))
		images := rapid.SliceOfN(image, 1, 4).Draw(t, "images")
		p.Spec.Containers = nil
		for _, i := range images {
			c := pods.Container("c", "1")
			c.Image = i
			p.Spec.Containers = append(p.Spec.Containers, c)
		}
		k := WorkloadOf(p)
		again := p.DeepCopy()
		again.Name, again.UID = word.Draw(t, "pod"), "another"
		again.Spec.Containers = rapid.Permutation(again.Spec.Containers).Draw(t, "order")
		if other := WorkloadOf(again); other != k {
			t.Fatalf("%+v and %+v are one workload", k, other)
		}
		if !legal.MatchString(k.ProfileName()) {
			t.Fatalf("%+v has the name %s", k, k.ProfileName())
		}
		if before, ok := names[k.ProfileName()]; ok && before != k {
			t.Fatalf("%+v and %+v have one name", before, k)
		}
		names[k.ProfileName()] = k
		profile, err := LearnedProfile(k)
		if err != nil {
			t.Fatal(err)
		}
		w := profile.Status.Workload
		if profile.Namespace != k.Namespace || w.OwnerKind != k.OwnerKind || w.OwnerName != k.OwnerName || joinImages(w.Images) != k.Images {
			t.Fatalf("%+v is written as %s with %+v", k, profile.Namespace, w)
		}
	})
}

func FuzzWorkloadOf(f *testing.F) {
	f.Add("apps/v1", "ReplicaSet", "web-1", "1", "a:1", "b:1")
	f.Add("batch/v1", "Job", "x-29123456", "", "a b", "\"")
	f.Add("", "", "", "", "", "\\")
	f.Fuzz(func(t *testing.T, apiVersion, kind, name, hash, first, second string) {
		p := owned(apiVersion, kind, name)
		p.Labels = map[string]string{"pod-template-hash": hash}
		p.Spec.Containers = []v1.Container{pods.Container("a", "1"), pods.Container("b", "1")}
		p.Spec.Containers[0].Image, p.Spec.Containers[1].Image = first, second
		k := WorkloadOf(p)
		images, err := splitImages(k.Images)
		if err != nil || joinImages(images) != k.Images {
			t.Fatalf("images %q and %q are written %s: %q, %v", first, second, k.Images, images, err)
		}
		if _, err := LearnedProfile(k); err != nil && kind != "" && len(apiVersion+kind+name) < 200 && len(first+second) < 1000 {
			t.Fatalf("%+v: %v", k, err)
		}
	})
}
