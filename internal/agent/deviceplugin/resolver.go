package deviceplugin

import (
	"context"
	"path/filepath"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// resolver finds out which pod the kubelet is about to start a container of.
type resolver struct {
	checkpoint string
	pods       podReader
	places     placeReader
	records    *records
	unreadable func()
}

func newResolver(folder string, pods podReader, places placeReader, r *records, unreadable func()) *resolver {
	return &resolver{
		checkpoint: filepath.Join(folder, kubeletCheckpoint),
		pods:       pods, places: places, records: r, unreadable: unreadable,
	}
}

// resolved is a pod with its containers that hold some of the slots in question.
type resolved struct {
	pod *v1.Pod
	// starting holds exactly the slots: one of them is about to start. Several containers hold the same slots where
	// an app container was given an init container's again.
	starting []holding
	// sharing holds some of the slots; it includes starting.
	sharing []holding
}

// resolve finds the pod whose container holds exactly these slots.
func (r *resolver) resolve(ctx context.Context, ids []string) (resolved, error) {
	all, err := readHoldings(r.checkpoint)
	if err != nil {
		r.unreadable()
		klog.FromContext(ctx).Error(err, "Cannot use the kubelet's checkpoint, falling back to pod-resources")
		return r.resolveByPlace(ctx, ids)
	}
	byPod := map[string]*resolved{}
	for _, h := range all {
		if !shareSlots(h.IDs, ids) {
			continue
		}
		p := byPod[h.UID]
		if p == nil {
			p = &resolved{}
			byPod[h.UID] = p
		}
		p.sharing = append(p.sharing, h)
		if sameSlots(h.IDs, ids) {
			p.starting = append(p.starting, h)
		}
	}
	return r.alive(ctx, byPod, ids)
}

// alive picks the one pod that still runs. The kubelet forgets the slots of a pod that ended only when it allocates
// again, so its checkpoint may name an old holder beside the new one.
//
// The API server may know of the end of a pod after the kubelet, and may be away for a moment: there the question is
// asked again for a while.
func (r *resolver) alive(ctx context.Context, byPod map[string]*resolved, ids []string) (resolved, error) {
	found, err := r.running(ctx, byPod, false)
	for until := time.Now().Add(r.pods.patience); r.pods.choice.asksServer() && (err != nil || len(found) != 1) && len(byPod) > 0; {
		if ctx.Err() != nil || !time.Now().Before(until) {
			break
		}
		pause(ctx, serverPoll)
		found, err = r.running(ctx, byPod, true)
	}
	switch {
	case err != nil:
		return resolved{}, err
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return resolved{}, refuse(reasonNoHolder, "slots %v: the kubelet's checkpoint gives them to pods %s/%s and %s/%s at once",
			slotSet(ids), found[0].pod.Namespace, found[0].pod.Name, found[1].pod.Namespace, found[1].pod.Name)
	case len(byPod) > 0:
		return resolved{}, refuse(reasonNoPod, "slots %v: the kubelet's checkpoint gives them to pod UID %s, which does not run on this node",
			slotSet(ids), sortedKeys(byPod)[0])
	}
	return resolved{}, refuse(reasonNoHolder, "slots %v: the kubelet's checkpoint names no container that holds them", slotSet(ids))
}

// serverPoll is the time between two questions about the same slots to the API server.
const serverPoll = 200 * time.Millisecond

// running returns those of the pods that run and of which a container holds exactly the slots in question.
func (r *resolver) running(ctx context.Context, byPod map[string]*resolved, doubt bool) ([]resolved, error) {
	var found []resolved
	for _, uid := range sortedKeys(byPod) {
		p := byPod[uid]
		if len(p.starting) == 0 {
			continue
		}
		pod, err := r.pods.get(ctx, uid, doubt)
		if err != nil {
			return nil, err
		}
		if pod != nil && !over(pod) {
			p.pod = pod
			found = append(found, *p)
		}
	}
	return found, nil
}

// resolveByPlace works without the kubelet's checkpoint: pod-resources names the pod, the agent's own checkpoint the
// CDI names. It does not see init containers; these wait until the kubelet has written its checkpoint again.
func (r *resolver) resolveByPlace(ctx context.Context, ids []string) (resolved, error) {
	at, ok, err := r.places.holder(ctx, ids)
	if err != nil {
		return resolved{}, err
	}
	names := r.records.namesFor(ids)
	if !ok || len(names) == 0 {
		return resolved{}, refuse(reasonNoHolder, "slots %v: the kubelet's checkpoint is unreadable, and pod-resources and the agent's own checkpoint do not name their holder; the kubelet writes its checkpoint again at the next allocation", slotSet(ids))
	}
	pods, err := r.pods.list(ctx)
	if err != nil {
		return resolved{}, err
	}
	for _, pod := range pods {
		if pod.Namespace == at.Namespace && pod.Name == at.Pod && !over(pod) {
			h := holding{UID: string(pod.UID), Container: at.Container, IDs: slotSet(ids), Name: names[0]}
			return resolved{pod: pod, starting: []holding{h}, sharing: []holding{h}}, nil
		}
	}
	return resolved{}, refuse(reasonNoPod, "slots %v: pod %s/%s holds them and does not run on this node", slotSet(ids), at.Namespace, at.Pod)
}
