package messages

var containerStarts = Section{
	Title:    "Containers that the agent does not start",
	Where:    "The pod's event `Failed` of the kubelet, which repeats the start, and the label `reason` of `tandem_agent_prestart_failures_total`.",
	Packages: []string{"internal/agent/binding"},
	Rows: []Row{
		{"NoAssignment", "", "The pod has no assignment: another scheduler bound it, or a user did.", "Create the pod again with `schedulerName: tandem-scheduler`."},
		{"AssignmentMismatch", "create the pod again", "The assignment is not one that the scheduler wrote for this pod on this node, or it does not suit the node any more.", "Create the pod again, without the annotation `tandem-gpu.io/assignment`."},
		{"AssignmentChanged", "the annotation … changed after the pod was started", "Somebody changed the assignment of a running pod.", "Create the pod again; see [who may do what](../guides/security.md)."},
		{"OverCapacity", "carries more than its … slots since its configuration changed", "The device has more shares than slots, since `slots` of the agent's configuration became smaller.", "The container starts when enough pods of the device have ended; or create the pod again."},
		{"DeviceUnhealthy", "takes no work now", "The device became unhealthy between the scheduler's decision and the start.", "The container starts when the device has recovered; delete the pod to have it placed elsewhere."},
		{"MPSNotReady", "MPS of device … is not ready", "The MPS daemon of the device does not answer yet.", "Wait; if it lasts, see [TandemMPSDown](../runbooks.md#tandemmpsdown)."},
		{"ContextsExhausted", "the container starts when a client of the device has ended", "MPS serves no more clients on the device: 48, or 60 from CUDA 13.1.", "Wait, or delete the pod to have it placed elsewhere; give the model fewer slots."},
		{"NoHolder", "names no container that holds them", "The kubelet's records name no container for the slots.", "Delete the pod to have it admitted again."},
		{"NoPod", "which does not run on this node", "The kubelet's records give the slots to a pod that is gone.", "Nothing: the kubelet tries again. If it lasts, restart the kubelet."},
		{"NodeError", "cannot put the compute mode back to DEFAULT", "Something on the node failed: the driver, the file system, a socket. The text says what.", "The kubelet tries again. If it lasts, the agent's log and [TandemContainersRefused](../runbooks.md#tandemcontainersrefused)."},
	},
}

// conditions have the constants of conditions of GPUNodes and WorkloadProfiles.
var conditions = []string{"pkg/api/v1alpha1"}

var nodeReady = Section{
	Title: "GPUNode: condition Ready", Where: "`kubectl describe gpunode NODE`; written by the agent, `AgentLost` by the controller.", Packages: conditions,
	Rows: []Row{
		{"Serving", "", "The kubelet watches the slots of the node.", "Nothing."},
		{"NotRegistered", "", "The kubelet does not watch the slots, so that the node offers none.", "[TandemAgentNotRegistered](../runbooks.md#tandemagentnotregistered)."},
		{"AgentLost", "", "The kubelet of the node offers no slots, or does not report to the API server: it is not known whether the agent serves, and the rest of the status is old.", "[TandemAgentDown](../runbooks.md#tandemagentdown)."},
		{"AgentStopping", "", "The agent was told to stop, as in a rollout.", "Nothing: the next agent writes `Serving`. If none comes, [TandemAgentDown](../runbooks.md#tandemagentdown)."},
		{"NoDriver", "", "The node has no NVIDIA driver, or the driver does not answer. The agent waits for it.", "`nvidia-smi` on the node; [a driver that is installed elsewhere](../guides/install.md#a-driver-that-is-installed-elsewhere)."},
		{"PodsUnknown", "", "Neither the kubelet nor the API server tells the agent the pods of the node. No container with vGPUs starts there.", "With a kubelet before 1.37 add the component `pods-from-apiserver` ([versions](../guides/install.md#versions-of-kubernetes))."},
	},
}

var devicesHealthy = Section{
	Title: "GPUNode: condition DevicesHealthy", Where: "`kubectl describe gpunode NODE`; written by the agent.", Packages: conditions,
	Rows: []Row{
		{"AllHealthy", "", "All devices take work.", "Nothing."},
		{"Recovering", "", "Devices are well again, and are watched for a while before they take work.", "Nothing."},
		{"DevicesSick", "", "At least one device takes no work. The text names it with its [reason](#unhealthy-devices).", "[TandemDeviceUnhealthy](../runbooks.md#tandemdeviceunhealthy)."},
	},
}

