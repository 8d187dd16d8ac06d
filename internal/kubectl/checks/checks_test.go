package checks_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	admission "k8s.io/api/admissionregistration/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/tandem-gpu/tandem/internal/kubectl/checks"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/test/must"
)

// update writes the golden file anew: TANDEM_UPDATE=1 go test ./internal/kubectl/checks.
var update = os.Getenv("TANDEM_UPDATE") != ""

func faults() []fault {
	return slices.Concat(ofInstallation(), ofPolicies(), ofNodes(), ofGPUNodes(), ofPods())
}

// Each fault has findings of its own check and no others, in words that the golden file has.
func TestFaults(t *testing.T) {
	var all bytes.Buffer
	for _, x := range faults() {
		w := sound(t)
		x.make(w)
		r := checks.Find(w.facts(t))
		fmt.Fprintf(&all, "== %s: %s\n", x.check, x.name)
		for _, found := range r.Findings {
			fmt.Fprintf(&all, "%s %s\n  %s\n  fix: %s\n", found.Severity, found.Object, found.What, found.Fix)
			if found.Check != x.check {
				t.Errorf("%s, %s: %s is found too: %s, %s", x.check, x.name, found.Check, found.Object, found.What)
			}
		}
		if len(r.Findings) == 0 {
			t.Errorf("%s, %s: nothing is found", x.check, x.name)
		}
		partition(t, r)
	}
	golden := filepath.Join("testdata", "findings.txt")
	if update {
		must.OK(t, os.WriteFile(golden, all.Bytes(), 0o600))
	}
	want, err := os.ReadFile(golden)
	must.OK(t, err)
	for i, line := range strings.Split(all.String(), "\n") {
		if lines := strings.Split(string(want), "\n"); i >= len(lines) || lines[i] != line {
			t.Fatalf("line %d of %s differs, got\n%s", i+1, golden, line)
		}
	}
	if !bytes.Equal(want, all.Bytes()) {
		t.Errorf("%s has more lines", golden)
	}
}

// partition: each check passed, was not done, or has findings, and nothing else.
func partition(t *testing.T, r *checks.Report) {
	t.Helper()
	seen := map[string]int{}
	for _, name := range slices.Concat(r.Passed, r.NotDone) {
		seen[name]++
	}
	found := map[string]bool{}
	for _, x := range r.Findings {
		found[x.Check] = true
	}
	for _, c := range checks.All() {
		if found[c.Name] {
			seen[c.Name]++
		}
		if seen[c.Name] != 1 {
			t.Errorf("%s is in %d of the findings, the passed checks and those not done", c.Name, seen[c.Name])
		}
	}
}

// A sound cluster has no findings, and all checks are carried out.
func TestSound(t *testing.T) {
	r := checks.Find(sound(t).facts(t))
	for _, x := range r.Findings {
		t.Errorf("%s %s: %s", x.Check, x.Object, x.What)
	}
	if len(r.NotDone) > 0 || len(r.Passed) != len(checks.All()) || r.Worst() != "" {
		t.Errorf("not done: %v, passed: %v", r.NotDone, r.Passed)
	}
}

// There is a fault for each check, and twenty at least.
func TestAllChecksAreMet(t *testing.T) {
	met := map[string]bool{}
	for _, x := range faults() {
		met[x.check] = true
	}
	for _, c := range checks.All() {
		if !met[c.Name] {
			t.Errorf("no fault is for %s", c.Name)
		}
	}
	if len(met) < 20 {
		t.Errorf("%d kinds of faults", len(met))
	}
}

// The table of policies is that of deploy/policies: without any of them the checks find exactly that one.
func TestPoliciesOfDeploy(t *testing.T) {
	n := 0
	for _, o := range sound(t).objects {
		p, ok := o.(*admission.ValidatingAdmissionPolicy)
		if !ok {
			continue
		}
		n++
		w := sound(t)
		remove[*admission.ValidatingAdmissionPolicy](w, p.Name)
		if r := checks.Find(w.facts(t)); len(r.Findings) != 1 || r.Findings[0].Object != "ValidatingAdmissionPolicy/"+p.Name {
			t.Errorf("without %s: %v", p.Name, r.Findings)
		}
	}
	if n < 10 {
		t.Errorf("deploy/policies has %d policies", n)
	}
}

