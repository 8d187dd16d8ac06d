package podsource

import (
	"time"

	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// Options name the sources of a node's pods.
type Options struct {
	// Client and socket are those of the kubelet's Pods API.
	Client podsapi.PodsClient
	Socket string
	// Server reads pods from the API server; nil without access.
	Server API
	Node   string
	// Silence is how long a kubelet that served the Pods API may be silent before the API server becomes the source.
	// Again is the time between two looks whether the kubelet serves it after all.
	Silence, Again time.Duration
	// The watch calls Broke when a watch of the pods failed, Told with the name of the source that answers now.
	Broke func()
	Told  func(source string)
	Beat  func()
}

// New returns what follows the pods of a node, and what reads them from the same source.
func New(o Options) (*Watch, Reader) {
	w := newWatch(o.Client, o.Broke, o.Beat)
	w.server = server{api: o.Server, node: o.Node}
	w.choice = newChoice(o.Client, o.Socket, o.Server != nil, o.Told)
	w.again, w.choice.silence = o.Again, o.Silence
	return w, Reader{client: o.Client, choice: w.choice, watch: w}
}

// Patient returns the reader whose calls wait so long for the source.
func (r Reader) Patient(patience time.Duration) Reader {
	r.Patience = patience
	return r
}
