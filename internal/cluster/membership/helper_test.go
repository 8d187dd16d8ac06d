package membership

import v1 "k8s.io/api/core/v1"

func annotated(p *v1.Pod, pairs ...string) *v1.Pod {
	p.Annotations = map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		p.Annotations[pairs[i]] = pairs[i+1]
	}
	return p
}