// Findings are sorted by severity, then by check and object, whatever the order of the facts.
func TestOrder(t *testing.T) {
	w := sound(t)
	for _, x := range []string{"NamespaceExempt", "ReplicasMissing", "StrayPod", "DeviceSick", "NotEnforced", "GPUNodeLeftOver", "SecondInstallation"} {
		at := slices.IndexFunc(faults(), func(f fault) bool { return f.check == x })
		faults()[at].make(w)
	}
	for _, name := range []string{"gpu-1", "gpu-2"} { // the same words of two objects
		of[*v1.Node](w, name).Status.NodeInfo.KubeletVersion = "v1.33.9"
	}
	f := w.facts(t)
	first := checks.Find(f)
	slices.Reverse(f.Pods)
	slices.Reverse(f.GPUNodes)
	slices.Reverse(f.Nodes)
	slices.Reverse(f.Policies)
	if again := checks.Find(f); !slices.Equal(first.Findings, again.Findings) {
		t.Errorf("another order of the facts gives %v, not %v", again.Findings, first.Findings)
	}
	severities := []checks.Severity{}
	for _, x := range first.Findings {
		severities = append(severities, x.Severity)
	}
	want := []checks.Severity{checks.Error, checks.Error, checks.Error, checks.Error, checks.Error, checks.Error, checks.Warning, checks.Warning, checks.Note, checks.Note}
	if !slices.Equal(severities, want) || first.Worst() != checks.Error {
		t.Errorf("got %v, worst %s", severities, first.Worst())
	}
}

