package checks

import "github.com/tandem-gpu/tandem/pkg/api/v1alpha1"

// Pages of the documentation.
const (
	installPage  = "docs/guides/install.md"
	versionsPage = installPage + "#versions-of-kubernetes"
	upgradePage  = installPage + "#upgrades-and-restarts"
	removalPage  = installPage + "#taking-a-node-away"
	policiesPage = "docs/guides/security.md#admission-policies"
	kubectlPage  = "docs/guides/kubectl.md#rights"
	runbooks     = "docs/runbooks.md#"
)

// All returns the checks, by what they look at.
func All() []Check {
	var all []Check
	for _, group := range [][]Check{ofInstallation(), ofPolicies(), ofNodes(), ofGPUNodes(), ofPods()} {
		all = append(all, group...)
	}
	return append(all, Check{notChecked, Warning, nil, "An unchecked part may be broken.", kubectlPage, unread})
}

func ofInstallation() []Check {
	workloads := []Source{Deployments, DaemonSets}
	return []Check{
		{"ServerTooOld", Error, []Source{Server}, "The scheduler ends at its start with such an API server.", versionsPage, serverTooOld},
		{"ServerUntried", Note, []Source{Server}, "Nobody has tried this release with it.", versionsPage, serverUntried},
		{"NotInstalled", Error, workloads, "Nothing shares GPUs in this cluster, and the other checks have nothing to look at.", installPage, notInstalled},
		{"SecondInstallation", Error, []Source{Pods}, "Two schedulers choose devices for the same pods, and the roles of both have the accounts of one.", installPage, secondInstallation},
		{"APIMissing", Error, []Source{Server}, "The programs of Tandem cannot read or write these objects.", installPage, apiMissing},
		{"PodGroupsUnread", Note, []Source{Server}, "The scheduler does not see gangs that such PodGroups declare. Gangs of labels work.", versionsPage, podGroupsUnread},
		{"WorkloadMissing", Error, workloads, "A part of Tandem without which no pod with vGPUs starts is not there.", installPage, workloadMissing},
		{"WorkloadDown", Error, []Source{Deployments}, "The work of this program is not done.", runbooks + "tandemschedulerdown", workloadDown},
		{"PartOff", Note, []Source{Deployments}, "Elastic jobs, inference fleets and notebooks that need it stay as they are.", installPage, partOff},
		{"ReplicasMissing", Warning, []Source{Deployments}, "The next failure of a pod or a node stops what this program does.", runbooks + "tandemschedulerdown", replicasMissing},
		{"NoLeader", Error, []Source{Deployments, Leases}, "Replicas run, and none of them schedules.", runbooks + "tandemschedulerwithoutleader", noLeader},
		{"SeveralSchedulers", Error, []Source{Deployments, Leases, Pods}, "Each chooses devices without the others. The agents refuse what does not fit, and pods start late or not at all.", installPage, severalSchedulers},
		{"ImagesDiffer", Warning, workloads, "Programs and policies of different releases may refuse what the others write.", upgradePage, imagesDiffer},
		{"AgentOutdated", Warning, []Source{DaemonSets}, "The nodes run agents of different releases or configurations.", upgradePage, agentOutdated},
		{"MPSOutdated", Note, []Source{DaemonSets}, "An apply does not replace MPS, since its end is the end of all GPU work of the node.", upgradePage, mpsOutdated},
	}
}

func ofPolicies() []Check {
	policies := []Source{Policies, Bindings}
	return []Check{
		{"PolicyMissing", Error, []Source{Policies}, "Without it tenants may do what it forbids, such as write their own assignments.", policiesPage, policyMissing},
		{"PolicyNotEnforced", Error, policies, "The policy is there and refuses nothing.", policiesPage, policyNotEnforced},
		{"PolicyNarrowed", Warning, policies, "Requests that the binding leaves out are not looked at.", policiesPage, policyNarrowed},
		{"PolicyFailsOpen", Warning, []Source{Policies}, "A request for which the policy cannot be evaluated is let through.", policiesPage, policyFailsOpen},
		{"NamespaceExempt", Note, []Source{Namespaces}, "A user who may create pods there can use more of a GPU than its share.", policiesPage, namespaceExempt},
	}
}

