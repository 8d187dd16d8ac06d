package e2e

import (
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// tell makes a container write its environment to its log.
const tell = `env | grep -E '^(NVIDIA|CUDA)_' | sort
for d in /dev/nvidia*; do stat -c 'device %n %t:%T' "$d"; done
stat -f -c 'memory %b %S' /dev/shm
while read -r _ _ _ root point _; do echo "mount $point $root"; done < /proc/self/mountinfo
echo told
`

// share is a container with slots.
func share(name string, slots int) v1.Container {
	return v1.Container{
		Name: name, Image: busyboxImage, ImagePullPolicy: v1.PullNever,
		Command: []string{"sh", "-c", tell + "exec sleep 1000000"},
		Resources: v1.ResourceRequirements{Limits: v1.ResourceList{
			v1.ResourceName(v1alpha1.ResourceVGPU): resource.MustParse(strconv.Itoa(slots)),
		}},
	}
}

// work is a container with slots that works on its device all the time. Arguments go to the program tenant.
func work(slots int, args ...string) v1.Container {
	c := share("main", slots)
	c.Command = []string{"sh", "-c", tell + "exec tenant --in-flight --sm=5 --memory=64Mi " + strings.Join(args, " ")}
	return c
}

// initShare is an init container with slots that ends.
func initShare(name string, slots int) v1.Container {
	c := share(name, slots)
	c.Command = []string{"sh", "-c", tell}
	return c
}

// newPod returns a pod for Tandem's scheduler.
func newPod(name string, containers ...v1.Container) *v1.Pod {
	off, grace := false, int64(1) // a shell that is process 1 does not heed SIGTERM
	return &v1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}},
		Spec: v1.PodSpec{
			SchedulerName:                 v1alpha1.SchedulerName,
			Containers:                    containers,
			DNSPolicy:                     v1.DNSDefault, // the cluster has no DNS
			AutomountServiceAccountToken:  &off,
			TerminationGracePeriodSeconds: &grace,
		},
	}
}
