package binding

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Reasons of refused container starts, the label of tandem_agent_prestart_failures_total.
const (
	reasonNoHolder     = "NoHolder"
	reasonNoPod        = "NoPod"
	reasonNoAssignment = "NoAssignment"
	reasonMismatch     = "AssignmentMismatch"
	reasonChanged      = "AssignmentChanged"
	reasonOverCapacity = "OverCapacity"
	reasonSick         = "DeviceUnhealthy"
	reasonSharing      = "MPSNotReady"
	reasonContexts     = "ContextsExhausted"
	reasonNode         = "NodeError"
)

// refused is the reason why the agent does not allow a container start. Its text ends up in the pod's event.
type refused struct {
	reason string
	text   string
}

func (r *refused) Error() string { return r.text }

func refuse(reason, format string, args ...any) error {
	return &refused{reason: reason, text: fmt.Sprintf(format, args...)}
}

// ReasonOf returns the reason of an error, "" for nil.
func ReasonOf(err error) string {
	var r *refused
	switch {
	case err == nil:
		return ""
	case errors.As(err, &r):
		return r.reason
	}
	return reasonNode
}

// Answer gives an error the form in which the kubelet shows it best.
func Answer(err error) error {
	if err == nil {
		return nil
	}
	if ReasonOf(err) == reasonNode {
		return status.Error(codes.Unavailable, err.Error())
	}
	return status.Error(codes.FailedPrecondition, err.Error())
}
