package v1alpha1

// Names of Tandem in the Kubernetes API. Every other package takes them from here.
const (
	// Domain prefixes every label, annotation, resource and API group of Tandem.
	Domain = "tandem-gpu.io"

	// ResourceVGPU is the extended resource that the agent advertises. Its unit is the slot: a device has N of
	// them (default 10, set per GPU model in the agent's configuration).
	ResourceVGPU = Domain + "/vgpu"

	// ResourceMemory is counted by the scheduler only; no node advertises it, so the kubelet ignores it. Its unit is
	// the byte. Without it a container gets device memory in proportion to its slots.
	ResourceMemory = Domain + "/vgpu-memory"
)

// Annotations that users set on pods.
const (
	// AnnotationComputeLimit is the compute that each container may burst to, in percent of one device: a whole number
	// from 1 to 100, not below the request. Default: the request.
	AnnotationComputeLimit = Domain + "/compute-limit"

	// AnnotationMemoryLimit is the device memory that each container may burst to, a Kubernetes quantity of bytes per
	// device, not below the request. Default: the request.
	AnnotationMemoryLimit = Domain + "/memory-limit"

	// AnnotationModels lists the GPU models that the pod may use, by the product names of GPUNode, separated by commas.
	// Default: any.
	AnnotationModels = Domain + "/gpu-models"

	// AnnotationRate is the rate that the pod wants, a decimal in the unit of its profile's throughputs. The pod gets the
	// cheapest share that reaches it, at least the slots that it asks for.
	AnnotationRate = Domain + "/rate"

	// AnnotationMaxSlowdown is the slowdown by neighbours that the pod tolerates: its time on the shared device ÷ its time on
	// the same share without neighbours, a decimal from 1 to 10 with up to three decimals. A pod that would suffer more, or
	// whose neighbours would suffer more than they tolerate, goes elsewhere. Default: any.
	AnnotationMaxSlowdown = Domain + "/max-slowdown"

	// AnnotationMaxLatency is the time per step that the pod accepts, a duration such as 40ms. The pod gets the cheapest
	// share on which its profile is as fast, at least the slots that it asks for. Not beside AnnotationRate.
	AnnotationMaxLatency = Domain + "/max-latency"

	// AnnotationRateMetric tells where the pod shows its rate: PORT[/path]#metric, a Prometheus text endpoint of the pod
	// (path /metrics unless given) and one metric of it. A counter is differentiated, a gauge taken as it is.
	AnnotationRateMetric = Domain + "/rate-metric"

	// AnnotationReportedRate is the rate that the pod reaches now, a decimal in a unit of its own that does not change.
	// The workload writes it itself.
	AnnotationReportedRate = Domain + "/reported-rate"

	// AnnotationCheckpointTime is when the work of the pod was last saved, a time such as 2026-01-31T12:00:00Z (RFC 3339). The
	// workload writes it itself. Among pods that may be evicted, those that lose the least since then go first. Default: the
	// start of the pod.
	AnnotationCheckpointTime = Domain + "/checkpoint-time"

	// AnnotationProgress is the part of its work that the job of the pod has done, a decimal from 0 to 1. The workload writes it itself,
	// on any pod of the job. Predictions of how long the job still takes go by it.
	AnnotationProgress = Domain + "/progress"
)

