package main

import (
	"fmt"
	"strings"
)

// modelPrefix marks the kinds of work that are models in PyTorch.
const modelPrefix = "model:"

func modelKinds() []string {
	return []string{modelPrefix + "resnet50-train", modelPrefix + "resnet50-infer", modelPrefix + "encoder", modelPrefix + "decode"}
}

func modelUnits(kind string) string {
	return map[string]string{
		"resnet50-train": "steps of 64 images/s", "resnet50-infer": "batches of 8 images/s", "encoder": "batches of 8 × 128 tokens/s", "decode": "steps of 8 tokens/s",
	}[strings.TrimPrefix(kind, modelPrefix)]
}

// modelsPart measures real models with random weights, alone and in pairs.
func (s *suite) modelsPart() error {
	if s.report.Machine.Torch == "" {
		fmt.Fprintln(s.out, "gpu-test: models is left out: python3 has no PyTorch that sees the GPU")
		return nil
	}
	if err := s.features(modelKinds()); err != nil {
		return err
	}
	for _, p := range []phase{
		{name: "time-slicing", percents: []int{0, 0}, solo: true},
		{name: "mps-50-50", percents: []int{50, 50}, mps: true, solo: true},
		{name: "mps-100-100", percents: []int{0, 0}, mps: true, solo: true},
		{name: "mps-30-70", percents: []int{30, 70}, mps: true, solo: true},
	} {
		if err := s.corun("models", p, modelKinds(), modelUnits); err != nil {
			return err
		}
	}
	return nil
}
