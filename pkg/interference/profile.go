package interference

import (
	"fmt"
	"math"

	"github.com/tandem-gpu/tandem/pkg/vgpu"
)

// Profile is what a workload uses of a device of one GPU model without neighbours. The zero value uses nothing.
type Profile struct {
	// SM is the part of the time in which a kernel runs, 0 to 1: what NVML calls GPU utilisation.
	SM float64
	// Bandwidth is the part of the time with reads or writes of device memory, 0 to 1: NVML's memory utilisation.
	Bandwidth float64
	// PCIe is the part of the bus to the host that it uses, 0 to 1; 0 where it is unknown.
	PCIe float64
	// Memory of the device that it holds.
	Memory vgpu.Bytes
	// Step is how long one step or one request takes, in seconds; 0 where it is unknown. Short steps suffer most from
	// neighbours that have SMs of their own.
	Step float64
	// Class says how its speed follows the part of the SMs that it may use.
	Class Class
	// Guessed says that the use was neither measured nor declared: it is a guess, and predictions from it have larger
	// errors.
	Guessed bool
	// Declared says that the use, or a part of it, is a declaration without an observation.
	Declared bool
}

// maxStep bounds Profile.Step: a day, in seconds.
const maxStep = 86_400.0

// Unknown returns the profile of an unknown workload. Such a workload fills the SMs that it may use and keeps the
// memory busy for half of the time, as the measured training jobs on data centre GPUs do.
func Unknown() Profile { return Profile{SM: 1, Bandwidth: .5, Guessed: true} }

// Class is a class of work by how its speed follows its part of the SMs.
type Class uint8

// Validate returns an error that names the field for amounts that no workload can have.
func (p *Profile) Validate() error {
	for _, f := range []struct {
		name  string
		value float64
	}{{"SM", p.SM}, {"Bandwidth", p.Bandwidth}, {"PCIe", p.PCIe}} {
		if math.IsNaN(f.value) || f.value < 0 || f.value > 1 {
			return fmt.Errorf("validate profile: %s is %v, legal is 0 to 1", f.name, f.value)
		}
	}
	if math.IsNaN(p.Step) || p.Step < 0 || p.Step > maxStep {
		return fmt.Errorf("validate profile: Step is %v s, legal is 0 to %v", p.Step, maxStep)
	}
	if p.Memory < 0 {
		return fmt.Errorf("validate profile: Memory is %d, legal is 0 or more", p.Memory)
	}
	return nil
}
