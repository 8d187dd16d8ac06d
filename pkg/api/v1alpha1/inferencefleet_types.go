package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// InferenceFleet is one model that serves requests within a promised latency, with the variants that serve it: pools of equal replicas
// on unlike GPUs and shares. A user makes it. The controller chooses how many replicas each variant has and which part of the
// requests it gets: it scales the variants' targets and writes the weights of an HTTPRoute.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Namespaced,shortName=ifl,categories=tandem
// +kubebuilder:printcolumn:name="Promise",type=string,JSONPath=`.spec.promise.latency`
// +kubebuilder:printcolumn:name="Demand",type=string,JSONPath=`.status.demand`
// +kubebuilder:printcolumn:name="Capacity",type=string,JSONPath=`.status.capacity`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Kept",type=string,JSONPath=`.status.conditions[?(@.type=="PromiseKept")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Since",type=date,JSONPath=`.status.since`
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.message`
type InferenceFleet struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the user wants.
	Spec InferenceFleetSpec `json:"spec"`
	// Status is what the controller decided and measured.
	// +optional
	Status InferenceFleetStatus `json:"status,omitempty"`
}

// InferenceFleetList is a list of InferenceFleets.
//
// +kubebuilder:object:root=true
type InferenceFleetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []InferenceFleet `json:"items"`
}

// InferenceFleetSpec is a promise, and what there is to keep it.
//
// +kubebuilder:validation:XValidation:rule="self.promise.of != 'FirstToken' || self.variants.all(v, !has(v.replica) || has(v.replica.firstToken))",message="promise.of is FirstToken: each variant needs replica.firstToken, the mean time until the first token on an idle replica"
// +kubebuilder:validation:XValidation:rule="!has(self.promise.perToken) || self.variants.all(v, !has(v.replica) || has(v.replica.inFlight))",message="promise.perToken is set: each variant needs replica.inFlight, how many answers at a time a replica can generate within it"
// +kubebuilder:validation:XValidation:rule="self.promise.of != 'FirstToken' || self.metrics.preset in ['vllm', 'none'] || has(self.metrics.queries) && has(self.metrics.queries.latency) && has(self.metrics.queries.variantLatency)",message="promise.of is FirstToken, and of the presets only vllm measures that: metrics.queries must have latency and variantLatency"
// +kubebuilder:validation:XValidation:rule="!has(self.classes) || self.objective == 'proportional'",message="with classes the objective must be proportional"
// +kubebuilder:validation:XValidation:rule="!has(self.classes) || has(self.metrics.queries) && has(self.metrics.queries.classRate)",message="classes need metrics.queries.classRate: how many requests a second of each class arrive"
// +kubebuilder:validation:XValidation:rule="self.variants.all(v, !has(v.classes) || v.classes.all(c, has(self.classes) && self.classes.exists(d, d.name == c.name)))",message="a variant serves a class that spec.classes does not have"
// +kubebuilder:validation:XValidation:rule="!has(self.classes) || self.classes.all(c, self.variants.exists(v, has(v.classes) && v.classes.exists(d, d.name == c.name)))",message="a class is not among the classes of any variant: at least one must serve it"
type InferenceFleetSpec struct {
	// Promise is the latency that the fleet keeps.
	Promise FleetPromise `json:"promise"`
	// Objective says what the division of the requests is best for, as long as no variant gets more than it serves within the promise:
	// proportional gives each variant requests in proportion to its rate; mean-optimal has the least mean latency; p99-optimal has the
	// least promised quantile of the slowest variant.
	// +optional
	// +kubebuilder:default=proportional
	// +kubebuilder:validation:Enum=proportional;mean-optimal;p99-optimal
	Objective string `json:"objective,omitempty"`
	// Variants are the pools of replicas, from 1 to 16. Each has a name, a scale target and a Service of its own.
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(v, self.exists_one(w, w.service.name == v.service.name))",message="two variants name one Service"
	// +kubebuilder:validation:XValidation:rule="self.all(v, !has(v.inferencePool) || self.exists_one(w, has(w.inferencePool) && w.inferencePool == v.inferencePool))",message="two variants name one InferencePool"
	// +kubebuilder:validation:XValidation:rule="self.all(v, self.exists_one(w, w.scaleTargetRef == v.scaleTargetRef))",message="two variants name one scale target"
	Variants []FleetVariant `json:"variants"`
	// Classes are kinds of requests with a rule of their own in the route, up to 7, such as long prompts. Each is divided over the variants that
	// serve it best. All other requests are divided by the rule of route.httpRoute.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=7
	// +kubebuilder:validation:XValidation:rule="self.all(c, self.exists_one(d, d.rule == c.rule))",message="two classes name one rule"
	Classes []FleetClass `json:"classes,omitempty"`
	// Route is where the controller writes the weights of the variants.
	Route FleetRoute `json:"route"`
	// Metrics say how to measure what arrives and how long it takes.
	Metrics FleetMetrics `json:"metrics"`
}

// FleetPromise says within which time which part of the requests is answered. For language models it can be about the first token of the
// answers, and about each token after that.
type FleetPromise struct {
	// Quantile is the part of the requests that is answered within the latency: a decimal from 0.5 to below 1.
	// +optional
	// +kubebuilder:default="0.99"
	// +kubebuilder:validation:MaxLength=8
	// +kubebuilder:validation:XValidation:rule="self.matches('^0[.][5-9][0-9]{0,5}$')",message="quantile must be a decimal from 0.5 to below 1 with up to six decimals, such as 0.99"
	Quantile string `json:"quantile,omitempty"`
	// Latency is the time within which it is answered, from 1us to 24h, for example 200ms.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,9}([.][0-9]{1,9})?(us|µs|ms|s|m|h)){1,4}$') && duration(self) >= duration('1us') && duration(self) <= duration('24h')",message="latency must be a duration from 1us to 24h, such as 200ms"
	Latency metav1.Duration `json:"latency"`
	// Of says what the latency is the time to: Answer, the end of the answer, or FirstToken, the first token of it.
	// +optional
	// +kubebuilder:default=Answer
	// +kubebuilder:validation:Enum=Answer;FirstToken
	Of string `json:"of,omitempty"`
	// PerToken is the time within which the same part of the tokens follows the one before, from 1us to 1h, for example 50ms.
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,9}([.][0-9]{1,9})?(us|µs|ms|s|m|h)){1,4}$') && duration(self) >= duration('1us') && duration(self) <= duration('1h')",message="perToken must be a duration from 1us to 1h, such as 50ms"
	PerToken *metav1.Duration `json:"perToken,omitempty"`
}

// The latency of a promise is the time to one of these.
const (
	PromiseOfAnswer     = "Answer"
	PromiseOfFirstToken = "FirstToken"
)

// FleetVariant is one pool of equal replicas: one GPU model, one share size.
//
// +kubebuilder:validation:XValidation:rule="self.minReplicas <= self.maxReplicas",message="minReplicas must be at most maxReplicas"
// +kubebuilder:validation:XValidation:rule="!has(self.replica) || !has(self.profile)",message="replica and profile say the same thing: remove one of them"
// +kubebuilder:validation:XValidation:rule="has(self.replica) || has(self.gpuModel) && has(self.slots)",message="without replica, gpuModel and slots are needed: they say which entry of the profile counts"
type FleetVariant struct {
	// Name of the variant, unique in the fleet.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// ScaleTargetRef names the object that makes the replicas, in the namespace of the fleet.
	ScaleTargetRef FleetScaleTarget `json:"scaleTargetRef"`
	// Service is that of the replicas, in the namespace of the fleet. The rule of the route has it as a backend, unless inferencePool is set.
	Service FleetService `json:"service"`
	// InferencePool is the name of the InferencePool of the replicas, in the namespace of the fleet, where the rule of the route has that as a
	// backend in place of the Service: one of inference.networking.k8s.io. The Service still says which replicas are ready.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	InferencePool string `json:"inferencePool,omitempty"`
	// GPUModel is the product name of the GPU as in GPUNode. With slots it says what elastic jobs must give back before the fleet grows.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	GPUModel string `json:"gpuModel,omitempty"`
	// Slots are those of a replica together, from 1 to 100000; they are the default of the cost.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	Slots int32 `json:"slots,omitempty"`
	// Cost of a replica, in a unit that all variants of the fleet share, from 1 to 1000000000. Default: slots, else 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=1000000000
	Cost int64 `json:"cost,omitempty"`
	// MinReplicas is the least number of replicas, from 0 to 10000. A fleet with 0 on all variants has no replica while no requests
	// arrive, and its first requests fail.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MinReplicas int32 `json:"minReplicas"`
	// MaxReplicas is the largest number of replicas, from 0 to 10000.
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=10000
	MaxReplicas int32 `json:"maxReplicas"`
	// LoadTime is the time from the start of a replica until it serves, from 0s to 24h. The fleet grows so much earlier.
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=64
	// +kubebuilder:validation:XValidation:rule="self.matches('^([0-9]{1,9}([.][0-9]{1,9})?(ms|s|m|h)){1,4}$') && duration(self) <= duration('24h')",message="loadTime must be a duration from 0s to 24h, such as 60s"
	LoadTime metav1.Duration `json:"loadTime"`
	// Replica is how one replica serves, without neighbours. Later measurements correct it. Without it the WorkloadProfile says it, by its
	// serving on the GPU model and the share that slots are. In a fleet with classes it is about the requests that are of none of them.
	// +optional
	Replica *FleetReplica `json:"replica,omitempty"`
	// Profile is the name of that WorkloadProfile, in the namespace of the fleet. Default: the label tandem-gpu.io/profile of the pod template
	// of the scale target.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Profile string `json:"profile,omitempty"`
	// Classes that the variant serves, of spec.classes. One that cannot serve a class within the promise gets no requests of it while others can.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=7
	Classes []FleetVariantClass `json:"classes,omitempty"`
}

// FleetScaleTarget names an object with the subresource /scale, such as a Deployment.
type FleetScaleTarget struct {
	// APIVersion of the object, for example apps/v1.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	APIVersion string `json:"apiVersion"`
	// Kind of the object, for example Deployment.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Kind string `json:"kind"`
	// Name of the object.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// FleetService names a Service and one of its ports.
type FleetService struct {
	// Name of the Service.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Port of the Service that the route sends requests to, from 1 to 65535.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}

// FleetRoute is where the weights of the variants stand.
type FleetRoute struct {
	// HTTPRoute names a rule of an HTTPRoute of the Gateway API, version v1.
	HTTPRoute FleetHTTPRoute `json:"httpRoute"`
}

// FleetHTTPRoute names a rule of an HTTPRoute in the namespace of the fleet. The backends of the rule are the Services of the variants, all of
// them and no others.
type FleetHTTPRoute struct {
	// Name of the HTTPRoute.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Rule is the index of the rule, from 0 to 15. It does not count where RuleName is given.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=15
	Rule int32 `json:"rule"`
	// RuleName is the name of the rule. It is needed where another rule has all backends of the fleet too: the index would tell another rule as soon as
	// one is put before it.
	// +optional
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	RuleName string `json:"ruleName,omitempty"`
}

// InferenceFleetStatus is what the controller decided and measured. Numbers alone are written at most once a minute.
type InferenceFleetStatus struct {
	// ObservedGeneration is the generation of the spec that the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Reason for the sizes, in one word: Grows, Shrinks, Cheaper, Steady, AtMost, PromiseTooShort, NoMetrics, AllFail, Paused, or the reason why the
	// condition Ready is not true.
	// +optional
	Reason string `json:"reason,omitempty"`
	// Message is the reason as a sentence.
	// +optional
	Message string `json:"message,omitempty"`
	// Demand is how many requests a second are expected until another replica could have loaded, empty for unknown.
	// +optional
	Demand string `json:"demand,omitempty"`
	// Capacity is how many requests a second the wanted replicas serve within the promise, empty for unknown.
	// +optional
	Capacity string `json:"capacity,omitempty"`
	// Since is when the fleet got its present sizes.
	// +optional
	Since *metav1.Time `json:"since,omitempty"`
	// WeightsLeftAloneUntil is until when the controller leaves the weights of the route alone, since somebody else changes them back; empty where
	// nobody does. A new controller goes on with it.
	// +optional
	WeightsLeftAloneUntil *metav1.Time `json:"weightsLeftAloneUntil,omitempty"`
	// Variants in the order of the spec.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Variants []FleetVariantStatus `json:"variants,omitempty"`
	// Classes in the order of the spec.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=7
	Classes []FleetClassStatus `json:"classes,omitempty"`
	// Conditions: Ready says whether the controller can size the fleet and divide its requests. Measured says whether Prometheus answers
	// how many requests arrive. PromiseKept says whether the measured latency is within the promise. Routed says whether the HTTPRoute has
	// the wanted weights. Scaled says whether all variants have their wanted replicas. Prioritized says whether the replicas have a priority
	// above that of the elastic jobs that use what the fleet lends.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// FleetVariantStatus is what a variant has.
type FleetVariantStatus struct {
	// Name of the variant.
	Name string `json:"name"`
	// Replicas is how many it should have.
	Replicas int32 `json:"replicas"`
	// Ready is how many of them serve.
	Ready int32 `json:"ready"`
	// Selector matches the pods of the variant, as its scale target says; empty where the target does not say it. Elastic jobs take no GPU of
	// a replica whose pod does not exist yet.
	// +optional
	Selector string `json:"selector,omitempty"`
	// Weight is its part of the requests in thousandths, as the HTTPRoute has it; in a fleet with classes, of the requests of all of them.
	Weight int32 `json:"weight"`
	// Capacity is how many requests a second one of its replicas serves within the promise, empty for unknown.
	// +optional
	Capacity string `json:"capacity,omitempty"`
	// Slowdown is how many times slower than declared its replicas are, as it was learned: from 0.25 to 16, 1 at first. A new controller
	// goes on with it.
	// +optional
	Slowdown string `json:"slowdown,omitempty"`
	// Later is how many replicas are expected to be needed at times to come, the soonest first, where that is more than Replicas. Elastic jobs
	// have their GPUs until then, of variants with a gpuModel and slots.
	// +optional
	// +kubebuilder:validation:MaxItems=4
	Later []FleetNeed `json:"later,omitempty"`
	// LeftAloneUntil is until when the controller leaves the replicas alone, since somebody else changes them back; empty where nobody does. A
	// new controller goes on with it.
	// +optional
	LeftAloneUntil *metav1.Time `json:"leftAloneUntil,omitempty"`
}

// FleetNeed is how many replicas of a variant are needed from a time on.
type FleetNeed struct {
	// From is the time, in whole minutes.
	From metav1.Time `json:"from"`
	// Replicas is how many are needed.
	Replicas int32 `json:"replicas"`
}

// Conditions of InferenceFleets.
const (
	// ConditionFleetReady says whether the controller can size the fleet and divide its requests.
	ConditionFleetReady = "Ready"
	// ConditionMeasured says whether it is known how many requests arrive.
	ConditionMeasured = "Measured"
	// ConditionPromiseKept says whether the measured latency is within the promise.
	ConditionPromiseKept = "PromiseKept"
	// ConditionRouted says whether the route has the wanted weights.
	ConditionRouted = "Routed"
	// ConditionScaled says whether all variants have their wanted replicas.
	ConditionScaled = "Scaled"
	// ConditionPrioritized says whether the replicas have a priority above that of the elastic jobs that use what the fleet lends.
	ConditionPrioritized = "Prioritized"
)
