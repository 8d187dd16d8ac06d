package podsource

import (
	"time"

	podsapi "k8s.io/kubelet/pkg/apis/pods/v1alpha1"
)

// Options say from whom the pods of a node are read.
type Options struct {
	// Client and socket are those of the kubelet's Pods API.
	Client podsapi.PodsClient
	Socket string
	// Server reads pods from the API server; nil where it cannot be asked.
	Server API
	Node   string
	// Silence is how long a kubelet that served the Pods API may be silent before the API server is asked, and Again the
	// time between two looks whether the kubelet serves it after all.
	Silence, Again time.Duration
	// Broke is called when a watch of the pods failed, Told with the name of the source that answers now.
	Broke func()
	Told  func(source string)
	Beat  func()
}

// New returns what follows the pods of a node, and what reads them from the same source. It starts nothing.
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
