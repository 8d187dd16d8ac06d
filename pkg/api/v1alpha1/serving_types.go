package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ProfileServing is how a replica of a workload serves requests on a share of one GPU model.
//
// +kubebuilder:validation:XValidation:rule="self.sharePercent <= 100 || self.sharePercent % 100 == 0",message="sharePercent must be from 1 to 100 percent of a device, or a multiple of 100 up to 12800 for whole devices"
type ProfileServing struct {
	// Model is the product name as in GPUNode.
	// +kubebuilder:validation:Pattern=`^[^*]+$`
	// +kubebuilder:validation:MaxLength=63
	Model string `json:"model"`
	// SharePercent of the model that a replica has: from 1 to 100, or a multiple of 100 up to 12800 for whole devices. A share that
	// is no whole percent, such as one slot of 7, counts as the nearest one, 14.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=12800
	SharePercent int32 `json:"sharePercent"`
	// Replica is how it serves there, without neighbours.
	Replica FleetReplica `json:"replica"`
}

// FleetReplica is how one replica serves requests while no other pod slows it down.
//
// +kubebuilder:validation:XValidation:rule="!has(self.firstToken) || duration(self.firstToken) <= duration(self.time)",message="firstToken must be at most time, that of the whole answer"
type FleetReplica struct {
	// Rate is how many requests a second it completes while it always has enough of them: a decimal above 0 and below 1000000000, with up
	// to six decimals.
	// +kubebuilder:validation:MaxLength=16
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,9}([.][0-9]{1,6})?$') && double(self) > 0.0",message="rate must be a decimal above 0 and below 1000000000, in requests a second, such as 12.5"
	Rate string `json:"rate"`
	// Time is the mean time of one request on an idle replica, from 1us to 24h.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,9}([.][0-9]{1,9})?(us|µs|ms|s|m|h)){1,4}$') && duration(self) >= duration('1us') && duration(self) <= duration('24h')",message="time must be a duration from 1us to 24h, such as 25ms"
	Time metav1.Duration `json:"time"`
	// Variation is the squared coefficient of variation of that time, a decimal from 0 to below 10000: 0 where all requests take the same
	// time, 1 where the times are exponential.
	// +optional
	// +kubebuilder:default="1"
	// +kubebuilder:validation:MaxLength=11
	// +kubebuilder:validation:XValidation:rule="self.matches('^[0-9]{1,4}([.][0-9]{1,6})?$')",message="variation must be a decimal from 0 to below 10000, such as 0.5"
	Variation string `json:"variation,omitempty"`
	// Gate is how long a request may wait for the next batch although there is room in it, from 0s to 24h: the time of a batch where the
	// server begins a batch only when the last one is done. Default: 0s, for servers that take requests at any time.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,9}([.][0-9]{1,9})?(us|µs|ms|s|m|h)){1,4}$') && duration(self) <= duration('24h')",message="gate must be a duration from 0s to 24h, such as 5ms"
	Gate *metav1.Duration `json:"gate,omitempty"`
	// FirstToken is the mean time until the first token of an answer on an idle replica, from 1us to time. It counts where the promise is of
	// FirstToken.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,9}([.][0-9]{1,9})?(us|µs|ms|s|m|h)){1,4}$') && duration(self) >= duration('1us') && duration(self) <= duration('24h')",message="firstToken must be a duration from 1us to 24h, such as 100ms"
	FirstToken *metav1.Duration `json:"firstToken,omitempty"`
	// InFlight is how many answers a replica generates at a time, at most, so that the promised part of their tokens follows within
	// perToken, from 1 to 4096. Measure time with that many at a time.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=4096
	InFlight int32 `json:"inFlight,omitempty"`
}
