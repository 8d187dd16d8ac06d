// Package snapshotjson writes the snapshots of package snapshot as JSON, and reads them.
//
// The form has a version: apiVersion changes when a field changes its meaning or goes, minor grows when fields are added. Read
// takes any minor version of its apiVersion. It refuses unknown fields of a minor version that it knows. It ignores those of a
// newer one, at all depths.
package snapshotjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	kjson "sigs.k8s.io/json"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
	"github.com/tandem-gpu/tandem/pkg/snapshot"
)

// The version that Write writes.
const (
	APIVersion = "snapshot." + v1alpha1.Domain + "/v1"
	Kind       = "Snapshot"
	Minor      = 4
)

// Write returns the JSON of a snapshot. Equal snapshots have equal bytes.
func Write(s *snapshot.Snapshot) ([]byte, error) {
	out := *s
	out.APIVersion, out.Kind, out.Minor = APIVersion, Kind, Minor
	out.Fill()
	raw, err := json.Marshal(&out)
	if err != nil {
		return nil, fmt.Errorf("write snapshot: %w", err)
	}
	return raw, nil
}

// Writer writes the snapshots of one maker. It keeps the JSON of each node, so that those which have not changed cost little. The zero value is
// ready. It is for one goroutine.
type Writer struct{ nodes map[string]node }

// node is the JSON of a node in one version.
type node struct {
	version uint64
	raw     []byte
}

// Write returns the same bytes as the function Write.
func (w *Writer) Write(s *snapshot.Snapshot) ([]byte, error) {
	rest := *s
	rest.Fill()
	nodes := rest.Nodes
	rest.Nodes = nil
	raw, err := Write(&rest)
	if err != nil {
		return nil, err
	}
	before, after, found := bytes.Cut(raw, []byte(`"nodes":[]`)) // nothing in front of it is from a cluster
	if !found {
		return nil, errors.New("write snapshot: there is no list of nodes")
	}
	kept, size := make(map[string]node, len(nodes)), len(raw)
	for i := range nodes {
		n := &nodes[i]
		one := w.nodes[n.Name]
		if one.version != n.Version || n.Version == 0 {
			if one.raw, err = json.Marshal(n); err != nil {
				return nil, fmt.Errorf("write snapshot: %w", err)
			}
			one.version = n.Version
		}
		kept[n.Name] = one
		size += len(one.raw) + 1
	}
	w.nodes = kept
	out := append(make([]byte, 0, size), before...)
	out = append(out, `"nodes":[`...)
	for i := range nodes {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, kept[nodes[i].Name].raw...)
	}
	return append(append(out, ']'), after...), nil
}

// Read returns the snapshot that a JSON has. The error names the field that is broken and what is legal there.
func Read(raw []byte) (*snapshot.Snapshot, error) {
	var of struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
		Minor      int    `json:"minor"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(raw, &of); err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	switch {
	case of.APIVersion != APIVersion:
		return nil, fmt.Errorf("read snapshot: apiVersion: %q, legal is %s", of.APIVersion, APIVersion)
	case of.Kind != Kind:
		return nil, fmt.Errorf("read snapshot: kind: %q, legal is %s", of.Kind, Kind)
	case of.Minor < 0:
		return nil, fmt.Errorf("read snapshot: minor: %d, legal is 0 or more", of.Minor)
	}
	s := &snapshot.Snapshot{}
	unknown, err := kjson.UnmarshalStrict(raw, s)
	if err == nil && of.Minor <= Minor {
		err = errors.Join(unknown...)
	}
	if err == nil {
		err = s.Check()
	}
	if err != nil {
		return nil, fmt.Errorf("read snapshot: %w", err)
	}
	return s, nil
}
