package checks

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	apps "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/version"

	"github.com/tandem-gpu/tandem/internal/cluster/membership"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// Names of what deploy/ installs: the values of nameLabel. The scheduler's is in the facts.
const (
	nameLabel     = "app.kubernetes.io/name"
	agentName     = "tandem-agent"
	mpsName       = "tandem-mps"
	controllerApp = "tandem-controller"
	activatorApp  = "tandem-activator"
)

// apply is what installs Tandem anew, or what of it is missing. It names no command alone: that of another way of installing would
// put other images and other settings in the place of those that are there.
const apply = "apply the release again as it was installed (install.yaml, Helm, or deploy/ with your overlay)"

// least and newest bound the versions of Kubernetes that were tried. podsAPI is the first whose kubelet serves pods.
var (
	least   = version.MustParseGeneric("1.34")
	newest  = version.MustParseGeneric("1.37")
	podsAPI = version.MustParseGeneric("1.37")
)

// staleLease is how long after its last renewal a lease counts as left. The scheduler renews it every few seconds; a smaller value
// would find clocks that differ.
const staleLease = 3 * time.Minute

// older reports whether a version is below a release, for example v1.33.9 below 1.34. A text that is no version is not older.
func older(raw string, than *version.Version) bool {
	v, err := version.ParseGeneric(raw)
	return err == nil && v.LessThan(than)
}

func serverTooOld(f *Facts) []hit {
	if !older(f.ServerVersion, least) {
		return nil
	}
	return []hit{{"Server/" + f.ServerVersion, fmt.Sprintf("the API server is %s, and Tandem needs %s or later", f.ServerVersion, least), "upgrade the control plane"}}
}

func serverUntried(f *Facts) []hit {
	v, err := version.ParseGeneric(f.ServerVersion)
	if err != nil || v.Major() == newest.Major() && v.Minor() <= newest.Minor() || v.LessThan(newest) {
		return nil
	}
	return []hit{{"Server/" + f.ServerVersion, fmt.Sprintf("the API server is %s, and this release was tried up to %s", f.ServerVersion, newest), "look for a newer release of Tandem"}}
}

// secondInstallation finds pods of Tandem in other namespaces, one by namespace and program: the first by name.
func secondInstallation(f *Facts) []hit {
	found := map[string]*v1.Pod{}
	for i := range f.Pods {
		p := &f.Pods[i]
		if p.Namespace == f.Namespace || ended(p) || !decides(p) {
			continue
		}
		key := p.Namespace + "/" + p.Labels[nameLabel]
		if other := found[key]; other == nil || p.Name < other.Name {
			found[key] = p
		}
	}
	hits := make([]hit, 0, len(found))
	for _, p := range found {
		hits = append(hits, hit{
			"Pod/" + p.Namespace + "/" + p.Name, fmt.Sprintf("the pod is of %s, and Tandem is installed in the namespace %s too", p.Labels[nameLabel], f.Namespace),
			fmt.Sprintf("a cluster has one installation: remove that in the namespace %s, and apply that in %s again for its roles", p.Namespace, f.Namespace),
		})
	}
	return hits
}

// decides reports whether a pod is of a scheduler or an agent of Tandem, by its label in deploy/.
func decides(p *v1.Pod) bool {
	name := p.Labels[nameLabel]
	return name == v1alpha1.SchedulerName || name == agentName
}

// installed reports whether there is any of the three parts that every installation has.
func (f *Facts) installed() bool {
	return f.deployment(f.Scheduler) != nil || f.daemonSet(agentName) != nil || f.daemonSet(mpsName) != nil
}

func (f *Facts) deployment(name string) *apps.Deployment {
	for i := range f.Deployments {
		if f.Deployments[i].Labels[nameLabel] == name {
			return &f.Deployments[i]
		}
	}
	return nil
}

func (f *Facts) daemonSet(name string) *apps.DaemonSet {
	for i := range f.DaemonSets {
		if f.DaemonSets[i].Labels[nameLabel] == name {
			return &f.DaemonSets[i]
		}
	}
	return nil
}

func notInstalled(f *Facts) []hit {
	if f.installed() {
		return nil
	}
	return []hit{{"Namespace/" + f.Namespace, fmt.Sprintf("the namespace %s has neither the scheduler nor the agent nor MPS", f.Namespace), "install Tandem (docs/guides/install.md), or give --scheduler-namespace where it is in another namespace"}}
}

