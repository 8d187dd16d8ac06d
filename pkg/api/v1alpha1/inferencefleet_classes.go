package v1alpha1

// FleetClass is a kind of requests that the route tells from others, by a header for example.
type FleetClass struct {
	// Name of the class, unique in the fleet.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Rule is the name of the rule of the HTTPRoute that takes the requests of the class. The rule has the matches, and a backend for each variant that
	// serves the class.
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`
	// +kubebuilder:validation:MaxLength=253
	Rule string `json:"rule"`
}

// FleetVariantClass is how a variant serves a class.
type FleetVariantClass struct {
	// Name of the class, one of spec.classes.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// Replica is how one replica serves requests of this class alone, without neighbours. Measurements of the variant correct it.
	Replica FleetReplica `json:"replica"`
}

// FleetClassStatus is what arrives of a class, and who gets it.
type FleetClassStatus struct {
	// Name of the class.
	Name string `json:"name"`
	// Rate is how many requests a second arrive, empty for unknown.
	// +optional
	Rate string `json:"rate,omitempty"`
	// Weights are the parts of the variants that get requests of it, as its rule in the HTTPRoute has them.
	// +optional
	// +listType=map
	// +listMapKey=variant
	// +kubebuilder:validation:MaxItems=16
	Weights []FleetClassWeight `json:"weights,omitempty"`
}

// FleetClassWeight is the part of a class that a variant gets.
type FleetClassWeight struct {
	// Variant is the name of the variant.
	Variant string `json:"variant"`
	// Weight in thousandths.
	Weight int32 `json:"weight"`
}
