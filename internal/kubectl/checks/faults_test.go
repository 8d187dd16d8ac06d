package checks_test

import (
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	coordination "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// fault is something that is wrong in a cluster that is sound otherwise, and the check that finds it.
type fault struct {
	check, name string
	make        func(*world)
}

func ofInstallation() []fault {
	return []fault{
		{"ServerTooOld", "API server 1.33", func(w *world) { w.server = "v1.33.9" }},
		{"ServerUntried", "API server 1.38", func(w *world) { w.server = "v1.38.0-alpha.1+k3s1" }},
		{"NotInstalled", "another namespace", func(w *world) {
			remove[*apps.Deployment](w, scheduler)
			remove[*apps.DaemonSet](w, "tandem-agent")
			remove[*apps.DaemonSet](w, "tandem-mps")
		}},
		{"SecondInstallation", "a scheduler and an agent elsewhere", func(w *world) {
			w.add(elsewhere("tandem-scheduler", "x"), elsewhere("tandem-scheduler", "y"), elsewhere("tandem-agent", "x"), elsewhere("tandem-agent", "y"))
		}},
		{"APIMissing", "a CRD is not applied", func(w *world) {
			w.served["tandem-gpu.io/v1alpha1"] = []string{"gpunodes", "elastictargets", "inferencefleets"}
		}},
		{"APIMissing", "a CRD of a later release", func(w *world) {
			w.served["tandem-gpu.io/v1alpha1"] = []string{"gpunodes", "workloadprofiles", "inferencefleets"}
			w.served["tandem-gpu.io/v1"] = []string{"elastictargets"}
		}},
		{"PodGroupsUnread", "PodGroups in an older version alone", func(w *world) {
			delete(w.served, "scheduling.k8s.io/v1beta1")
			w.served["scheduling.k8s.io/v1alpha1"] = []string{"podgroups"}
		}},
		{"PartOff", "a controller at 0 replicas", func(w *world) {
			d := of[*apps.Deployment](w, "tandem-controller")
			d.Spec.Replicas, d.Status.AvailableReplicas = ptr.To(int32(0)), 0
		}},
		{"PartOff", "no activator", func(w *world) { remove[*apps.Deployment](w, "tandem-activator") }},
		{"WorkloadMissing", "no MPS", func(w *world) { removeDaemonSet(w, "tandem-mps") }},
		{"WorkloadMissing", "no scheduler", func(w *world) { remove[*apps.Deployment](w, scheduler) }},
		{"WorkloadMissing", "no agent", func(w *world) { removeDaemonSet(w, "tandem-agent") }},
		{"WorkloadDown", "the scheduler crashes", func(w *world) {
			of[*apps.Deployment](w, scheduler).Status.AvailableReplicas = 0
			of[*coordination.Lease](w, scheduler).Spec.HolderIdentity = ptr.To("")
		}},
		{"WorkloadDown", "the scheduler is scaled to zero", func(w *world) {
			d := of[*apps.Deployment](w, scheduler)
			d.Spec.Replicas, d.Status.AvailableReplicas = ptr.To(int32(0)), 0
		}},
		{"ReplicasMissing", "one controller", func(w *world) { of[*apps.Deployment](w, "tandem-controller").Status.AvailableReplicas = 1 }},
		{"NoLeader", "the lease is old", func(w *world) {
			old := metav1.NewMicroTime(now.Add(-10 * time.Minute))
			of[*coordination.Lease](w, scheduler).Spec.RenewTime = &old
		}},
		{"NoLeader", "the lease has no holder", func(w *world) { of[*coordination.Lease](w, scheduler).Spec.HolderIdentity = ptr.To("") }},
		{"NoLeader", "there is no lease", func(w *world) { remove[*coordination.Lease](w, scheduler) }},
		{"NoLeader", "there is no lease, and a pod was bound long ago", func(w *world) {
			remove[*coordination.Lease](w, scheduler)
			bound(w, "train", now.Add(-time.Hour))
		}},
		{"SeveralSchedulers", "leaderElect: false", func(w *world) {
			remove[*coordination.Lease](w, scheduler)
			bound(w, "train", now.Add(-time.Minute))
		}},
		{"SeveralSchedulers", "leaderElect: false after an election", func(w *world) {
			old := metav1.NewMicroTime(now.Add(-time.Hour))
			of[*coordination.Lease](w, scheduler).Spec.RenewTime = &old
			bound(w, "train", now.Add(-time.Minute))
		}},
		{"SeveralSchedulers", "an argument", func(w *world) {
			of[*apps.Deployment](w, scheduler).Spec.Template.Spec.Containers[0].Args = []string{"--leader-elect=false"}
		}},
		{"NoLeader", "a pod was bound before the lease was left", func(w *world) {
			old := metav1.NewMicroTime(now.Add(-time.Hour))
			of[*coordination.Lease](w, scheduler).Spec.RenewTime = &old
			bound(w, "train", now.Add(-time.Hour))
		}},
		{"ImagesDiffer", "an older controller", func(w *world) {
			of[*apps.Deployment](w, "tandem-controller").Spec.Template.Spec.Containers[0].Image = "registry.example.com:5000/tandem-controller:v0.1.0@sha256:00"
		}},
		{"AgentOutdated", "a rollout that stands", func(w *world) { of[*apps.DaemonSet](w, "tandem-agent").Status.UpdatedNumberScheduled = 1 }},
		{"MPSOutdated", "older MPS", func(w *world) { of[*apps.DaemonSet](w, "tandem-mps").Status.UpdatedNumberScheduled = 0 }},
	}
}

func ofPolicies() []fault {
	binding := func(w *world, name string) *admission.ValidatingAdmissionPolicyBinding {
		return of[*admission.ValidatingAdmissionPolicyBinding](w, name)
	}
	return []fault{
		{"PolicyMissing", "one policy", func(w *world) {
			remove[*admission.ValidatingAdmissionPolicy](w, "tandem-pods")
			remove[*admission.ValidatingAdmissionPolicyBinding](w, "tandem-pods")
		}},
		{"PolicyMissing", "all policies", func(w *world) {
			for _, o := range w.objects {
				if p, ok := o.(*admission.ValidatingAdmissionPolicy); ok {
					defer remove[*admission.ValidatingAdmissionPolicy](w, p.Name)
				}
			}
		}},
		{"PolicyNotEnforced", "no binding", func(w *world) { remove[*admission.ValidatingAdmissionPolicyBinding](w, "tandem-assignment-pods") }},
		{"PolicyNotEnforced", "audit only", func(w *world) {
			binding(w, "tandem-pods").Spec.ValidationActions = []admission.ValidationAction{admission.Audit, admission.Warn}
		}},
		{"PolicyNarrowed", "some namespaces", func(w *world) {
			binding(w, "tandem-pods").Spec.MatchResources = &admission.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tenants": "yes"}}}
		}},
		{"PolicyNotEnforced", "an emptied policy", func(w *world) { of[*admission.ValidatingAdmissionPolicy](w, "tandem-keys").Spec.Validations = nil }},
		{"PolicyNarrowed", "some objects", func(w *world) {
			binding(w, "tandem-keys").Spec.MatchResources = &admission.MatchResources{ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"tenant": "yes"}}}
		}},
		{"PolicyNarrowed", "some operations", func(w *world) {
			binding(w, "tandem-keys").Spec.MatchResources = &admission.MatchResources{ExcludeResourceRules: make([]admission.NamedRuleWithOperations, 1)}
		}},
		{"PolicyNarrowed", "another exemption from host paths", func(w *world) {
			binding(w, "tandem-pods-host").Spec.MatchResources.NamespaceSelector.MatchExpressions[0].Values = []string{"allowed", "some"}
		}},
		{"PolicyFailsOpen", "ignored failures", func(w *world) {
			of[*admission.ValidatingAdmissionPolicy](w, "tandem-assignment-bindings").Spec.FailurePolicy = ptr.To(admission.Ignore)
		}},
		{"NamespaceExempt", "a labelled namespace", func(w *world) {
			of[*v1.Namespace](w, "team-a").Labels = map[string]string{"tandem-gpu.io/host-access": "allowed"}
		}},
	}
}

