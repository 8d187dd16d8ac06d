package gpunode

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// SelfReviews is the resource by which the API server names the account of a request. All accounts may create one
// (ClusterRole system:basic-user).
var SelfReviews = schema.GroupVersionResource{Group: "authentication.k8s.io", Version: "v1", Resource: "selfsubjectreviews"}

// Claims of a token that the kubelet has bound to a node. Source: Kubernetes, "Managing Service Accounts", "Bound
// service account tokens".
const (
	tokenNodeName = "authentication.kubernetes.io/node-name"
	tokenNodeUID  = "authentication.kubernetes.io/node-uid"
)

// owners makes the GPUNode belong to its Node, so that the garbage collector removes both: the agent may not read
// Nodes, but its token names the UID of its own. Without a token that the kubelet has bound to this node there is no
// owner.
func (p *Publisher) owners(ctx context.Context) ([]metav1.OwnerReference, error) {
	if p.Self == nil {
		return nil, nil
	}
	question := &unstructured.Unstructured{}
	question.SetGroupVersionKind(SelfReviews.GroupVersion().WithKind("SelfSubjectReview"))
	answer, err := p.Self.Create(ctx, question, metav1.CreateOptions{})
	if apierrors.IsForbidden(err) || apierrors.IsNotFound(err) {
		return nil, nil // without an owner, the GPUNode stays when its Node goes
	}
	if err != nil {
		return nil, fmt.Errorf("ask for the owner: %w", err)
	}
	said := func(key string) string {
		values, _, _ := unstructured.NestedStringSlice(answer.Object, "status", "userInfo", "extra", key)
		if len(values) != 1 {
			return ""
		}
		return values[0]
	}
	uid := said(tokenNodeUID)
	if uid == "" || said(tokenNodeName) != p.Node {
		return nil, nil
	}
	return []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: p.Node, UID: types.UID(uid)}}, nil
}
