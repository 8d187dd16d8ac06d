package deploy

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
)

// volume adds a volume that no container mounts.
func volume(source corev1.VolumeSource) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "odd", VolumeSource: source})
	}
}

// confined changes the security context of the first container.
func confined(change func(*corev1.SecurityContext)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{}
		change(p.Spec.Containers[0].SecurityContext)
	}
}

// confinedPod changes the security context of the pod.
func confinedPod(change func(*corev1.PodSecurityContext)) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.SecurityContext = &corev1.PodSecurityContext{}
		change(p.Spec.SecurityContext)
	}
}

// envs sets variables of the first container.
func envs(names ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		for _, name := range names {
			p.Spec.Containers[0].Env = append(p.Spec.Containers[0].Env, corev1.EnvVar{Name: name, Value: "all"})
		}
	}
}

// confinementAttacks are attacks that take a pod's confinement away, or get devices by the way of others.
func confinementAttacks() []attack {
	var list []attack
	host := func(name string, change func(*corev1.Pod), want ...string) {
		list = append(list, attack{name: name, change: change, policy: byHost, want: append(want, hostAccess)})
	}
	unconfined := corev1.SeccompProfile{Type: corev1.SeccompProfileTypeUnconfined}
	noArmor := corev1.AppArmorProfile{Type: corev1.AppArmorProfileTypeUnconfined}
	host("seccomp off", confined(func(s *corev1.SecurityContext) { s.SeccompProfile = &unconfined }),
		"spec.containers[0].securityContext.seccompProfile.type:")
	host("seccomp off in an init container", asInit(confined(func(s *corev1.SecurityContext) { s.SeccompProfile = &unconfined })),
		"spec.initContainers[0].securityContext.seccompProfile.type:")
	host("seccomp off for the pod", confinedPod(func(s *corev1.PodSecurityContext) { s.SeccompProfile = &unconfined }),
		"spec.securityContext.seccompProfile.type:")
	host("AppArmor off", confined(func(s *corev1.SecurityContext) { s.AppArmorProfile = &noArmor }), "spec.containers[0].securityContext.appArmorProfile.type:")
	host("AppArmor off for the pod", confinedPod(func(s *corev1.PodSecurityContext) { s.AppArmorProfile = &noArmor }), "spec.securityContext.appArmorProfile.type:")
	host("AppArmor off by annotation", func(p *corev1.Pod) {
		p.Annotations = map[string]string{corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + "main": "unconfined"}
	}, "spec.containers[0].securityContext.appArmorProfile.type:")
	for name, options := range map[string]corev1.SELinuxOptions{
		"type": {Type: "spc_t"}, "user": {User: "unconfined_u"}, "role": {Role: "unconfined_r"},
	} {
		host("SELinux "+name, confined(func(s *corev1.SecurityContext) { s.SELinuxOptions = &options }), "spec.containers[0].securityContext.seLinuxOptions."+name)
		host("SELinux "+name+" of the pod", confinedPod(func(s *corev1.PodSecurityContext) { s.SELinuxOptions = &options }), "spec.securityContext.seLinuxOptions."+name)
	}
	host("the host's /proc", func(p *corev1.Pod) {
		p.Spec.HostUsers = ptr.To(false)
		confined(func(s *corev1.SecurityContext) { s.ProcMount = ptr.To(corev1.UnmaskedProcMount) })(p)
	}, "spec.containers[0].securityContext.procMount:")
	host("flexVolume", volume(corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Driver: "example.com/mount"}}), "spec.volumes[0] odd:")
	host("gitRepo", volume(corev1.VolumeSource{GitRepo: &corev1.GitRepoVolumeSource{Repository: "https://example.com/x"}}), "spec.volumes[0] odd:")
	host("iSCSI", volume(corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{TargetPortal: "192.0.2.1", IQN: "iqn.2015-02.example.com:test", Lun: 0}}),
		"spec.volumes[0] odd:")
	host("a DRA claim", func(p *corev1.Pod) {
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: ptr.To("gpu.nvidia.com")}}
		p.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: "gpu"}}
	}, "spec.resourceClaims:")
	for _, name := range []string{
		"NVIDIA_IMEX_CHANNELS", "NVIDIA_GDS", "NVIDIA_GDRCOPY", "NVIDIA_MOFED", "NVIDIA_NVSWITCH", "NVIDIA_MIG_MONITOR_DEVICES", "NVIDIA_NO_SUCH",
		"AMD_VISIBLE_DEVICES", "HABANA_VISIBLE_DEVICES", "CUDA_MPS_CLIENT_PRIORITY",
	} {
		list = append(list, attack{
			name: "variable " + name, change: envs("A", name), policy: byPods,
			want: []string{"spec.containers[0].env " + name + ":", "remove it from env"},
		})
	}
	return list
}
