package messages

var schedulerEvents = Section{
	Title:    "Events of the scheduler",
	Where:    "Events of pods and PodGroups: `kubectl describe pod NAME`, `kubectl tandem events`.",
	Packages: []string{"pkg/plugins/gpushare", "pkg/plugins/gpugang", "internal/scheduler/machine"},
	Rows: []Row{
		{"FailedScheduling", "", "The pod waits. The text is one of the [refusals](#refusals-of-a-share) with its numbers, or names a field that is wrong.", "Do what the text says; `kubectl tandem why POD` tries on a snapshot what would help."},
		{"NodePaused", "node … gets no vGPU pods for …, since its kubelet refused this one", "A kubelet refused a pod that the scheduler had placed. The node is left alone for a while, longer each time.", "See [TandemNodesPaused](../runbooks.md#tandemnodespaused): the agent of that node is down or has just started."},
		{"WorkloadProfileNotFound", "the WorkloadProfile … does not exist", "The label `tandem-gpu.io/profile` names a profile that is not in the pod's namespace. Where the pod wants a rate it waits.", "Correct the label, or create the WorkloadProfile."},
		{"GangPlaced", "all that must run have a place", "The scheduler has a place for every member that must run, and binds them together.", "Nothing."},
		{"GangReleased", "gang … had fewer than … of its members bound after …: its bound members are evicted", "Some members were bound and the others could not be, so the gang never ran. Its room is given back.", "The events of the other members say why they were not bound; the owner of the gang makes its pods again."},
	},
}

var preemptionEvents = Section{
	Title:    "Events of preemption",
	Where:    "Events of victims and of PodGroups, written by the scheduler.",
	Packages: []string{"pkg/plugins/gpupreempt"},
	Rows: []Row{
		{"Preempted", "Preempted by …", "The scheduler evicted this pod for one of a higher priority.", "Nothing, where the pod's owner makes it again. To protect it, see [protecting a workload](../guides/preemption.md#protect-a-workload)."},
		{"Preempting", "preemption: ", "The scheduler evicts pods for this gang and keeps their devices for it.", "Wait until the victims have ended."},
		{"NotPreempting", "preemption: ", "The scheduler evicts no pod for this gang.", "The text is one of the [refusals of preemption](#refusals-of-preemption)."},
	},
}

var shareRefusals = Section{
	Title:    "Refusals of a share",
	Where:    "In the pod's event `FailedScheduling`, in its condition `PodScheduled`, in `kubectl tandem why` and as the label `reason` of metrics; decided by `pkg/vgpu` for each node.",
	Packages: []string{"pkg/vgpu", "pkg/why"},
	Rows: []Row{
		{"IllegalSlots", "asks for … slots, which is neither a part of one device nor whole devices; nearest legal values: …", "`tandem-gpu.io/vgpu` is more than the slots of one device and no multiple of them.", "Ask for one of the values that the text names; the pod has to be created again ([slots](../guides/requests.md#slots))."},
		{"MemoryAboveDevice", "of device memory; it can have at most …", "`tandem-gpu.io/vgpu-memory` is more than the devices have.", "Ask for less, for a model with more memory, or for more whole devices."},
		{"ComputeLimitBelowRequest", "limit … is below the request of …; the least legal limit is …", "The annotation `tandem-gpu.io/compute-limit` is under the guaranteed share.", "Raise the annotation to what the text names, or leave it out."},
		{"MemoryLimitBelowRequest", "limit … is below the request of …; the least legal limit is …", "The annotation `tandem-gpu.io/memory-limit` is under the guaranteed memory.", "Raise the annotation to what the text names, or leave it out."},
		{"LimitAboveDevice", "limit … is above the device; the most legal limit is …", "A limit is above what a device has.", "Lower the annotation to what the text names."},
		{"TooFewDevices", "whole devices", "The node has fewer GPUs of the model than the pod asks for, also if all were free.", "Ask for fewer, or make a gang of several pods."},
		{"NoShareFits", "", "No healthy device of the node has the slots, the memory or the MPS clients free. The text names the nearest.", "Wait, ask for less, or give the pod a priority; `kubectl tandem why` says which of these helps."},
		{"NoWholeDevices", "number of wholly free … devices on … is … of …", "Not enough GPUs of the node are wholly free: shares of other pods lie on them.", "Wait, or use preemption; the policy `tandem` keeps whole GPUs free where it can."},
		{"NoTogether", "the containers fit one by one, not at once", "Each container of the pod fits, and not all of them together.", "Ask for less in one container, or make pods of the containers."},
		{"NoAllowedModel", "", "The pod's annotation `tandem-gpu.io/gpu-models`, or its profile, allows no GPU model that the node has.", "Correct the annotation: `kubectl get gpunodes -o yaml` shows the models."},
		{"PromiseBroken", "", "A device has room, and there the pod or a neighbour would become slower than its `max-slowdown` allows.", "Wait, ask for more slots, or promise less ([how to read it](../guides/interference.md#read-the-refusal))."},
		{"HostFull", "", "The node has the GPUs, and too little CPU, memory or another resource of the host.", "Ask for less of it, or wait for pods that hold it."},
		{"StraySlots", "", "Pods without an assignment hold slots of the node, so that the scheduler keeps away from these slots.", "[TandemStraySlots](../runbooks.md#tandemstrayslots)."},
		{"NoDevices", " has no GPUs", "The node has no GPUs for Tandem.", "Nothing, if that is so; else see [TandemNodesRefused](../runbooks.md#tandemnodesrefused)."},
	},
}

var gangRefusals = Section{
	Title:    "Refusals of a gang",
	Where:    "In the event `FailedScheduling` of the members, in the condition of the PodGroup and in `kubectl tandem why gang/NAME`.",
	Packages: []string{"pkg/gang", "pkg/reservation"},
	Rows: []Row{
		{"NoLevel", "", "No node has the label that the gang requires as its topology.", "Label the nodes, or correct the annotation `tandem-gpu.io/required-topology`."},
		{"NeverFits", "", "The gang is larger than the cluster or than each domain, or its request is legal on no device.", "Make the gang or its requests smaller, or require a wider topology ([limits](../guides/gangs.md#limits))."},
		{"NoRoom", "", "A domain is large enough, and other pods or unhealthy devices take its room. The text has the nearest domain.", "Wait, or give the gang a priority ([when there is no room](../guides/gangs.md#when-there-is-no-room))."},
		{"PlacedApart", "", "Members that run already are in several domains of a required topology, so no place for the others can be right.", "Delete the members that are apart."},
		{"Malformed", "", "What the members or the PodGroup say contradicts itself or is not legal. The text names the field.", "Correct the field; `tandem-gpu.io/min-members`, for example, is the same on all members."},
	},
}

var preemptionRefusals = Section{
	Title:    "Refusals of preemption",
	Where:    "After the refusal of the share or of the gang, in the same event.",
	Packages: []string{"pkg/preemption"},
	Rows: []Row{
		{"NeverHelps", "no pods of a priority below … make room", "Also without all pods of a lower priority there would be no room.", "A higher priority, a smaller request, or more GPUs."},
		{"Guarded", "would fit by evicting …; not done because ", "Pods that would make room are protected, too young, or not the scheduler's to evict.", "Wait until they are old enough, or ask their owners ([read what it says](../guides/preemption.md#read-what-it-says))."},
		{"Budgeted", "budget … allows … of the … evictions", "Disruption budgets keep the pods, and `podDisruptionBudgets` is `Required`.", "Wait until the budget allows the evictions, or change the budget."},
	},
}