func ofNodes() []Check {
	return []Check{
		{"NodeNotReady", Error, []Source{Nodes}, "Nothing starts on the node, and the other checks leave it out.", "docs/debugging.md#a-node", nodeNotReady},
		{"KubeletTooOld", Error, []Source{Nodes}, "The agent does not work with such a kubelet.", versionsPage, kubeletTooOld},
		{"RuntimeWithoutCDI", Error, []Source{Nodes}, "The agent gives containers their devices by CDI, which such a runtime does not read.", installPage, runtimeWithoutCDI},
		{"OtherPlugin", Error, []Source{Nodes}, "A GPU has one owner: two that give it away each think that they have all of it.", installPage, otherPlugin},
		{"OtherProgram", Warning, []Source{Nodes, Pods}, "It may give the GPUs to others, or start an MPS daemon in front of Tandem's.", installPage, otherProgram},
		{"DeviceInjector", Warning, []Source{Nodes, Pods}, "Annotations give a pod devices past Tandem. The policies refuse them in pods with vGPUs alone.", policiesPage, deviceInjector},
		{"AgentDown", Error, []Source{Nodes, Pods}, "No container with vGPUs starts on the node, and nobody sees faults of its devices.", runbooks + "tandemagentdown", agentDown},
		{"MPSDown", Error, []Source{Nodes, Pods}, "The agent has no MPS daemons to give shares by.", runbooks + "tandemmpsdown", mpsDown},
		{"SlotsDiffer", Warning, []Source{Nodes, GPUNodes}, "The scheduler and the kubelet count differently, so pods are rejected or slots stay unused.", runbooks + "tandemagentnotregistered", slotsDiffer},
	}
}

func ofGPUNodes() []Check {
	both := []Source{Nodes, GPUNodes}
	return []Check{
		{"GPUNodeMissing", Error, both, "The scheduler places nothing on a node without a GPUNode.", runbooks + "tandemgpunodenotwritten", gpuNodeMissing},
		{"GPUNodeLeftOver", Warning, both, "The object tells of devices for which nobody answers.", removalPage, gpuNodeLeftOver},
		{"DriverMissing", Error, both, "The node offers no GPU.", runbooks + "tandemnodesrefused", notReady(v1alpha1.ReadyNoDriver)},
		{"NotRegistered", Error, both, "The kubelet offers no slots of the node.", runbooks + "tandemagentnotregistered", notReady(v1alpha1.ReadyNotRegistered)},
		{"PodsUnknown", Error, both, "No container with vGPUs can start on the node.", versionsPage, notReady(v1alpha1.ReadyPodsUnknown)},
		{"GPUNodeNotReady", Error, both, "The scheduler places nothing on the node.", runbooks + "tandemnodesrefused", notReadyElse},
		{"GPUNodeInvalid", Error, both, "The scheduler places nothing on the node.", runbooks + "tandemnodesrefused", gpuNodeInvalid},
		{"PodsFromServer", Note, both, "While the API server is away, the agent starts containers of no new pods.", versionsPage, podsFromServer},
		{"DeviceSick", Error, both, "The scheduler places nothing on the device.", runbooks + "tandemdeviceunhealthy", deviceSick},
		{"MPSSick", Error, both, "The tenants of the device do no GPU work.", runbooks + "tandemmpsdown", mpsSick},
		{"DeviceRecovers", Warning, both, "The scheduler places nothing on the device until it has been well for a while.", runbooks + "tandemdeviceunhealthy", deviceRecovers},
		{"DeviceCordoned", Note, both, "The device takes no new pods, as an administrator wants it.", installPage + "#draining-a-node", deviceCordoned},
		{"NotMonitored", Warning, both, "If a device served no program any more, nobody would notice.", runbooks + "tandemdeviceunmonitored", notMonitored},
		{"NotEnforced", Note, both, "Shares of the device count for placement only.", "docs/enforcement.md#none", notEnforced},
		{"DriversDiffer", Note, both, "Programs behave differently by node, and so may MPS.", upgradePage, driversDiffer},
	}
}

func ofPods() []Check {
	return []Check{
		{"OtherScheduler", Warning, []Source{Pods, Policies}, "Only Tandem's scheduler chooses devices. Bound by another, the pod never starts.", runbooks + "tandemcontainersrefused", otherScheduler},
		{"StrayPod", Error, []Source{Pods}, "The scheduler cannot know which device the pod uses, and keeps away from the slots.", runbooks + "tandemstrayslots", strayPod},
		{"DevicesGone", Error, []Source{Nodes, GPUNodes, Pods}, "The pod holds what the node does not have, and its containers do not start again there.", runbooks + "tandemassignmentdrift", devicesGone},
		{"Overbooked", Warning, []Source{Nodes, GPUNodes, Pods}, "The device takes no new pods until enough of them have ended.", installPage + "#configuration", overbooked},
	}
}