// bound says when the scheduler bound a pod.
func bound(w *world, name string, at time.Time) {
	p := of[*v1.Pod](w, name)
	p.Status.Conditions = append(p.Status.Conditions, v1.PodCondition{Type: v1.PodScheduled, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(at)})
}

// elsewhere is a pod of one of Tandem's programs in another namespace.
func elsewhere(program, ending string) *v1.Pod {
	p := runsImage(program+"-"+ending, "main", "registry.example.com/"+program+":v0.1.0", "ReplicaSet")
	p.Namespace, p.Labels = "gpu-system", map[string]string{"app.kubernetes.io/name": program}
	return p
}

func ofNodes() []fault {
	info := func(w *world) *v1.NodeSystemInfo { return &of[*v1.Node](w, "gpu-2").Status.NodeInfo }
	return []fault{
		{"NodeNotReady", "a node without its kubelet", func(w *world) {
			of[*v1.Node](w, "gpu-2").Status.Conditions[0].Status = v1.ConditionUnknown
			crash(w, "tandem-agent-gpu-2")
			crash(w, "tandem-mps-gpu-2")
		}},
		{"KubeletTooOld", "kubelet 1.33", func(w *world) { info(w).KubeletVersion = "v1.33.1-gke.100" }},
		{"RuntimeWithoutCDI", "containerd 1.7", func(w *world) { info(w).ContainerRuntimeVersion = "containerd://1.7.28" }},
		{"RuntimeWithoutCDI", "docker", func(w *world) { info(w).ContainerRuntimeVersion = "docker://29.0.1" }},
		{"OtherPlugin", "NVIDIA's device plugin", func(w *world) {
			of[*v1.Node](w, "gpu-2").Status.Capacity["nvidia.com/gpu"] = resource.MustParse("2")
			w.add(rivalPod())
		}},
		{"OtherPlugin", "Volcano's device plugin", func(w *world) {
			of[*v1.Node](w, "gpu-1").Status.Capacity["volcano.sh/vgpu-number"] = resource.MustParse("20")
		}},
		{"OtherProgram", "a device plugin that offers nothing yet", func(w *world) { w.add(rivalPod()) }},
		{"OtherProgram", "HAMi's device plugin", func(w *world) {
			w.add(runsImage("hami-device-plugin-x", "device-plugin", "registry.example.com/projecthami/hami@sha256:00", "DaemonSet"))
		}},
		{"DeviceInjector", "Google's injector", func(w *world) {
			w.add(runsImage("device-injector-x", "injector", "gcr.io/gke-release/nri-device-injector:1.0.25", "DaemonSet"))
		}},
		{"DeviceInjector", "NVIDIA's toolkit with its NRI plugin", func(w *world) {
			p := runsImage("nvidia-container-toolkit-x", "nvidia-container-toolkit-ctr", "nvcr.io/nvidia/k8s/container-toolkit:v1.19.0", "DaemonSet")
			p.Spec.Containers[0].Env = []v1.EnvVar{{Name: "ENABLE_NRI_PLUGIN", Value: "true"}}
			w.add(p)
		}},
		{"AgentDown", "an agent that crashes", func(w *world) { crash(w, "tandem-agent-gpu-2") }},
		{"AgentDown", "an agent that is being deleted", func(w *world) {
			p := of[*v1.Pod](w, "tandem-agent-gpu-2")
			p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: now}, []string{"example.com/keep"}
		}},
		{"AgentDown", "no agent, and what it said is old", func(w *world) {
			w.agentSays(1, v1alpha1.ReadyStopping, "")
			remove[*v1.Pod](w, "tandem-agent-gpu-2")
		}},
		{"MPSDown", "no MPS on a node", func(w *world) { remove[*v1.Pod](w, "tandem-mps-gpu-1") }},
		{"SlotsDiffer", "a kubelet that lost slots", func(w *world) {
			of[*v1.Node](w, "gpu-1").Status.Allocatable[v1alpha1.ResourceVGPU] = resource.MustParse("0")
		}},
	}
}

