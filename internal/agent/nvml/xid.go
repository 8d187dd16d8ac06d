package nvml

// Class says what an XID error requires.
type Class string

// Classes, from the lightest. The classes are few and fixed, so they can be labels of metrics.
const (
	// Information: the error requires nothing.
	Information Class = "information"
	// Application: a program's own mistake. The device is sound.
	Application Class = "application"
	// Contained: the programs that met the error are lost. The device serves new ones.
	Contained Class = "contained"
	// Unclassified: NVIDIA's catalogue names no action for this number, or does not have it.
	Unclassified Class = "unclassified"
	// Reset: the device needs a reset before it can work reliably.
	Reset Class = "reset"
	// Reboot: only a restart of the machine, or new hardware, helps.
	Reboot Class = "reboot"
)

// Classes returns all classes, from the lightest.
func Classes() []Class {
	return []Class{Information, Application, Contained, Unclassified, Reset, Reboot}
}

// Critical says that the device is unhealthy: at once it takes no new work.
func (c Class) Critical() bool { return c != Information && c != Application }

// NeedsReset says that time alone does not heal the device. The other critical classes end when the clients of the
// device are gone, its MPS daemon is new and a canary succeeded.
func (c Class) NeedsReset() bool { return c == Reset || c == Reboot }

// ClassOf returns what NVIDIA says to do about an XID error.
//
// Source: the "immediate action" of the XID catalogue (docs.nvidia.com/deploy/xid-errors, analyzing-xid-catalog, as of
// October 2025). For codes that only GPUs before Ampere raise, the source is the GPU debug guidelines. NVIDIA's
// k8s-device-plugin (internal/rm/health.go) gives the list of application errors. A number too many among those that
// are not critical hides a broken GPU; one too few lets a user's bug empty a healthy one. If the catalogue decides by
// registers that NVML does not show (74, 144 to 150), the answer here is the worst of the usual ones or leaves the
// decision to Recovery.
func ClassOf(xid uint64) Class {
	switch xid {
	case 14, // fake error of tests
		37, 38, // firmware of the context switcher
		44,     // fault during a context switch
		63,     // a row was remapped, or a page retired, with effect at the next reset and none before
		66, 67, // illegal access by the driver
		92,       // many corrected ECC errors: a case for support if it goes on
		93,       // InfoROM wear limit
		106, 107, // test messages
		108, 137, // NVLink: the far end has the cause
		121,      // chip-to-chip link
		141,      // fast path
		152, 153, // deep learning accelerator
		154,           // the recovery action changed: Recovery returns it
		157, 160, 161: // retirement of resources and of channels
		return Information // IGNORE
	case 13, // graphics engine exception
		31,     // page fault
		43,     // stopped processing: an IGNORE of the catalogue
		45,     // preemptive cleanup after another error, or after the SIGKILL of a program
		68,     // video decoder; k8s-device-plugin ignores it
		11, 25, // invalid command stream
		69: // class error: a program used the engine wrongly
		return Application // RESTART_APP, then CHECK_APP/CUDA
	case 8, // stopped processing
		32, 80, // push buffer corrupted on its way: quality of the bus rather than the program
		39, 40, 41, 70, 71, 72, 75, 76, 77, 85, // copy engines
		126, 127, 128, 129, 130, 131, 132, 133, 134, 135,
		60,                     // security engine
		82, 83, 84, 86, 88, 89, // JPEG, video decoders, optical flow
		96, 97, 98, 99, 100, 101, 102, 103, 104, 105, 139,
		94: // contained memory error
		return Contained // RESTART_APP, then CONTACT_SUPPORT
	case 109:
		// Context switch timeout. k8s-device-plugin ignores it as an application error, the catalogue says RESET_GPU,
		// and it links to the recovery action. Between the two: the device is unhealthy, and the canary and Recovery
		// decide.
		return Contained
	case 144, 145, 146, 147, 148, 149, 150:
		// NVLink 5. Most sub-codes have no effect or end in the recovery action, which every driver of these GPUs
		// reports.
		return Contained
	case 46, // GPU timeout
		48,     // double-bit ECC error
		61, 62, // power management unit halted
		64,  // row remapping or page retirement failed
		74,  // NVLink
		95,  // uncontained memory error
		110, // security fault
		119, // GSP firmware does not answer
		120, // GSP firmware failed
		136, // link training
		140, // unrecovered ECC error
		143, // initialisation failed
		155, // NVLink, defined by software
		156, // the driver retired a resource
		158: // fatal timeout
		return Reset // RESET_GPU
	case 79, // fallen off the bus: RESTART_BM
		151: // key rotation: RESTART_VM
		return Reboot
	default:
		// Numbers without an action (54, 78, 142, 159, 162 to 172), unused ones, and 999, which is NVML's word for "unknown".
		return Unclassified
	}
}
