package traces

import "testing"

func TestFamily(t *testing.T) {
	for model, want := range map[string]string{
		"ResNet18": "ResNet", "ResNet50": "ResNet", "VGG11": "VGG", "vgg19": "vgg", "EfficientNetB0": "EfficientNet",
		"EfficientNet": "EfficientNet", "MobileNetV3": "MobileNet", "mobilenet_v2": "mobilenet", "ssd-mobilenetv1": "ssd-mobilenet",
		"mnasnet1_0": "mnasnet", "densenet161": "densenet", "llama-7b": "llama", "deepspeech2": "deepspeech",
		"TD3": "TD3", "A3C": "A3C", "T5": "T5", "LSTM": "LSTM", "NeuMF": "NeuMF", "PointNet": "PointNet", "BERT": "BERT", "": "", "18": "18",
	} {
		if got := Family(model); got != want {
			t.Errorf("family of %s: %s, want %s", model, got, want)
		}
	}
}