// crash has the container of a pod wait for its next start.
func crash(w *world, pod string) {
	p := of[*v1.Pod](w, pod)
	p.Status.Conditions[0].Status = v1.ConditionFalse
	p.Status.ContainerStatuses[0].State = v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
}

// removeDaemonSet takes a DaemonSet and its pods out of the cluster.
func removeDaemonSet(w *world, name string) {
	remove[*apps.DaemonSet](w, name)
	remove[*v1.Pod](w, name+"-gpu-1")
	remove[*v1.Pod](w, name+"-gpu-2")
}

// rivalPod is a pod of NVIDIA's device plugin.
func rivalPod() *v1.Pod {
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "nvidia-device-plugin-x"},
		Spec:       v1.PodSpec{NodeName: "gpu-2", Containers: []v1.Container{{Name: "main", Image: "nvcr.io/nvidia/k8s-device-plugin:v0.19.0"}}},
	}
}

func ofGPUNodes() []fault {
	return []fault{
		{"GPUNodeMissing", "an agent that may not write", func(w *world) { w.gpuNodes = w.gpuNodes[:1] }},
		{"GPUNodeLeftOver", "a node that is gone", func(w *world) { w.gpuNodes = append(w.gpuNodes, gpuNode("gpu-0")) }},
		{"GPUNodeLeftOver", "a node without the label", func(w *world) { w.gpuNodes = append(w.gpuNodes, gpuNode("cpu-1")) }},
		{"DriverMissing", "no driver", func(w *world) {
			w.agentSays(1, v1alpha1.ReadyNoDriver, "libnvidia-ml.so.1 is not there")
			w.gpuNodes[1].Status.Devices, w.gpuNodes[1].Status.DriverVersion = nil, ""
			w.add(tenant("late", "gpu-2", 0, 3))
		}},
		{"NotRegistered", "a kubelet that does not watch", func(w *world) {
			w.agentSays(1, v1alpha1.ReadyNotRegistered, "the kubelet does not watch the slots")
			of[*v1.Node](w, "gpu-2").Status.Allocatable[v1alpha1.ResourceVGPU] = resource.MustParse("0")
		}},
		{"PodsUnknown", "kubelet 1.36 without the component", func(w *world) {
			of[*v1.Node](w, "gpu-2").Status.NodeInfo.KubeletVersion = "v1.36.3"
			w.agentSays(1, v1alpha1.ReadyPodsUnknown, "pods is forbidden")
			w.condition(1, v1alpha1.ConditionPodsKnown, v1alpha1.PodsUnknown, "pods is forbidden")
		}},
		{"PodsUnknown", "kubelet 1.37 with its Pods API off", func(w *world) {
			w.agentSays(1, v1alpha1.ReadyPodsUnknown, "")
		}},
		{"GPUNodeNotReady", "an agent that stops", func(w *world) {
			w.agentSays(1, v1alpha1.ReadyStopping, "the agent was told to stop")
			w.gpuNodes[1].Status.DriverVersion = "550.54.15"
		}},
		{"GPUNodeNotReady", "conditions that nobody wrote", func(w *world) { w.gpuNodes[1].Status.Conditions = nil }},
		{"GPUNodeInvalid", "a status of another form", func(w *world) { w.gpuNodes, w.malformed = w.gpuNodes[:1], []string{"gpu-2"} }},
		{"GPUNodeInvalid", "a device without memory", func(w *world) { w.gpuNodes[1].Status.Devices[1].Memory = resource.MustParse("0") }},
		{"PodsFromServer", "kubelet 1.37 with its Pods API off, and the component", func(w *world) {
			for i := range w.gpuNodes[0].Status.Conditions {
				if c := &w.gpuNodes[0].Status.Conditions[i]; c.Type == v1alpha1.ConditionPodsKnown {
					c.Reason = v1alpha1.PodsFromServer
				}
			}
		}},
		{"DeviceSick", "XID 79", func(w *world) { w.sicken(1, "XID79", "the GPU has fallen off the bus") }},
		{"MPSSick", "MPS hangs", func(w *world) { w.sicken(1, "MPSNotAnswering", "no answer in 10s") }},
		{"DeviceRecovers", "a device after MPS was replaced", func(w *world) { w.sicken(1, "Recovering", "") }},
		{"DeviceCordoned", "a fan that is replaced", func(w *world) {
			w.gpuNodes[1].Spec.CordonedDevices = []v1alpha1.CordonedDevice{{ID: w.gpuNodes[1].Status.Devices[0].ID, Reason: "fan, ticket 123"}}
		}},
		{"NotMonitored", "no libcuda", func(w *world) {
			w.condition(0, v1alpha1.ConditionMonitored, v1alpha1.MonitoredNoCUDA, "there is no libcuda.so.1")
		}},
		{"NotMonitored", "a canary that fails", func(w *world) { w.condition(0, v1alpha1.ConditionMonitored, v1alpha1.MonitoredProbeFails, "") }},
		{"NotEnforced", "a GPU older than Volta", func(w *world) {
			d := &w.gpuNodes[1].Status.Devices[0]
			d.Model, d.Enforcement = "Tesla-P100-PCIE-16GB", v1alpha1.EnforcementNone
		}},
		{"DriversDiffer", "one node was forgotten", func(w *world) {
			w.gpuNodes = append(w.gpuNodes, gpuNode("gpu-3"))
			w.add(node("gpu-3", true), daemonPod("tandem-agent", "gpu-3"), daemonPod("tandem-mps", "gpu-3"))
			w.gpuNodes[1].Status.DriverVersion = "550.54.15"
		}},
	}
}