func workloadMissing(f *Facts) []hit {
	var hits []hit
	missing := func(kind, name string) {
		hits = append(hits, hit{fmt.Sprintf("%s/%s/%s", kind, f.Namespace, name), fmt.Sprintf("the namespace %s has no %s with the label %s=%s", f.Namespace, kind, nameLabel, name), apply})
	}
	if f.deployment(f.Scheduler) == nil {
		missing("Deployment", f.Scheduler)
	}
	if f.daemonSet(agentName) == nil {
		missing("DaemonSet", agentName)
	}
	if f.daemonSet(mpsName) == nil {
		missing("DaemonSet", mpsName)
	}
	return hits
}

// replicas returns how many replicas a Deployment wants.
func replicas(d *apps.Deployment) int32 {
	if d.Spec.Replicas == nil {
		return 1 // the API's default
	}
	return *d.Spec.Replicas
}

// deployments returns the Deployments of Tandem.
func (f *Facts) deployments() []*apps.Deployment {
	var all []*apps.Deployment
	for _, name := range []string{f.Scheduler, controllerApp, activatorApp} {
		if d := f.deployment(name); d != nil {
			all = append(all, d)
		}
	}
	return all
}

func workloadDown(f *Facts) []hit {
	var hits []hit
	for _, d := range f.deployments() {
		path := d.Namespace + "/" + d.Name
		switch {
		case replicas(d) == 0 && d.Labels[nameLabel] == f.Scheduler:
			hits = append(hits, hit{"Deployment/" + path, "the scheduler is scaled to 0 replicas", fmt.Sprintf("kubectl -n %s scale deployment %s --replicas=2", d.Namespace, d.Name)})
		case replicas(d) > 0 && d.Status.AvailableReplicas == 0:
			hits = append(hits, hit{"Deployment/" + path, fmt.Sprintf("none of its %d replicas is available", replicas(d)), fmt.Sprintf("kubectl -n %s logs deployment/%s says at its end why; kubectl -n %[1]s get events says why pods do not start", d.Namespace, d.Name)})
		}
	}
	return hits
}

// partOff finds the parts that a cluster may do without, where they are off.
func partOff(f *Facts) []hit {
	hits := make([]hit, 0, 2)
	for _, name := range []string{controllerApp, activatorApp} {
		switch d := f.deployment(name); {
		case d == nil:
			hits = append(hits, hit{fmt.Sprintf("Deployment/%s/%s", f.Namespace, name), fmt.Sprintf("the namespace %s has no Deployment with the label %s=%s", f.Namespace, nameLabel, name), "where somebody needs it: " + apply})
		case replicas(d) == 0:
			hits = append(hits, hit{fmt.Sprintf("Deployment/%s/%s", d.Namespace, d.Name), "it is scaled to 0 replicas", fmt.Sprintf("where somebody needs it: kubectl -n %s scale deployment %s --replicas=2", d.Namespace, d.Name)})
		}
	}
	return hits
}

func replicasMissing(f *Facts) []hit {
	var hits []hit
	for _, d := range f.deployments() {
		if n := d.Status.AvailableReplicas; n > 0 && n < replicas(d) {
			hits = append(hits, hit{fmt.Sprintf("Deployment/%s/%s", d.Namespace, d.Name), fmt.Sprintf("%d of its %d replicas are available", n, replicas(d)), fmt.Sprintf("kubectl -n %s get pods -l %s=%s shows which is not, kubectl describe says why", d.Namespace, nameLabel, d.Labels[nameLabel])})
		}
	}
	return hits
}

func noLeader(f *Facts) []hit {
	d := f.deployment(f.Scheduler)
	if d == nil || d.Status.AvailableReplicas == 0 || len(severalSchedulers(f)) > 0 {
		return nil
	}
	object := fmt.Sprintf("Lease/%s/%s", f.Namespace, f.Scheduler)
	fix := fmt.Sprintf("kubectl -n %s logs deployment/%s says why no replica gets it; where that is \"forbidden\", %s", f.Namespace, d.Name, apply)
	all := ""
	if n := d.Status.AvailableReplicas; n > 1 {
		all = fmt.Sprintf("; where leaderElect is false, all %d replicas schedule and give the same devices away", n)
	}
	switch l := f.Lease; {
	case l == nil && replicas(d) < 2: // a single scheduler may do without
		return nil
	case l == nil:
		return []hit{{object, "the scheduler's lease does not exist" + all, fix}}
	case l.Spec.HolderIdentity == nil || *l.Spec.HolderIdentity == "":
		return []hit{{object, "no replica holds the scheduler's lease" + all, fix}}
	case l.Spec.RenewTime == nil || f.Now.Sub(l.Spec.RenewTime.Time) > staleLease:
		return []hit{{object, fmt.Sprintf("%s holds the scheduler's lease and has not renewed it for more than %v", *l.Spec.HolderIdentity, staleLease) + all, fix}}
	}
	return nil
}

