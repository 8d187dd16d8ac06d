// Package notebook decides when an idle notebook is parked: its workload then asks for no pod, and its share is free for others.
//
// A caller looks at a notebook again and again. It gives each Observation to Decide, with the Memory of the one before, and gets a Plan: the
// state of the notebook, whether its owner is to be warned, and whether to park it now. The kernels of a notebook, its terminals and its GPU
// tell what works in it: Serving puts them together.
//
// The package has no clock: the caller says what time it is, and may be wrong. So idle time is a sum. Each observation adds at most
// Config.Step, and a clock that goes back adds nothing. A notebook that does not answer adds nothing either, and keeps its state. The owner
// of a notebook always has Config.Notice between the warning and the end.
//
// A Note, which the caller keeps outside of its process, carries the idle time over a restart. Without one the idle time of a pod begins when
// the memory meets the pod: the notebook's own times tell nothing of its GPU.
package notebook
