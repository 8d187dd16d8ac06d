package vgpu

import (
	"fmt"
	"strconv"
	"strings"
)

// String describes the refusal with the numbers and with what would help, as in events: "largest free share is 4 of 10
// slots on n2/g1; container main asks for 5".
func (r Refusal) String() string {
	s := r.sentence()
	if r.Helps == RecoveryHelps && r.Reason != NoShareFits {
		s += "; devices that take no pods now, such as sick or cordoned ones, would make up for it"
	}
	if r.Cut {
		s += "; the search was cut short, there may be a fit that it did not see"
	}
	return s
}

func (r *Refusal) sentence() string {
	switch r.Reason {
	case IllegalSlots:
		return fmt.Sprintf("%s asks for %d slots, which is neither a part of one device nor whole devices; nearest legal values: %s",
			r.subject(), r.Want, join(r.Legal))
	case MemoryAboveDevice:
		return fmt.Sprintf("%s asks for %v of device memory; it can have at most %v%s",
			r.subject(), Bytes(r.Want), Bytes(r.Of), r.onModel())
	case ComputeLimitBelowRequest, MemoryLimitBelowRequest:
		return fmt.Sprintf("%s limit %s is below the request of %s; the least legal limit is %s%s",
			r.limitName(), r.amount(r.Want), r.subject(), r.amount(r.Best), r.onModel())
	case LimitAboveDevice:
		return fmt.Sprintf("%s limit %s is above the device; the most legal limit is %s%s",
			r.limitName(), r.amount(r.Want), r.amount(r.Best), r.onModel())
	case TooFewDevices:
		return fmt.Sprintf("number of %s devices on %s is %d; %s asks for %d whole devices", r.Model, r.Node, r.Best, r.subject(), r.Want)
	case NoWholeDevices:
		return fmt.Sprintf("number of wholly free %s devices on %s is %d of %d; %s asks for %d whole devices",
			r.Model, r.Node, r.Best, r.Of, r.subject(), r.Want)
	case NoShareFits:
		return r.shareSentence()
	case NoTogether:
		return fmt.Sprintf("the containers fit one by one, not at once: %d of %d slots are free on %s, in parts; they ask for %d",
			r.Best, r.Of, r.Node, r.Want)
	case NoAllowedModel:
		return r.modelSentence()
	case PromiseBroken:
		return r.promiseSentence()
	case NoDevices:
		return r.Node + " has no GPUs"
	}
	return string(r.Reason)
}

func (r *Refusal) shareSentence() string {
	if r.Device == "" {
		return fmt.Sprintf("only devices of %s that are sick or cordoned could take %s", r.Node, r.subject())
	}
	switch r.Unit {
	case UnitBytes:
		return fmt.Sprintf("most free device memory is %v of %v on %s/%s; %s asks for %v",
			Bytes(r.Best), Bytes(r.Of), r.Node, r.Device, r.subject(), Bytes(r.Want))
	case UnitContexts:
		return fmt.Sprintf("%s/%s serves %d MPS clients and has room for %d more; %s needs %d",
			r.Node, r.Device, r.Of, r.Best, r.subject(), r.Want)
	}
	return fmt.Sprintf("largest free share is %d of %d slots on %s/%s; %s asks for %d",
		r.Best, r.Of, r.Node, r.Device, r.subject(), r.Want)
}

func (r *Refusal) modelSentence() string {
	where := r.Node
	if where == "" {
		where = "the cluster"
	}
	return fmt.Sprintf("the pod may only use %s; %s has %s", strings.Join(r.Allowed, " or "), where, strings.Join(r.Present, ", "))
}

// promiseSentence names the pod with the promise and its neighbours: "on n1/g0 a slowdown of 1.31 is predicted for pod
// a/infer beside b/train, which tolerates 1.15".
func (r *Refusal) promiseSentence() string {
	said := fmt.Sprintf("on %s/%s a slowdown of %s is predicted for the pod beside %s; its max-slowdown is %s",
		r.Node, r.Device, ratio(r.Best), firstNames(r.Beside), ratio(r.Want))
	if r.Promised != "" {
		said = fmt.Sprintf("on %s/%s the pod would slow down %s, for which %s is then predicted and whose max-slowdown is %s",
			r.Node, r.Device, r.Promised, ratio(r.Best), ratio(r.Want))
	}
	if len(r.Declared) == 0 {
		return said
	}
	names := make([]string, len(r.Declared))
	for i, name := range r.Declared {
		if names[i] = name; name == "" {
			names[i] = "the pod"
		}
	}
	return said + fmt.Sprintf(" (the use of %s is declared and not observed yet: at least half of what the compute limit allows counts)", firstNames(names))
}

// ratio writes thousandths: "1.15", "2".
func ratio(milli int64) string {
	return strconv.FormatFloat(float64(milli)/1000, 'f', -1, 64)
}

// firstNames joins the first names of a list.
func firstNames(names []string) string {
	const most = 3
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func (r *Refusal) subject() string {
	if r.Container == "" {
		return "the pod"
	}
	return "container " + r.Container
}

func (r *Refusal) limitName() string {
	if r.Unit == UnitMilliGPU {
		return "compute"
	}
	return "memory"
}

func (r *Refusal) onModel() string {
	if r.Model == "" {
		return ""
	}
	return " on " + r.Model
}

func (r *Refusal) amount(v int64) string {
	switch r.Unit {
	case UnitMilliGPU:
		return MilliGPU(v).String()
	case UnitBytes:
		return Bytes(v).String()
	}
	return strconv.FormatInt(v, 10)
}

func join(values []Slots) string {
	words := make([]string, 0, len(values))
	for _, v := range values {
		words = append(words, strconv.FormatInt(int64(v), 10))
	}
	return strings.Join(words, " and ")
}