// Faults of which none causes the other are found together, and those of GPUNodes without a right to pods too.
func TestTogether(t *testing.T) {
	w := sound(t)
	w.sicken(1, "XID79", "")
	w.agentSays(1, v1alpha1.ReadyNotRegistered, "")
	w.refused = []string{"pods"}
	var got []string
	for _, x := range checks.Find(w.facts(t)).Findings {
		got = append(got, x.Check)
	}
	if want := []string{"DeviceSick", "NotRegistered", "NotChecked"}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A legal object, or one of somebody else, is no finding.
func TestLegal(t *testing.T) {
	for name, change := range map[string]func(*world){
		"a further scheduler": func(w *world) {
			p := of[*admission.ValidatingAdmissionPolicy](w, "tandem-pods")
			for i := range p.Spec.Variables {
				if p.Spec.Variables[i].Name == "schedulers" {
					p.Spec.Variables[i].Expression = `['tandem-scheduler', "night-scheduler"]`
				}
			}
			podNamed(w, "waits").Spec.SchedulerName = "night-scheduler"
		},
		"a scheduler elsewhere that has ended": func(w *world) {
			p := elsewhere("tandem-scheduler", "x")
			p.Status.Phase = v1.PodSucceeded
			w.add(p)
		},
		"shadow mode elsewhere":              func(w *world) { w.add(elsewhere("tandem-shadow", "x")) },
		"a single scheduler without a lease": single,
		"kubelet 1.36 with the component":    olderKubelet,
		"a stray pod that has ended":         strayThatEnded,
		"images by digest":                   byDigest,
		"MPS of another tag":                 olderMPS,
		"bindings of one's own beside":       ownBinding,
		"network cards of NVIDIA": func(w *world) {
			of[*v1.Node](w, "gpu-1").Status.Capacity["nvidia.com/hostdev"] = resource.MustParse("8")
		},
		"a plugin that offers nothing now": func(w *world) { of[*v1.Node](w, "gpu-1").Status.Capacity["nvidia.com/gpu"] = resource.MustParse("0") },
		"PodGroups of Kubernetes 1.38": func(w *world) {
			delete(w.served, "scheduling.k8s.io/v1beta1")
			w.served["scheduling.k8s.io/v1"] = []string{"podgroups"}
		},
		"a device plugin that has ended": func(w *world) { p := rivalPod(); p.Status.Phase = v1.PodFailed; w.add(p) },
		"HAMi's scheduler": func(w *world) {
			w.add(runsImage("hami-scheduler", "scheduler", "projecthami/hami:v2.7.0", "ReplicaSet"))
		},
		"labels of nodes by NVIDIA": func(w *world) {
			w.add(runsImage("gfd", "gpu-feature-discovery-ctr", "nvcr.io/nvidia/k8s-device-plugin:v0.19.0", "DaemonSet"))
		},
		"a device plugin on another node": func(w *world) { p := rivalPod(); p.Spec.NodeName = "cpu-1"; w.add(p) },
		"a node that is being looked at":  func(w *world) { w.condition(0, v1alpha1.ConditionMonitored, v1alpha1.MonitoredNotYet, "") },
	} {
		w := sound(t)
		change(w)
		for _, x := range checks.Find(w.facts(t)).Findings {
			t.Errorf("%s: %s %s: %s", name, x.Check, x.Object, x.What)
		}
	}
}

// A kubelet offers enough where it offers the slots of all devices but the cordoned ones: the scheduler uses the node. One that offers more than the
// healthy devices have is behind.
func TestSlotsBesideACordonedDevice(t *testing.T) {
	for offered, want := range map[string]bool{"9": true, "10": false, "20": false, "21": true} {
		w := sound(t)
		g := w.gpuNodes[0]
		g.Spec.CordonedDevices = []v1alpha1.CordonedDevice{{ID: g.Status.Devices[0].ID}}
		of[*v1.Node](w, "gpu-1").Status.Allocatable[v1alpha1.ResourceVGPU] = resource.MustParse(offered)
		findings := checks.Find(w.facts(t)).Findings
		got := slices.ContainsFunc(findings, func(x checks.Finding) bool { return x.Check == "SlotsDiffer" })
		if got != want {
			t.Errorf("a kubelet that offers %s of 20 slots beside a cordoned device of 10: %t in %+v", offered, got, findings)
		}
	}
}

// Each page exists, with its heading.
func TestPages(t *testing.T) {
	root := filepath.Join("..", "..", "..")
	unsaid := regexp.MustCompile("[^a-z0-9 _-]")
	for _, c := range checks.All() {
		file, anchor, _ := strings.Cut(c.Page, "#")
		raw, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			t.Errorf("%s: %v", c.Name, err)
			continue
		}
		ok := anchor == ""
		for line := range strings.Lines(string(raw)) {
			if heading := strings.TrimLeft(strings.TrimSpace(line), "#"); heading != strings.TrimSpace(line) {
				ok = ok || strings.ReplaceAll(unsaid.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), ""), " ", "-") == anchor
			}
		}
		if !ok {
			t.Errorf("%s: %s has no heading %s", c.Name, file, anchor)
		}
	}
}

// Before an installation the checks look at the API server alone. They tell a user who may not ask what it serves of the role that
// has the right.
func TestServerAlone(t *testing.T) {
	names := func(f *checks.Facts) (all []string) {
		for _, x := range checks.Find(f).Findings {
			all = append(all, x.Check+": "+x.Fix)
		}
		return all
	}
	f := &checks.Facts{Namespace: "tandem-system", Scheduler: "tandem-scheduler", ServerVersion: "v1.29.1"}
	if got := names(f); len(got) != 2 || !strings.HasPrefix(got[0], "NotInstalled: ") || got[1] != "ServerTooOld: upgrade the control plane" {
		t.Errorf("before an installation: %v", got)
	}
	f = sound(t).facts(t)
	f.Refused = []checks.Source{checks.Server}
	if got := names(f); len(got) != 1 || got[0] != "NotChecked: kubectl create clusterrolebinding doctor-discovery --clusterrole=system:discovery --user=NAME" {
		t.Errorf("without discovery: %v", got)
	}
}
