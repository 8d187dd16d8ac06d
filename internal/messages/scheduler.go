package messages

var schedulerEvents = Section{
	Title:    "Events of the scheduler",
	Where:    "Events of pods and PodGroups: `kubectl describe pod NAME`, `kubectl tandem events`.",
	Packages: []string{"pkg/plugins/gpushare", "pkg/plugins/gpugang", "internal/scheduler/machine"},
	Rows: []Row{
		{"FailedScheduling", "", "The pod waits. The text is one of the [refusals](#refusals-of-a-share) with its numbers, or names a field that is wrong.", "Do what the text says; `kubectl tandem why POD` tries on a snapshot what would help."},
		{"NodePaused", "node … gets no vGPU pods for …, since its kubelet refused this one", "A kubelet refused a pod that the scheduler had placed. The node is left alone for a while, longer each time.", "See [TandemNodesPaused](../runbooks.md#tandemnodespaused): the agent of that node is down or has just started."},
		{"WorkloadProfileNotFound", "the WorkloadProfile … does not exist", "The label `tandem-gpu.io/profile` names a profile that is not in the pod's namespace. A pod that wants a rate waits.", "Correct the label, or create the WorkloadProfile."},
		{"GangNameTaken", "the pod belongs to …, and the members that run to …: it joins gang … by itself; give each job a gang name of its own", "The gang ran whole when another object of the same kind made this pod, with the same name of a gang. The pod is placed alone, and the gang counts it as a member.", "Give each job a gang name of its own ([guide](../guides/gangs.md#controllers-that-make-members-one-by-one)). If the gang is meant to have members of both, nothing."},
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
	Where:    "In the pod's event `FailedScheduling`, in its condition `PodScheduled`, in `kubectl tandem why` and as the label `reason` of metrics; decided by `pkg/vgpu` for each node. An event counts the nodes by the first texts of these rows, and says the longer ones of the nearest GPU; the last text of a row is that of `kubectl tandem why`.",
	Packages: []string{"pkg/vgpu", "pkg/why", "pkg/plugins/gpushare", "internal/kubectl/wording"},
	Rows: []Row{
		{"IllegalSlots", "the GPUs have … slots each, and … are neither a part of one nor whole ones · asks for … slots, which is neither a part of one device nor whole devices; nearest legal values: … · its slots are more than a device's and no multiple of them", "`tandem-gpu.io/vgpu` is more than the slots of one device and no multiple of them.", "Ask for one of the values that the text names; the pod has to be created again ([slots](../guides/requests.md#slots))."},
		{"MemoryAboveDevice", "the GPUs have less memory than asked for · … asks for … of device memory; it can have at most … · no device has so much memory", "`tandem-gpu.io/vgpu-memory` is more than the devices have.", "Ask for less, for a model with more memory, or for more whole devices."},
		{"ComputeLimitBelowRequest", "a limit is below the request on the node's GPUs · compute limit … is below the request of …; the least legal limit is … · its compute limit is below its request there", "The annotation `tandem-gpu.io/compute-limit` is under the guaranteed share.", "Raise the annotation to what the text names, or leave it out."},
		{"MemoryLimitBelowRequest", "a limit is below the request on the node's GPUs · memory limit … is below the request of …; the least legal limit is … · its memory limit is below its request there", "The annotation `tandem-gpu.io/memory-limit` is under the guaranteed memory.", "Raise the annotation to what the text names, or leave it out."},
		{"LimitAboveDevice", "a limit is above the node's GPUs · limit … is above the device; the most legal limit is … · its limit is above what a device has", "A limit is above what a device has.", "Lower the annotation to what the text names."},
		{"TooFewDevices", "too few GPUs on the node · number of … devices on … is …; … asks for … whole devices · the node has fewer devices than it asks for", "The node has fewer GPUs of the model than the pod asks for, also if all were free.", "Ask for fewer, or make a gang of several pods."},
		{"NoShareFits", "largest free share is … of … slots · too little GPU memory is free · the GPUs serve no more MPS clients · no healthy GPU could take the share · most free device memory is … of … on … · … serves … MPS clients and has room for … more · only devices of … that are sick or cordoned could take … · no healthy device has the slots, memory or MPS clients free", "No healthy device of the node has the slots, the memory or the MPS clients free. The text names the nearest.", "Wait, ask for less, or give the pod a priority; `kubectl tandem why` says which of these helps."},
		{"NoWholeDevices", "wholly free are … of … GPUs · number of wholly free … devices on … is … of … · too few healthy devices are wholly free", "Not enough GPUs of the node are wholly free: shares of other pods lie on them.", "Wait, or use preemption; the policy `tandem` keeps whole GPUs free where it can."},
		{"NoTogether", "the containers fit one by one on the GPUs, not at once · the containers fit one by one, not at once · its containers fit alone, and not together", "Each container of the pod fits, and not all of them together.", "Ask for less in one container, or make pods of the containers."},
		{"NoAllowedModel", "the node has no GPU of a model that the pod may use · the pod may only use …; … has … · no device is of a model that it may use", "The pod's annotation `tandem-gpu.io/gpu-models`, or its profile, allows no GPU model that the node has.", "Correct the annotation: `kubectl get gpunodes -o yaml` shows the models."},
		{"PromiseBroken", "a max-slowdown would break on the GPUs that have room · a slowdown of … is predicted for the pod beside …; its max-slowdown is … · the pod would slow down …, for which … is then predicted and whose max-slowdown is … · a promised slowdown would break", "A device has room, and there the pod or a neighbour would become slower than its `max-slowdown` allows.", "Wait, ask for more slots, or promise less ([how to read it](../guides/interference.md#read-the-refusal))."},
		{"HostFull", "the host has too little CPU or memory free", "The node has the GPUs, and too little CPU, memory or another resource of the host.", "Ask for less of it, or wait for pods that hold it."},
		{"StraySlots", "pods without an assignment hold the node's slots", "Pods without an assignment hold slots of the node, so that the scheduler keeps away from these slots.", "[TandemStraySlots](../runbooks.md#tandemstrayslots)."},
		{"NoDevices", "the node has no GPUs · … has no GPUs · the node has no devices", "The node has no GPUs for Tandem.", "Nothing, if that is so; else see [TandemNodesRefused](../runbooks.md#tandemnodesrefused)."},
	},
}

var gangRefusals = Section{
	Title:    "Refusals of a gang",
	Where:    "In the event `FailedScheduling` of the members, in the condition of the PodGroup and in `kubectl tandem why gang/NAME`.",
	Packages: []string{"pkg/gang", "pkg/reservation"},
	Rows: []Row{
		{"NoLevel", "needs … in one …; no node has …", "No node has the label that the gang requires as its topology.", "Label the nodes, or correct the annotation `tandem-gpu.io/required-topology`."},
		{"NeverFits", "… takes at most … even when all its devices are free and healthy", "The gang is larger than the cluster or than each domain, or its request is legal on no device.", "Make the gang or its requests smaller, or require a wider topology ([limits](../guides/gangs.md#limits))."},
		{"NoRoom", "needs …; … takes … · … takes … after … ends · the devices are free, hosts keep members out: …", "A domain is large enough, and other pods or unhealthy devices take its room. The text has the nearest domain.", "Wait, or give the gang a priority ([when there is no room](../guides/gangs.md#when-there-is-no-room))."},
		{"PlacedApart", "members that have a place are on several domains of …", "Members that run already are in several domains of a required topology, so no place for the others can be right.", "Delete the members that are apart."},
		{"Malformed", "", "The members or the PodGroup contradict each other, or have an illegal value. The text names the field.", "Correct the field; `tandem-gpu.io/min-members`, for example, is the same on all members."},
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
