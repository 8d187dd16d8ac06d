package interference

import (
	"fmt"
	"strings"
)

// Classes of work, from measurements. ClassLight takes precedence over the kind of work: the other classes are for work
// that fills the device. Measured curves of light work are alike for all kinds, and differ from those of the same model
// with a batch that fills the device. The size of the batch alone does not decide (decisions/0012).
const (
	// ClassUnknown is work of an undeclared class: its speed follows the SMs in proportion. Hardly any measured work
	// was slower.
	ClassUnknown Class = iota
	// ClassLight is work that does not fill a device without neighbours. Either a batch of twice the size takes less
	// than 1.3 times as long, or, in training, kernels run less than 70 % of the time.
	ClassLight
	// ClassTraining is training that fills the device.
	ClassTraining
	// ClassInference is inference on batches that fill the device.
	ClassInference
	// ClassPrefill is a language model that reads prompts, of about 256 tokens or more at once.
	ClassPrefill
	// ClassDecode is a language model that writes, one token of each sequence at a time, with enough sequences to fill
	// the device: about 128 or more. With fewer it is light.
	ClassDecode
	classes
)

// classNames are the names that users write.
var classNames = [classes]string{"unknown", "light", "training", "inference", "prefill", "decode"}

// String returns the name of the class. A number that stands for no class reads "class(9)".
func (c Class) String() string {
	if c >= classes {
		return fmt.Sprintf("class(%d)", uint8(c))
	}
	return classNames[c]
}

// ClassByName returns the class of a name, and an error that lists the names if there is none.
func ClassByName(name string) (Class, error) {
	for c, known := range classNames {
		if known == name {
			return Class(c), nil
		}
	}
	return ClassUnknown, fmt.Errorf("class %q: unknown, known are %s", name, strings.Join(classNames[:], ", "))
}

// ClassNames returns the names of all classes, the unknown one first.
func ClassNames() []string { return append([]string(nil), classNames[:]...) }
