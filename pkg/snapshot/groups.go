package snapshot

import (
	"time"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// GangName names a gang. Source says where it is declared: scheduling.k8s.io, scheduling.x-k8s.io, label, or "" in the
// simulator.
type GangName struct {
	Source    string `json:"source,omitempty"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Gang is a group of pods of which at least MinCount run, or none.
type Gang struct {
	GangName
	MinCount int `json:"minCount"`
	// Members exist and have not ended, Bound of them have a node.
	Members int `json:"members"`
	Bound   int `json:"bound"`
	// RequiredTopology are the keys of node labels of which the members share one value, each. PreferredTopology are those for
	// which the scheduler looks for one value, the most important first. Both are left out of gangs that the reader may not see.
	RequiredTopology  []string `json:"requiredTopology,omitempty"`
	PreferredTopology []string `json:"preferredTopology,omitempty"`
	// Phase is about the members that have a place (Unplaced, Planned, Binding, Running), Need about those that must run and have
	// none (Satisfied, Incomplete, Refused, Reserving, Preempting: docs/gang-phases.md), or Malformed: the members say something of
	// the gang that is not legal, and Message says why. No further member is placed then.
	Phase string `json:"phase"`
	Need  string `json:"need"`
	// Reason is a word for a refusal, Message the sentence.
	Reason  string `json:"reason,omitempty"`
	Message string `json:"message,omitempty"`
	// WaitsSince is when the gang began to wait for room, absent where it does not.
	WaitsSince time.Time `json:"waitsSince,omitzero"`
	// Places of members that are not bound: those of the plan, or of the room that the scheduler keeps or makes. By UID.
	Places []Place `json:"places,omitempty"`
	// GivesWay is the gang to which this one gives way, absent for none.
	GivesWay *GivesWay `json:"givesWay,omitempty"`
}

// GivesWay says for which other gang a gang can be evicted although its priority is not lower, and from when on: both run and lack
// members, and each may hold what the other one needs.
type GivesWay struct {
	Gang GangName  `json:"gang"`
	At   time.Time `json:"at"`
}

// Malformed is the Need of a gang whose members do not say how it is to be placed.
const Malformed = "Malformed"

// Place is where a pod is to go.
type Place struct {
	Name
	Node string `json:"node"`
}

// Preemption is an eviction of pods that makes room for another pod or a gang.
type Preemption struct {
	// Pod is the preemptor, or Gang.
	Pod  *Name     `json:"pod,omitempty"`
	Gang *GangName `json:"gang,omitempty"`
	// Phase is Leaving while victims are there, Cleared when all have left.
	Phase string `json:"phase"`
	// Until is when the victims are gone at the latest, of a cleared one since when they are gone.
	Until time.Time `json:"until,omitzero"`
	// Victims by UID, with their nodes.
	Victims []Place `json:"victims"`
}

// ElasticTarget is the size that an elastic gang should have.
type ElasticTarget struct {
	GangName
	Workers int `json:"workers"`
	// Min and Max are the least and the largest number of workers.
	Min int `json:"min"`
	Max int `json:"max"`
	// Reason for the target, a word.
	Reason string `json:"reason,omitempty"`
}

// InferenceFleet is one model that serves requests, with its variants.
type InferenceFleet struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Reason for the sizes, a word.
	Reason string `json:"reason,omitempty"`
	// Variants in the order of the fleet.
	Variants []Variant `json:"variants"`
}

// Variant is a pool of equal replicas of a fleet.
type Variant struct {
	Name string `json:"name"`
	// Model of the GPUs, "" where the fleet does not say it. Slots are those of a replica, 0 for not said.
	Model string     `json:"model,omitempty"`
	Slots vgpu.Slots `json:"slots,omitempty"`
	// Replicas that it should have, and Ready the number that serve.
	Replicas int `json:"replicas"`
	Ready    int `json:"ready"`
	// WeightMilli is its part of the requests in thousandths.
	WeightMilli int `json:"weightMilli"`
}