// Users set these on the members of a gang. A gang that a PodGroup declares needs neither the label nor the number.
const (
	// LabelGang is the label of a pod that names its gang: the pods of a namespace with the same value are one gang. Not
	// empty.
	LabelGang = Domain + "/gang"

	// AnnotationMinMembers is the least number of members that may run, a whole number from 1 to 10000, the same on all pods
	// of a gang. It goes with LabelGang.
	AnnotationMinMembers = Domain + "/min-members"

	// AnnotationRequiredTopology lists levels, separated by commas: one domain of each takes the whole gang, or it waits. A
	// level is the key of a node label or TopologyNVLink. The same on all pods of a gang; a PodGroup may carry it instead.
	AnnotationRequiredTopology = Domain + "/required-topology"

	// AnnotationPreferredTopology lists levels, the most wanted first, separated by commas: one domain of the first that
	// can takes the whole gang. The same on all pods of a gang; a PodGroup may carry it instead.
	AnnotationPreferredTopology = Domain + "/preferred-topology"

	// AnnotationElasticWorkers makes a gang elastic: it lists the numbers of members with which the gang runs. 2-8 is all
	// numbers from 2 to 8, 2-8/2 every second of them, and 1,2,4,8 just these. A range in steps need not end with a step:
	// 2-7/2 is 2, 4 and 6. The least one is the least number of members of the gang. The controller chooses one of them, and the scheduler places no more members than that. The
	// same on all pods of a gang; a PodGroup may carry it instead.
	AnnotationElasticWorkers = Domain + "/elastic-workers"

	// AnnotationElasticResize says how the controller changes the number of members of an elastic gang: ResizeHeldMembers or
	// ResizeSizeFields. Default: ResizeHeldMembers. The same on all pods of a gang; a PodGroup may carry it instead.
	AnnotationElasticResize = Domain + "/elastic-resize"

	// AnnotationElasticRate is the rate that an elastic gang wants, work of all its members per second: a decimal above 0
	// such as 500 or 0.5, in the unit in which its rates are declared or reported. The gang gets the fewest members, and the
	// fewest parameter servers, that reach it. The same on all pods of a gang.
	AnnotationElasticRate = Domain + "/elastic-rate"

	// AnnotationElasticServers names what runs the parameter servers of an elastic gang that states a rate, in its
	// namespace, and how many of them are legal: statefulset/ps 1-4, or deployment/ps 1,2,4. The numbers are written as
	// those of AnnotationElasticWorkers. The controller scales it. The same on all pods of a gang.
	AnnotationElasticServers = Domain + "/elastic-servers"

	// TopologyNVLink is the level of the GPUs of one node that NVLink joins.
	TopologyNVLink = "nvlink"
)

// Values of AnnotationElasticResize.
const (
	// ResizeHeldMembers leaves the user's object as it is: the scheduler holds members back, and the controller evicts them.
	ResizeHeldMembers = "held-members"
	// ResizeSizeFields has the controller write the number into the object that makes the members, for example the parallelism
	// and the completions of a Job. That object's controller makes and deletes the members.
	ResizeSizeFields = "size-fields"
)

const (
	// LabelProfile is the label of a pod that names its workload, as the throughputs in the scheduler's configuration and
	// the WorkloadProfiles of the pod's namespace do.
	LabelProfile = Domain + "/profile"

	// LabelLearned is "true" on the WorkloadProfiles that the scheduler made itself, of workloads that name none. It alone
	// deletes them, when there are too many.
	LabelLearned = Domain + "/learned"
)

// AnnotationLeaving is when the controller evicts a member of an elastic gang, a time such as 2026-01-31T12:00:00Z (RFC
// 3339). The controller writes it before the eviction, so that the program of the member, or a sidecar, can end a step
// first.
const AnnotationLeaving = Domain + "/leaving-at"

// The controller writes these on the pod of a notebook that its owner lets it park, for people: times such as
// 2026-01-31T12:00:00Z (RFC 3339). No program of Tandem acts on them.
const (
	// AnnotationNotebookIdleSince is since when nothing works in the notebook.
	AnnotationNotebookIdleSince = Domain + "/notebook-idle-since"
	// AnnotationNotebookParksAt is when the notebook is parked, if nothing works in it before.
	AnnotationNotebookParksAt = Domain + "/notebook-parks-at"
)

// AnnotationAssignment holds the Assignment of a pod as JSON. The scheduler writes it inside the Binding, in the same
// transaction as spec.nodeName; nobody else may write it (deploy/ holds the admission policies).
const AnnotationAssignment = Domain + "/assignment"

const (
	// SchedulerName is the schedulerName of the profile that understands vGPUs.
	SchedulerName = "tandem-scheduler"

	// CDIKind is the vendor/class of the CDI devices that the agent writes.
	CDIKind = Domain + "/vgpu"

	// SlotSeparator stands between the GPU UUID and the slot number in a device ID towards the kubelet
	// ("GPU-…::3"): dcgm-exporter's convention for shared GPUs.
	SlotSeparator = "::"

	// DefaultSlots is N where the agent's configuration names no other number for the GPU model.
	DefaultSlots = 10
)

// ControllerPlaceable is the controllerName of Kueue's AdmissionChecks that the controller answers: whether a Workload fits on devices now.
const ControllerPlaceable = Domain + "/placeable"
