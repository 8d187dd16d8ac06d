package binding

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/tandem-gpu/tandem/internal/agent/allocation"
	"github.com/tandem-gpu/tandem/internal/agent/loop"
	"github.com/tandem-gpu/tandem/internal/agent/podsource"
)

// Resolver finds out which pod the kubelet is about to start a container of.
type Resolver struct {
	checkpoint string
	pods       podsource.Reader
	places     allocation.PlaceReader
	records    *allocation.Records
	unreadable func()
}

// NewResolver returns a resolver that reads the kubelet's checkpoint in a folder. The resolver calls unreadable where
// it cannot use the checkpoint.
func NewResolver(folder string, pods podsource.Reader, places allocation.PlaceReader, r *allocation.Records, unreadable func()) *Resolver {
	return &Resolver{
		checkpoint: filepath.Join(folder, allocation.KubeletCheckpoint),
		pods:       pods, places: places, records: r, unreadable: unreadable,
	}
}

// resolved is a pod with its containers that hold some of the slots in question.
type resolved struct {
	pod *v1.Pod
	// starting holds exactly the slots: one of them is about to start. Several containers hold the same slots where the
	// kubelet gave an app container those of an init container.
	starting []allocation.Holding
	// sharing holds some of the slots; it includes starting.
	sharing []allocation.Holding
}

// resolve finds the pod whose container holds exactly these slots.
func (r *Resolver) resolve(ctx context.Context, ids []string) (resolved, error) {
	all, err := allocation.ReadHoldings(r.checkpoint)
	if err != nil {
		r.unreadable()
		klog.FromContext(ctx).Error(err, "Cannot use the kubelet's checkpoint, falling back to pod-resources")
		return r.resolveByPlace(ctx, ids)
	}
	byPod := map[string]*resolved{}
	for _, h := range all {
		if !allocation.ShareSlots(h.IDs, ids) {
			continue
		}
		p := byPod[h.UID]
		if p == nil {
			p = &resolved{}
			byPod[h.UID] = p
		}
		p.sharing = append(p.sharing, h)
		if allocation.SameSlots(h.IDs, ids) {
			p.starting = append(p.starting, h)
		}
	}
	return r.alive(ctx, byPod, ids)
}

// alive picks the one pod that still runs. The kubelet drops the slots of an ended pod only when it allocates again, so
// its checkpoint may name an old holder beside the new one.
//
// The API server may learn of the end of a pod after the kubelet, and may be away for a moment, so alive retries for a
// while.
func (r *Resolver) alive(ctx context.Context, byPod map[string]*resolved, ids []string) (resolved, error) {
	found, err := r.running(ctx, byPod, false)
	for until := time.Now().Add(r.pods.Patience); r.pods.AsksServer() && (err != nil || len(found) != 1) && len(byPod) > 0; {
		if ctx.Err() != nil || !time.Now().Before(until) {
			break
		}
		loop.Pause(ctx, serverPoll)
		found, err = r.running(ctx, byPod, true)
	}
	switch {
	case err != nil:
		return resolved{}, err
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return resolved{}, refuse(reasonNoHolder, "slots %v: the kubelet's checkpoint gives them to pods %s/%s and %s/%s at once",
			allocation.SlotSet(ids), found[0].pod.Namespace, found[0].pod.Name, found[1].pod.Namespace, found[1].pod.Name)
	case len(byPod) > 0:
		return resolved{}, refuse(reasonNoPod, "slots %v: the kubelet's checkpoint gives them to pod UID %s, which does not run on this node",
			allocation.SlotSet(ids), slices.Min(slices.Collect(maps.Keys(byPod))))
	}
	return resolved{}, refuse(reasonNoHolder, "slots %v: the kubelet's checkpoint names no container that holds them", allocation.SlotSet(ids))
}

// serverPoll is the time between two questions about the same slots to the API server.
const serverPoll = 200 * time.Millisecond

// running returns those of the pods that run and of which a container holds exactly the slots in question.
func (r *Resolver) running(ctx context.Context, byPod map[string]*resolved, doubt bool) ([]resolved, error) {
	var found []resolved
	for _, uid := range slices.Sorted(maps.Keys(byPod)) {
		p := byPod[uid]
		if len(p.starting) == 0 {
			continue
		}
		pod, err := r.pods.Get(ctx, uid, doubt)
		if err != nil {
			return nil, err
		}
		if pod != nil && !podsource.Over(pod) {
			p.pod = pod
			found = append(found, *p)
		}
	}
	return found, nil
}

// resolveByPlace works without the kubelet's checkpoint: pod-resources names the pod, the agent's own checkpoint the
// CDI names. Pod-resources has no init containers; these wait until the kubelet has written its checkpoint again.
func (r *Resolver) resolveByPlace(ctx context.Context, ids []string) (resolved, error) {
	at, ok, err := r.places.Holder(ctx, ids)
	if err != nil {
		return resolved{}, err
	}
	names := r.records.NamesFor(ids)
	if !ok || len(names) == 0 {
		return resolved{}, refuse(reasonNoHolder, "slots %v: the kubelet's checkpoint is unreadable, and pod-resources and the agent's own checkpoint do not name their holder; the kubelet writes its checkpoint again at the next allocation", allocation.SlotSet(ids))
	}
	pods, err := r.pods.List(ctx)
	if err != nil {
		return resolved{}, err
	}
	for _, pod := range pods {
		if pod.Namespace == at.Namespace && pod.Name == at.Pod && !podsource.Over(pod) {
			h := allocation.Holding{UID: string(pod.UID), Container: at.Container, IDs: allocation.SlotSet(ids), Name: names[0]}
			return resolved{pod: pod, starting: []allocation.Holding{h}, sharing: []allocation.Holding{h}}, nil
		}
	}
	return resolved{}, refuse(reasonNoPod, "slots %v: pod %s/%s holds them and does not run on this node", allocation.SlotSet(ids), at.Namespace, at.Pod)
}
