package interference

import (
	"fmt"
	"strings"
)

// Classes of work, from what was measured. The order is that of ClassNames; the numbers are not stored anywhere.
const (
	// ClassUnknown is work of which nobody said what it is: its speed is taken to follow the SMs in proportion, below
	// which almost nothing was measured.
	ClassUnknown Class = iota
	// ClassTraining is training that keeps a whole device busy at least 70 % of the time.
	ClassTraining
	// ClassTrainingLight is training that keeps a whole device busy less than 70 % of the time, as small models and those
	// that wait for their input do.
	ClassTrainingLight
	// ClassInferenceSmallBatch is inference on batches of fewer than 16 samples.
	ClassInferenceSmallBatch
	// ClassInferenceLargeBatch is inference on batches of 16 samples or more.
	ClassInferenceLargeBatch
	// ClassPrefill is a language model that reads prompts.
	ClassPrefill
	// ClassDecode is a language model that writes, one token of each sequence at a time.
	ClassDecode
	classes
)

// classNames are the names that users write.
var classNames = [classes]string{
	"unknown", "training", "training-light", "inference-small-batch", "inference-large-batch", "prefill", "decode",
}

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