var deviceReasons = Section{
	Title:    "Unhealthy devices",
	Where:    "`status.devices[].reason` of the GPUNode, `kubectl tandem why`, the GPU map, the condition `DevicesHealthy`, metrics of the agent. `XID` with a number is an error that the driver logged: NVIDIA's documentation has the list.",
	Packages: []string{"internal/agent/health", "internal/agent/nvml", "pkg/api/v1alpha1"},
	Rows: []Row{
		{"Cordoned", "", "An administrator switched the GPU off for new pods. Pods that run on it go on.", "`kubectl tandem uncordon NODE g3` when it may take pods again."},
		{"GPULost", "the driver has no device …", "The GPU does not answer on the bus any more.", "Drain the node, reboot it; if it comes back so, the hardware is broken."},
		{"DeviceLost", "", "The agent knew the device, and the driver does not.", "As `GPULost`; after a change of MIG instances, restart the agent."},
		{"NVMLError", "read …: …", "The driver answers a question about the device with an error.", "`nvidia-smi` on the node; the agent asks again."},
		{"DriverNotAnswering", "the driver has not answered for …", "A call into the driver hangs.", "`nvidia-smi` on the node, which probably hangs too; reboot the node."},
		{"CriticalXID", "", "The driver logged an error after which the device must not take work.", "`dmesg` has the XID; do what NVIDIA's list says for it."},
		{"ECCUncorrected", "uncorrected memory errors since the last reset", "The memory of the GPU had errors that could not be corrected.", "Reset the GPU; if they return, replace it."},
		{"RowRemapFailed", "a broken row of the memory has no spare: replace the GPU", "The memory has more broken rows than spare ones.", "Replace the GPU."},
		{"ResetRequired", "the driver asks for a reset of the device", "The driver wants a reset before the device works on.", "End the programs on the device, then `nvidia-smi --gpu-reset`."},
		{"RebootRequired", "the driver asks for a reboot of the node", "The driver wants a reboot.", "Drain the node and reboot it."},
		{"RecoveryRequired", "the driver asks for an action", "The driver wants another action.", "`nvidia-smi -q` shows it under \"GPU Recovery Action\"."},
		{"MPSFault", "an MPS server met a fatal fault of one of its clients and serves nobody new", "A program broke the MPS server of the device, and with it its neighbours' work.", "The agent repairs it ([faults](../faults.md)). Find the program in the agent's log."},
		{"MPSNotAnswering", "the MPS control daemon does not answer", "The control daemon of MPS hangs.", "[TandemMPSDown](../runbooks.md#tandemmpsdown)."},
		{"MPSNotRunning", "the MPS control daemon does not run and cannot be started", "The control daemon of MPS ended.", "[TandemMPSDown](../runbooks.md#tandemmpsdown)."},
		{"MPSWedged", "new MPS clients wait for ever", "New programs on the device wait for ever.", "The agent restarts MPS when the clients have gone."},
		{"Recovering", "the device recovers from … and takes work again when it has been well for …", "The device is well again and is watched.", "Nothing."},
	},
}

var monitored = Section{
	Title: "GPUNode: condition Monitored", Where: "`kubectl describe gpunode NODE`; written by the agent. A device that is not monitored takes work all the same.", Packages: conditions,
	Rows: []Row{
		{"AllMonitored", "", "The agent would notice faults of all devices.", "Nothing."},
		{"NotYetProbed", "", "The agent has just started.", "Wait a minute."},
		{"NoCUDA", "", "The agent's pod has no `libcuda.so.1`, so that it cannot try what a program does.", "`NVIDIA_DRIVER_CAPABILITIES=compute,utility` for the agent, and NVIDIA's runtime by its `runtimeClassName`."},
		{"ProbeFails", "", "The smallest CUDA program fails for another reason than a sick device.", "[TandemDeviceUnmonitored](../runbooks.md#tandemdeviceunmonitored)."},
		{"NoXIDEvents", "", "The driver does not report errors as events.", "[TandemDeviceUnmonitored](../runbooks.md#tandemdeviceunmonitored)."},
	},
}

var podsKnown = Section{
	Title: "GPUNode: condition PodsKnown", Where: "`kubectl describe gpunode NODE`; written by the agent.", Packages: conditions,
	Rows: []Row{
		{"FromKubelet", "", "The kubelet tells the agent its pods.", "Nothing."},
		{"FromAPIServer", "", "The API server tells the agent its pods, since the kubelet does not. While the API server is away, no new pods start.", "A kubelet of 1.37 or later, with the feature gate `PodsAPI`."},
		{"PodsUnknown", "", "Neither does.", "As `PodsUnknown` of the condition Ready."},
	},
}

var profiles = Section{
	Title: "WorkloadProfile: condition Consistent", Where: "`kubectl describe workloadprofile NAME`; written by the scheduler.", Packages: conditions,
	Rows: []Row{
		{"Agrees", "", "Nothing that was learned contradicts what is declared.", "Nothing."},
		{"Contradicts", "", "Declared and measured values differ. The text names both, and which one counts.", "Correct the declared value, or remove it."},
		{"Malformed", "", "A declared value is not legal and is passed over. The text names it.", "Correct the field."},
	},
}
