// Command reference writes docs/reference/messages.md: the table of messages, the findings of kubectl tandem doctor from
// its checks, and the texts of the admission policies from their manifests. Its argument is the folder of the repository.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/tandem-gpu/tandem/internal/kubectl/checks"
	"github.com/tandem-gpu/tandem/internal/messages"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(w io.Writer, args []string) error {
	if len(args) != 1 {
		return errors.New("want one argument: the folder of the repository")
	}
	refused, err := refusals(args[0])
	if err != nil {
		return err
	}
	return messages.Write(w, messages.Sections(), findings(), refused)
}

// findings returns what the checks of doctor may find.
func findings() []messages.Finding {
	checked := checks.All()
	all := make([]messages.Finding, 0, len(checked))
	for _, c := range checked {
		all = append(all, messages.Finding{Check: c.Name, Severity: string(c.Severity), Why: c.Why, Page: c.Page})
	}
	return all
}

// refusals returns the texts of all admission policies of deploy/.
func refusals(root string) ([]messages.Refusal, error) {
	var files []string
	for _, pattern := range []string{"deploy/policies/*.yaml", "deploy/components/*/policy.yaml"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	var all []messages.Refusal
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		of, err := policies(raw)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", file, err)
		}
		all = append(all, of...)
	}
	return all, nil
}

// policies returns the texts of the policies in one file.
func policies(raw []byte) ([]messages.Refusal, error) {
	var all []messages.Refusal
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(raw), 4096); ; {
		var policy admissionv1.ValidatingAdmissionPolicy
		if err := decoder.Decode(&policy); err != nil {
			if errors.Is(err, io.EOF) {
				return all, nil
			}
			return nil, err
		}
		if policy.Kind != "ValidatingAdmissionPolicy" {
			continue
		}
		for _, v := range policy.Spec.Validations {
			if v.Message != "" {
				all = append(all, messages.Refusal{Policy: policy.Name, Text: v.Message})
			}
		}
	}
}
