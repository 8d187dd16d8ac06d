package scenario

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxYAMLNodes bounds what aliases can blow a small file up to.
const maxYAMLNodes = 1 << 20

// toJSON turns one YAML document into JSON, with the text of each scalar as it stands there. YAML 1.1 reads n, off or
// yes as truth values and 010 as eight, but here a job may have the name n. An empty file gives nil.
func toJSON(file string, data []byte) ([]byte, error) {
	from := yaml.NewDecoder(bytes.NewReader(data))
	document, next := yaml.Node{}, yaml.Node{}
	if err := from.Decode(&document); errors.Is(err, io.EOF) {
		return nil, nil
	} else if err != nil {
		return nil, noYAML(file, err)
	}
	if err := from.Decode(&next); err == nil {
		return nil, &Error{File: file, Found: fmt.Sprintf("a second YAML document in line %d", next.Line), Want: "one scenario in a file"}
	} else if !errors.Is(err, io.EOF) {
		return nil, noYAML(file, err)
	}
	w := &yamlWriter{file: file}
	if err := w.write(&document); err != nil {
		return nil, err
	}
	return w.out.Bytes(), nil
}

func noYAML(file string, err error) error {
	return &Error{File: file, Found: "no YAML (" + strings.Join(strings.Fields(err.Error()), " ") + ")", Want: "a scenario in YAML"}
}

// yamlWriter writes nodes of YAML as JSON.
type yamlWriter struct {
	file  string
	out   bytes.Buffer
	nodes int
	// within are the aliases around the present node: one within itself would never end.
	within []*yaml.Node
}

func (w *yamlWriter) write(n *yaml.Node) error {
	if w.nodes++; w.nodes > maxYAMLNodes {
		return &Error{File: w.file, Found: fmt.Sprintf("aliases that stand for more than %d values", maxYAMLNodes), Want: "fewer"}
	}
	switch n.Kind {
	case yaml.DocumentNode:
		return w.write(n.Content[0])
	case yaml.MappingNode:
		return w.object(n)
	case yaml.SequenceNode:
		return w.list(n)
	case yaml.AliasNode:
		return w.alias(n)
	default:
		return w.scalar(n)
	}
}

func (w *yamlWriter) object(n *yaml.Node) error {
	first := map[string]int{}
	w.out.WriteByte('{')
	for i := 0; i < len(n.Content); i += 2 {
		key := n.Content[i]
		if key.Kind != yaml.ScalarNode {
			return &Error{File: w.file, Found: fmt.Sprintf("a key that is no name in line %d", key.Line), Want: "names as keys"}
		}
		if key.Tag == "!!merge" {
			return &Error{File: w.file, Found: fmt.Sprintf("the merge key << in line %d", key.Line),
				Want: "its fields written out; an alias may stand for a whole value"}
		}
		if line := first[key.Value]; line > 0 {
			return &Error{File: w.file, Found: fmt.Sprintf("key %s in line %d and again in line %d", strconv.Quote(key.Value), line, key.Line),
				Want: "each key once"}
		}
		first[key.Value] = key.Line
		if i > 0 {
			w.out.WriteByte(',')
		}
		w.text(key.Value)
		w.out.WriteByte(':')
		if err := w.write(n.Content[i+1]); err != nil {
			return err
		}
	}
	w.out.WriteByte('}')
	return nil
}

func (w *yamlWriter) list(n *yaml.Node) error {
	w.out.WriteByte('[')
	for i, element := range n.Content {
		if i > 0 {
			w.out.WriteByte(',')
		}
		if err := w.write(element); err != nil {
			return err
		}
	}
	w.out.WriteByte(']')
	return nil
}

func (w *yamlWriter) alias(n *yaml.Node) error {
	for _, outer := range w.within {
		if outer == n.Alias {
			return &Error{File: w.file, Found: fmt.Sprintf("alias *%s within itself in line %d", n.Value, n.Line), Want: "an end"}
		}
	}
	w.within = append(w.within, n.Alias)
	err := w.write(n.Alias)
	w.within = w.within[:len(w.within)-1]
	return err
}

// scalar writes nothing, null or ~ without quotes as null, and all else as a string.
func (w *yamlWriter) scalar(n *yaml.Node) error {
	if n.Tag == "!!null" && n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) == 0 {
		w.out.WriteString("null")
		return nil
	}
	w.text(n.Value)
	return nil
}

func (w *yamlWriter) text(s string) {
	quoted, _ := json.Marshal(s) // a string always has JSON
	w.out.Write(quoted)
}
