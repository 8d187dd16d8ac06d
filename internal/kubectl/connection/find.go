package connection

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// longestHost is the length of the longest host name of a pod: the kubelet cuts longer names of pods.
const longestHost = 63

// candidates returns the names of the scheduler's running pods that may hold the lease. That is one pod where the caller may read
// the lease, and else all of them: those that do not schedule say so.
func candidates(ctx context.Context, client kubernetes.Interface, o *Options) ([]string, error) {
	selector := "app.kubernetes.io/name=" + o.Name
	list, err := client.CoreV1().Pods(o.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	switch {
	case apierrors.IsForbidden(err):
		return nil, fmt.Errorf("find the scheduler: %w; it takes the rights to list pods and to create pods/portforward in the namespace %s, "+
			"or --scheduler-address, or --snapshot with a file", err, o.Namespace)
	case err != nil:
		return nil, fmt.Errorf("find the scheduler: %w", why(ctx, err))
	}
	running := slices.DeleteFunc(slices.Clone(list.Items), func(p v1.Pod) bool { return p.Status.Phase != v1.PodRunning })
	if len(running) == 0 && len(list.Items) > 0 {
		return nil, fmt.Errorf("find the scheduler: it does not run: the pod %s/%s is %s; kubectl -n %[1]s describe pod %[2]s says why", o.Namespace, list.Items[0].Name, list.Items[0].Status.Phase)
	}
	if len(running) == 0 {
		return nil, fmt.Errorf("find the scheduler: no pod with the label %s runs in the namespace %s; "+
			"--scheduler-namespace and --scheduler-name say where else it is", selector, o.Namespace)
	}
	slices.SortFunc(running, func(a, b v1.Pod) int { return strings.Compare(a.Name, b.Name) })
	lease, err := client.CoordinationV1().Leases(o.Namespace).Get(ctx, o.Name, metav1.GetOptions{})
	if err != nil {
		if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) { // a single scheduler has no lease
			return names(running), nil
		}
		return nil, fmt.Errorf("find out which scheduler schedules: %w", why(ctx, err))
	}
	holder := ""
	if lease.Spec.HolderIdentity != nil {
		holder = *lease.Spec.HolderIdentity
	}
	if holder == "" {
		return nil, fmt.Errorf("find out which scheduler schedules: no scheduler holds the lease %s/%s; ask again in a moment", o.Namespace, o.Name)
	}
	leading := slices.DeleteFunc(slices.Clone(running), func(p v1.Pod) bool { return !holds(&p, holder) })
	if len(leading) == 0 {
		return nil, fmt.Errorf("find out which scheduler schedules: %s holds the lease %s/%s, and the running pods are %s; "+
			"ask again in a moment, or give the name of the scheduler's lease and label by --scheduler-name",
			holder, o.Namespace, o.Name, strings.Join(names(running), ", "))
	}
	return names(leading), nil
}

// holds reports whether a pod is the holder of the lease. kube-scheduler's identity is the name of its host, "_" and a random UUID.
func holds(p *v1.Pod, holder string) bool {
	host := p.Name
	switch {
	case p.Spec.HostNetwork:
		host = p.Spec.NodeName
	case p.Spec.Hostname != "":
		host = p.Spec.Hostname
	}
	if len(host) > longestHost {
		host = strings.TrimRight(host[:longestHost], "-.")
	}
	return strings.HasPrefix(holder, host+"_")
}

func names(pods []v1.Pod) []string {
	all := make([]string, 0, len(pods))
	for i := range pods {
		all = append(all, pods[i].Name)
	}
	return all
}
