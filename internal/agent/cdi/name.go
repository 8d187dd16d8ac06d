package cdi

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/tandem-gpu/tandem/pkg/api/v1alpha1"
)

// nameBytes is the entropy of a name. The agent never uses a name twice, so names must not collide over the life of a
// node. At 64 bits a node that starts a million containers sees a collision with a chance of 3 in 10⁸.
const nameBytes = 8

// NewName returns a fresh random name, 16 hex digits.
func NewName() (string, error) {
	var b [nameBytes]byte
	if _, err := rand.Read(b[:]); err != nil {
		return "", fmt.Errorf("draw CDI name: %w", err)
	}
	return hex.EncodeToString(b[:]), nil
}

// Qualified returns the name as the kubelet and the container runtime know it: "tandem-gpu.io/vgpu=<name>".
func Qualified(name string) string { return v1alpha1.CDIKind + "=" + name }

// ParseQualified returns the name in a qualified name, and false where it is not one of ours.
func ParseQualified(qualified string) (string, bool) {
	name, ours := strings.CutPrefix(qualified, v1alpha1.CDIKind+"=")
	return name, ours && validName(name)
}

// validName reports whether a name has the form that NewName gives. Names become file names: nothing else may.
func validName(name string) bool {
	if len(name) != 2*nameBytes {
		return false
	}
	for _, c := range name {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
