package measurements

import (
	"strings"
	"testing"
)

func TestFamily(t *testing.T) {
	for model, want := range map[string]string{
		"ResNet18": "ResNet", "ResNet50": "ResNet", "VGG11": "VGG", "vgg19": "vgg", "EfficientNetB0": "EfficientNet",
		"EfficientNet": "EfficientNet", "MobileNetV3": "MobileNet", "mobilenet_v2": "mobilenet", "ssd-mobilenetv1": "ssd-mobilenet",
		"mnasnet1_0": "mnasnet", "densenet161": "densenet", "llama-7b": "llama", "deepspeech2": "deepspeech",
		"resnet50-train": "resnet50-train", "resnet50-infer": "resnet50-infer", "compute": "compute", // no size at the end
		"TD3": "TD3", "A3C": "A3C", "T5": "T5", "LSTM": "LSTM", "NeuMF": "NeuMF", "PointNet": "PointNet", "BERT": "BERT", "": "", "18": "18",
	} {
		if got := Family(model); got != want {
			t.Errorf("family of %s: %s, want %s", model, got, want)
		}
	}
}

// TestGPUOfAName: only the name of a file of gpulet says on which GPU it was measured.
func TestGPUOfAName(t *testing.T) {
	for file, want := range map[string]string{
		"glet/2080ti_UTIL.csv": "2080ti", "3080_UTIL.csv.gz": "3080", "_UTIL.csv": "", "util.csv": "", "a\x01_UTIL.csv": "",
	} {
		tr, err := Read(strings.NewReader("bench,batch,SM_util(%),l2_util(%),mem_util(%)\nbert,4,24.5,14.0,30.25,\n"), file)
		if err != nil {
			t.Fatal(err)
		}
		if got := tr.Solos[0].GPU; got != want {
			t.Errorf("%s is of %q, want %q", file, got, want)
		}
	}
}
