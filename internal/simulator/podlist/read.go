package podlist

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// object is what kubectl prints: a list, or one pod.
type object struct {
	Kind  string            `json:"kind"`
	Items []json.RawMessage `json:"items"`
}

const legalKinds = "legal are List, PodList and Pod, as kubectl get pods -o json or -o yaml prints them"

// Read reads pods as kubectl prints them: JSON or YAML, of one document or of several. Other objects of a list are counted in others.
func Read(r io.Reader) (pods []*v1.Pod, others int, err error) {
	from := yaml.NewYAMLOrJSONDecoder(r, 1<<16)
	for number := 1; ; number++ {
		var raw json.RawMessage
		switch err := from.Decode(&raw); {
		case errors.Is(err, io.EOF) && len(pods)+others == 0:
			return nil, 0, errors.New("there are no objects: " + legalKinds)
		case errors.Is(err, io.EOF):
			return pods, others, nil
		case err != nil:
			return nil, 0, fmt.Errorf("document %d is no whole JSON or YAML: %w", number, err)
		case len(raw) == 0 || string(raw) == "null":
			continue
		}
		all, err := itemsOf(raw)
		if err != nil {
			return nil, 0, fmt.Errorf("document %d: %w", number, err)
		}
		for i, item := range all {
			pod, err := podOf(item)
			if err != nil {
				return nil, 0, fmt.Errorf("document %d: object %d: %w", number, i+1, err)
			}
			if pod == nil {
				others++
				continue
			}
			pods = append(pods, pod)
		}
	}
}

// itemsOf returns the objects of a document.
func itemsOf(raw json.RawMessage) ([]json.RawMessage, error) {
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("%w; %s", err, legalKinds)
	}
	switch o.Kind {
	case "Pod":
		return []json.RawMessage{raw}, nil
	case "List", "PodList", "":
		if o.Items != nil {
			return o.Items, nil
		}
	}
	return nil, fmt.Errorf("kind: %q without items; %s", o.Kind, legalKinds)
}

// podOf reads an object of a list, and returns nil for one that is no pod. The items of a PodList name no kind.
func podOf(raw json.RawMessage) (*v1.Pod, error) {
	var o object
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	if cmp.Or(o.Kind, "Pod") != "Pod" {
		return nil, nil
	}
	pod := &v1.Pod{}
	if err := json.Unmarshal(raw, pod); err != nil {
		return nil, fmt.Errorf("pod %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	return pod, nil
}