// tag returns the tag of an image, "" for one that is named by its digest alone.
func tag(image string) string {
	image, _, _ = strings.Cut(image, "@")
	if at := strings.LastIndex(image, ":"); at > strings.LastIndex(image, "/") {
		return image[at+1:]
	}
	return ""
}

func imagesDiffer(f *Facts) []hit {
	users := map[string][]string{}
	add := func(name, image string) {
		if t := tag(image); t != "" {
			users[t] = append(users[t], name)
		}
	}
	for _, d := range f.deployments() {
		for i := range d.Spec.Template.Spec.Containers {
			add(d.Name, d.Spec.Template.Spec.Containers[i].Image)
		}
	}
	// The image of tandem-mps may be older: it serves a newer agent.
	if a := f.daemonSet(agentName); a != nil {
		for i := range a.Spec.Template.Spec.Containers {
			add(a.Name, a.Spec.Template.Spec.Containers[i].Image)
		}
	}
	if len(users) < 2 {
		return nil
	}
	parts := make([]string, 0, len(users))
	for _, t := range slices.Sorted(maps.Keys(users)) {
		parts = append(parts, t+" of "+strings.Join(users[t], ", "))
	}
	return []hit{{"Namespace/" + f.Namespace, "the images have different tags: " + strings.Join(parts, "; "), "name one tag for all images (images.tag of the chart, or images of the kustomization), and " + apply}}
}

// outdated finds a DaemonSet of which pods are older than its template.
func (f *Facts) outdated(name, fix string) []hit {
	d := f.daemonSet(name)
	if d == nil || d.Status.UpdatedNumberScheduled >= d.Status.DesiredNumberScheduled {
		return nil
	}
	n := d.Status.DesiredNumberScheduled - d.Status.UpdatedNumberScheduled
	return []hit{{fmt.Sprintf("DaemonSet/%s/%s", d.Namespace, d.Name), fmt.Sprintf("%d of its %d pods are not of its present template", n, d.Status.DesiredNumberScheduled), fmt.Sprintf(fix, d.Namespace, d.Name)}}
}

func agentOutdated(f *Facts) []hit {
	return f.outdated(agentName, "kubectl -n %s rollout status daemonset/%s shows whether the rollout goes on; where it does not, the log of the newest pod says why")
}

func mpsOutdated(f *Facts) []hit {
	return f.outdated(mpsName, "when the release notes ask for it: drain the GPU pods of a node, then delete its pod of %s/%s")
}

func apiMissing(f *Facts) []hit {
	hits := make([]hit, 0, 1)
	for _, r := range []schema.GroupVersionResource{v1alpha1.GPUNodes, v1alpha1.WorkloadProfiles, v1alpha1.ElasticTargets, v1alpha1.InferenceFleets} {
		if slices.Contains(f.Served, r) {
			continue
		}
		other := ""
		for _, s := range f.Served {
			if s.GroupResource() == r.GroupResource() {
				other = cmp.Or(other, fmt.Sprintf(", and serves them in the version %s, which this release does not read", s.Version))
			}
		}
		hits = append(hits, hit{
			fmt.Sprintf("CustomResourceDefinition/%s.%s", r.Resource, r.Group),
			fmt.Sprintf("the API server does not serve %s of %s%s", r.Resource, r.GroupVersion(), other), "kubectl apply --server-side -f crds.yaml of the release, or -k deploy/crds in a clone of it",
		})
	}
	return hits
}

func podGroupsUnread(f *Facts) []hit {
	var unread []string
	for _, s := range f.Served {
		switch {
		case s.GroupResource() != membership.NativePodGroups.GroupResource():
		case s == membership.NativePodGroups || s == membership.StablePodGroups:
			return nil
		default:
			unread = append(unread, s.Version)
		}
	}
	if len(unread) == 0 {
		return nil
	}
	slices.Sort(unread)
	group, want := membership.NativePodGroups.Group, membership.NativePodGroups.Version
	return []hit{{
		"APIService/" + group, fmt.Sprintf("the API server serves PodGroups of %s in %s alone, and the scheduler reads %s and %s", group, strings.Join(unread, ", "), want, membership.StablePodGroups.Version),
		fmt.Sprintf("--runtime-config=%s/%s=true of the API server, where its version has it; else declare gangs by labels", group, want),
	}}
}