func ofPods() []fault {
	return []fault{
		{"OtherScheduler", "a pod that waits elsewhere", func(w *world) { of[*v1.Pod](w, "waits").Spec.SchedulerName = "default-scheduler" }},
		{"OtherScheduler", "a scheduler with the name of a resource in the policy", func(w *world) { of[*v1.Pod](w, "waits").Spec.SchedulerName = "cpu" }},
		{"StrayPod", "a pod that another scheduler bound", func(w *world) {
			p := of[*v1.Pod](w, "waits")
			p.Spec.SchedulerName, p.Spec.NodeName = "default-scheduler", "gpu-2"
		}},
		{"StrayPod", "an assignment of another pod", func(w *world) { of[*v1.Pod](w, "train").UID = "uid-other" }},
		{"DevicesGone", "a GPU was replaced", func(w *world) { w.gpuNodes[0].Status.Devices[0].ID = "GPU-new" }},
		{"Overbooked", "a device with too many slots taken", func(w *world) { w.add(tenant("zeta", "gpu-1", 0, 4)) }},
		{"NotChecked", "no right to policies", func(w *world) { w.refused = []string{"validatingadmissionpolicies"} }},
		{"NotChecked", "no right to pods", func(w *world) { w.refused = []string{"pods"} }},
		{"NotChecked", "no right to GPUNodes and the lease", func(w *world) { w.refused = []string{"gpunodes", "leases"} }},
		{"NotChecked", "the rights of a tenant", func(w *world) {
			w.refused = []string{"nodes", "gpunodes", "pods", "namespaces", "deployments", "daemonsets", "leases", "validatingadmissionpolicies", "validatingadmissionpolicybindings"}
		}},
	}
}
