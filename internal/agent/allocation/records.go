package allocation

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/tandem-gpu/tandem/internal/agent/durable"
)

// recordsFile is the agent's own checkpoint in its state folder; recordsVersion the format that it reads and writes.
const (
	recordsFile    = "checkpoint.json"
	recordsVersion = 1
)

// ErrCorrupt marks a checkpoint that is there but cannot be used.
var ErrCorrupt = errors.New("the checkpoint is corrupt")

// Records is the agent's own memory: the slots of each CDI name, and the grant of each pod. A method that records
// something returns once it is on disk.
type Records struct {
	path string

	mu   sync.Mutex
	data Data
}

// Data is what the checkpoint holds.
type Data struct {
	// Names by CDI name.
	Names map[string]Name `json:"names"`
	// Grants by pod UID.
	Grants map[string]Grant `json:"grants"`
}

// Name holds the slots for which Allocate answered a CDI name, and the time.
type Name struct {
	IDs       []string  `json:"ids"`
	Allocated time.Time `json:"allocated"`
}

// envelope is the file: Checksum is the SHA-256 of Data as it stands in the file.
type envelope struct {
	Version  int             `json:"version"`
	Checksum string          `json:"checksum"`
	Data     json.RawMessage `json:"data"`
}

// Open reads the checkpoint in dir. A corrupt one gives empty records and an error that is ErrCorrupt; Open keeps the
// broken file under the name that the error contains.
func Open(dir string) (*Records, error) {
	r := &Records{path: filepath.Join(dir, recordsFile), data: emptyRecords()}
	raw, err := os.ReadFile(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, r.unreplaced()
	}
	if err != nil {
		return nil, fmt.Errorf("read own checkpoint: %w", err)
	}
	data, err := decodeRecords(raw)
	if err == nil {
		r.data = data
		return r, nil
	}
	aside := fmt.Sprintf("%s.corrupt-%s", r.path, time.Now().UTC().Format("20060102T150405.000000000"))
	if moved := os.Rename(r.path, aside); moved != nil {
		return nil, fmt.Errorf("move corrupt checkpoint aside: %w", moved)
	}
	return r, fmt.Errorf("read own checkpoint: %w: %w; it is kept as %s", ErrCorrupt, err, aside)
}

// unreplaced returns ErrCorrupt where an agent moved a corrupt checkpoint aside and then ended, on a full disk, before
// it wrote another.
func (r *Records) unreplaced() error {
	aside, _ := filepath.Glob(r.path + ".corrupt-*")
	if len(aside) == 0 {
		return nil
	}
	return fmt.Errorf("read own checkpoint: %w: it was moved aside as %s, and nothing has been written since", ErrCorrupt, aside[len(aside)-1])
}

func emptyRecords() Data {
	return Data{Names: map[string]Name{}, Grants: map[string]Grant{}}
}

func decodeRecords(raw []byte) (Data, error) {
	var e envelope
	if err := json.Unmarshal(raw, &e); err != nil {
		return Data{}, err
	}
	if e.Version != recordsVersion {
		return Data{}, fmt.Errorf("version %d, this release reads %d", e.Version, recordsVersion)
	}
	if sum := checksum(e.Data); sum != e.Checksum {
		return Data{}, fmt.Errorf("checksum %q, the data has %q", e.Checksum, sum)
	}
	data := emptyRecords()
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return Data{}, err
	}
	return data, nil
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// Allocated records the slots of a new name.
func (r *Records) Allocated(names map[string][]string, at time.Time) error {
	return r.Update(func(d *Data) {
		for name, ids := range names {
			d.Names[name] = Name{IDs: SlotSet(ids), Allocated: at.UTC()}
		}
	})
}

// Granted records the grant of a pod.
func (r *Records) Granted(uid string, g Grant) error {
	if have, ok := r.Grant(uid); ok && have == g {
		return nil
	}
	return r.Update(func(d *Data) { d.Grants[uid] = g })
}

// Update changes the data and writes it. If the disk refuses, nothing has changed.
func (r *Records) Update(change func(*Data)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := Data{Names: maps.Clone(r.data.Names), Grants: maps.Clone(r.data.Grants)}
	change(&next)
	data, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("write own checkpoint: %w", err)
	}
	raw, err := json.Marshal(envelope{Version: recordsVersion, Checksum: checksum(data), Data: data})
	if err != nil {
		return fmt.Errorf("write own checkpoint: %w", err)
	}
	if err := durable.Write(r.path, raw); errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("write own checkpoint: %w: free space in the folder of --state-dir, %s; what runs goes on, and nothing starts before", err, filepath.Dir(r.path))
	} else if err != nil {
		return fmt.Errorf("write own checkpoint: %w", err)
	}
	r.data = next
	return nil
}

// Grant returns the grant of a pod, and false for a pod that the agent has not started.
func (r *Records) Grant(uid string) (Grant, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g, ok := r.data.Grants[uid]
	return g, ok
}

// Snapshot returns a copy.
func (r *Records) Snapshot() Data {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Data{Names: maps.Clone(r.data.Names), Grants: maps.Clone(r.data.Grants)}
}

// NamesFor returns the names of exactly these slots, the latest first.
func (r *Records) NamesFor(ids []string) []string {
	d := r.Snapshot()
	var names []string
	for name, n := range d.Names {
		if SameSlots(n.IDs, ids) {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		if c := d.Names[b].Allocated.Compare(d.Names[a].Allocated); c != 0 {
			return c
		}
		return slices.Compare([]byte(a), []byte(b))
	})
	return names
}
