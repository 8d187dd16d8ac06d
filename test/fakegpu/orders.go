package fakegpu

// MPS orders the control daemon of a device to misbehave.
//
// Fault and Wedge affect the daemon and servers of that time. A daemon that starts later is healthy although the order
// still stands, and obeys the next one only after the end of this one. Daemons look every 20 ms and before every
// command. The other orders hold for as long as they stand, for new daemons too.
type MPS struct {
	// Fault breaks every server of the daemon, as a fatal fault of a client does. get_server_status says FAULT, its
	// clients get the fault, and the server refuses newcomers until the last of those clients has gone. A server
	// without clients is in FAULT until the end of the order. Without a server the next one is hit.
	Fault bool `json:"fault,omitempty"`
	// Wedge makes every later client of the servers that run now (without one: of the next) block for ever when it
	// connects, while clients and commands go on. Only a new server cures it; withdrawing the order does not. Users
	// report this of other drivers after a SIGKILL with work in flight; an H100 with driver 580.159 did not show it.
	Wedge bool `json:"wedge,omitempty"`
	// Hang makes the daemon accept connections and never answer. SIGSTOP to a daemon is the hang of one process, which
	// its replacement does not inherit.
	Hang bool `json:"hang,omitempty"`
	// IgnoreLimits makes the daemon accept limits and not keep them, as daemons did for devices named by UUID.
	IgnoreLimits bool `json:"ignoreLimits,omitempty"`
	// LingerMillis is how long the daemon lives on after quit.
	LingerMillis int `json:"lingerMillis,omitempty"`
	// NoStart makes new daemons refuse to start.
	NoStart bool `json:"noStart,omitempty"`
	// Initializing makes every server report INITIALIZING and new clients wait.
	Initializing bool `json:"initializing,omitempty"`
}

// Orders returns the orders of the state to the daemon of a device or of a MIG instance, and whether the physical GPU
// is lost. A device without an entry has none.
func (s *State) Orders(uuid string) (orders MPS, lost bool) {
	d, instance := s.Find(uuid)
	switch {
	case d == nil:
		return MPS{}, false
	case instance != nil:
		return instance.MPS, d.Lost
	}
	return d.MPS, d.Lost
}

// Find returns the device with a UUID. For the UUID of a MIG instance that is its parent, and the instance.
func (s *State) Find(uuid string) (*Device, *MIGInstance) {
	for i := range s.Devices {
		d := &s.Devices[i]
		if d.UUID == uuid {
			return d, nil
		}
		for j := range d.MIG.Instances {
			if d.MIG.Instances[j].UUID == uuid {
				return d, &d.MIG.Instances[j]
			}
		}
	}
	return nil, nil
}

// ContextLimit returns how many client contexts MPS allows on the device: 48, 60 from CUDA 13.1 on, 16 before Volta.
// Source: NVIDIA MPS documentation.
func (s *State) ContextLimit(uuid string) int {
	d, _ := s.Find(uuid)
	switch {
	case d != nil && d.Major < 7:
		return 16
	case s.CUDAVersion >= 13010:
		return 60
	}
	return 48
}
