package metrics

import "slices"

// Label is one label with its meaning.
type Label struct{ Name, Meaning string }

// Labels returns all labels of the tables, with the bound of the number of their values. A tenant can make the number
// of no label grow beyond the names of the pods on the node.
func Labels() []Label { return slices.Clone(labelTable) }

var labelTable = []Label{
	{"cause", "of the end of clients: `termination` or `drain`; else a word of a fixed list, named in the meaning"},
	{"class", "`application`, `contained` or `reset`"},
	{"code", "status code of an HTTP answer: 200, 304, 405 or 503"},
	{"container", "name of a container of a pod on the node"},
	{"device", "UUID of a device of the node"},
	{"enforcement", "`cooperative` or `none`, as the GPUNode says of the device; `partition` for a container that has a device by itself"},
	{"fleet", "name of an InferenceFleet"},
	{"go", "version of Go; one value"},
	{"health", "`healthy` or `unhealthy`"},
	{"index", "NVML's index of the device"},
	{"kind", "of ECC errors: `corrected` or `uncorrected`; of patches: `route` or `scale`; else a word of a fixed list, named in the meaning"},
	{"level", "`node`, a level of gangs' wishes, or `other` beyond 20 of them"},
	{"model", "product name of the device"},
	{"namespace", "namespace of a pod on the node, or of an InferenceFleet"},
	{"owner", "`agent` or `kubelet`"},
	{"parent", "UUID of the GPU that a MIG instance is part of, else empty"},
	{"pci_bus", "PCI bus ID of the device"},
	{"pod", "name of a pod on the node that holds a share"},
	{"reason", "a word of a fixed list; with `tandem_device_*` also `XID` and the number of an error that the driver knows"},
	{"result", "how it ended; a word of a fixed list"},
	{"revision", "commit of the build; one value"},
	{"source", "`measured`: the driver told it of each process; `apportioned`: the driver told a sum, divided among the processes in proportion to their compute limits (a process without a known limit counts as a whole device)"},
	{"state", "a word of a fixed list, named in the meaning"},
	{"uid", "UID of the pod"},
	{"variant", "name of a variant of an InferenceFleet"},
	{"version", "version of the build; one value"},
	{"world", "`other`: what happened; `tandem`: what Tandem would have done"},
}
