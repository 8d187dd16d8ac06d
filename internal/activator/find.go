package activator

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/tandem-gpu/tandem/internal/cluster/parking"
	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// found is the notebook of a request.
type found struct {
	*parking.Workload
	declared *parking.Declared
}

// refusal is the answer to a request that is not passed on.
type refusal struct {
	status  int
	result  string
	message string
	// retry says that the same request may succeed later.
	retry bool
}

// retryAfter is what a client waits before it asks again, in seconds.
const retryAfter = "10"

// write answers a request whose body nobody has read: the answer does not wait for it.
func (r *refusal) write(w http.ResponseWriter, of *http.Request) {
	if r.retry {
		w.Header().Set("Retry-After", retryAfter)
	}
	if of.ContentLength != 0 {
		w.Header().Set("Connection", "close")
	}
	w.Header().Set("Cache-Control", "no-store")
	http.Error(w, r.message, r.status)
}

// nothing is the answer for a path that leads to no notebook. It does not tell which workloads exist.
func nothing(message string) *refusal {
	return &refusal{status: http.StatusNotFound, result: resultUnknown, message: message}
}

// find returns the notebook of a path /NAMESPACE/NAME/…, as it was sent, with its escapes.
func (a *Activator) find(path string) (*found, *refusal) {
	if ambiguous(path) {
		return nil, &refusal{status: http.StatusBadRequest, result: resultUnknown, message: "a path may not have empty segments, nor . and .., also escaped"}
	}
	parts := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 3)
	if len(parts) < 2 || len(validation.IsDNS1123Label(parts[0])) > 0 || len(validation.IsDNS1123Subdomain(parts[1])) > 0 {
		return nil, nothing("a path begins with the namespace and the name of a notebook: /NAMESPACE/NAME/")
	}
	namespace, name := parts[0], parts[1]
	var all []*found
	for _, w := range a.workloads(namespace, name) {
		if d, err := parking.Read(w.Annotations); err == nil && d != nil && w.Unfit() == "" && !w.Leaves {
			all = append(all, &found{w, d})
		}
	}
	base := "/" + namespace + "/" + name
	switch {
	case len(all) > 1:
		return nil, &refusal{status: http.StatusConflict, result: resultUnknown, message: fmt.Sprintf("%s and %s are both notebooks: rename one", all[0].Workload, all[1].Workload)}
	case len(all) == 0 || all[0].declared.Path != base:
		return nil, nothing(fmt.Sprintf("there is no notebook %s in namespace %s with the annotations %s: park or cull, and %s: %s", name, namespace,
			v1alpha1.AnnotationNotebook, v1alpha1.AnnotationNotebookPath, base))
	}
	return all[0], nil
}

// workloads returns what has a name, of both kinds.
func (a *Activator) workloads(namespace, name string) (all []*parking.Workload) {
	if s, err := a.statefulSets.StatefulSets(namespace).Get(name); err == nil {
		all = append(all, parking.OfStatefulSet(s))
	}
	if d, err := a.deployments.Deployments(namespace).Get(name); err == nil {
		all = append(all, parking.OfDeployment(d))
	}
	return all
}

// target returns the address of a notebook's server, empty where its pod is not ready.
func (a *Activator) target(n *found) string {
	if n.Replicas == 0 { // what is left of its pod ends
		return ""
	}
	pods, err := a.pods.Pods(n.Namespace).List(n.Selector)
	if err != nil {
		return ""
	}
	pod, err := n.Pod(pods)
	if err != nil || pod == nil || pod.Status.PodIP == "" {
		return ""
	}
	if _, ready := parking.ReadySince(pod); !ready {
		return ""
	}
	return net.JoinHostPort(pod.Status.PodIP, strconv.Itoa(n.declared.Port))
}

// wakes reports whether a request brings a parked notebook back. A request that the tab of a browser sends by itself does not, else an
// open tab would keep each notebook: its polls read below api/, and its WebSockets connect again and again.
func wakes(r *http.Request, base string) bool {
	if r.Header.Get("Upgrade") != "" {
		return false
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	rest := strings.TrimPrefix(r.URL.Path, base)
	return !reads || !strings.HasPrefix(rest, "/api/") && !strings.HasPrefix(rest, "/lab/api/")
}
