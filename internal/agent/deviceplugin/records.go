package deviceplugin

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
)

// recordsFile is the agent's own checkpoint in its state folder; recordsVersion the format that it reads and writes.
const (
	recordsFile    = "checkpoint.json"
	recordsVersion = 1
)

// errRecordsCorrupt marks a checkpoint that is there but cannot be used.
var errRecordsCorrupt = errors.New("the checkpoint is corrupt")

// records is the agent's own memory: which slots each CDI name was answered for, and which assignment each pod was
// started with. It is on disk before anything is answered.
type records struct {
	path string

	mu   sync.Mutex
	data recordsData
}

type recordsData struct {
	// Names by CDI name.
	Names map[string]nameRecord `json:"names"`
	// Grants by pod UID.
	Grants map[string]grant `json:"grants"`
}

type nameRecord struct {
	IDs       []string  `json:"ids"`
	Allocated time.Time `json:"allocated"`
}

// grant is the assignment that a pod was started with. It never changes while the pod lives.
type grant struct {
	Pod        string `json:"pod"`
	Assignment string `json:"assignment"`
}

// envelope is the file: Checksum is the SHA-256 of Data as it stands in the file.
type envelope struct {
	Version  int             `json:"version"`
	Checksum string          `json:"checksum"`
	Data     json.RawMessage `json:"data"`
}

// openRecords reads the checkpoint in dir. A corrupt one gives empty records and an error that is errRecordsCorrupt;
// the broken file is kept beside, under the name that the error tells.
func openRecords(dir string) (*records, error) {
	r := &records{path: filepath.Join(dir, recordsFile), data: emptyRecords()}
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
	return r, fmt.Errorf("read own checkpoint: %w: %w; it is kept as %s", errRecordsCorrupt, err, aside)
}

// unreplaced is errRecordsCorrupt where a corrupt checkpoint was moved aside and none was written since: an agent that
// finds the disk full ends in between.
func (r *records) unreplaced() error {
	aside, _ := filepath.Glob(r.path + ".corrupt-*")
	if len(aside) == 0 {
		return nil
	}
	return fmt.Errorf("read own checkpoint: %w: it was moved aside as %s, and nothing has been written since", errRecordsCorrupt, aside[len(aside)-1])
}

func emptyRecords() recordsData {
	return recordsData{Names: map[string]nameRecord{}, Grants: map[string]grant{}}
}

func decodeRecords(raw []byte) (recordsData, error) {
	var e envelope
	if err := json.Unmarshal(raw, &e); err != nil {
		return recordsData{}, err
	}
	if e.Version != recordsVersion {
		return recordsData{}, fmt.Errorf("version %d, this release reads %d", e.Version, recordsVersion)
	}
	if sum := checksum(e.Data); sum != e.Checksum {
		return recordsData{}, fmt.Errorf("checksum %q, the data has %q", e.Checksum, sum)
	}
	data := emptyRecords()
	if err := json.Unmarshal(e.Data, &data); err != nil {
		return recordsData{}, err
	}
	return data, nil
}

func checksum(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// allocated records that a name was answered for slots. It returns once that is on disk.
func (r *records) allocated(names map[string][]string, at time.Time) error {
	return r.update(func(d *recordsData) {
		for name, ids := range names {
			d.Names[name] = nameRecord{IDs: slotSet(ids), Allocated: at.UTC()}
		}
	})
}

// granted records the assignment that a pod is started with.
func (r *records) granted(uid string, g grant) error {
	if have, ok := r.grant(uid); ok && have == g {
		return nil
	}
	return r.update(func(d *recordsData) { d.Grants[uid] = g })
}

// update changes the data and writes it. Where the disk refuses, nothing has changed.
func (r *records) update(change func(*recordsData)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := recordsData{Names: maps.Clone(r.data.Names), Grants: maps.Clone(r.data.Grants)}
	change(&next)
	data, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("write own checkpoint: %w", err)
	}
	raw, err := json.Marshal(envelope{Version: recordsVersion, Checksum: checksum(data), Data: data})
	if err != nil {
		return fmt.Errorf("write own checkpoint: %w", err)
	}
	if err := writeDurably(r.path, raw); errors.Is(err, syscall.ENOSPC) {
		return fmt.Errorf("write own checkpoint: %w: free space in the folder of --state-dir, %s; what runs goes on, and nothing starts before", err, filepath.Dir(r.path))
	} else if err != nil {
		return fmt.Errorf("write own checkpoint: %w", err)
	}
	r.data = next
	return nil
}

func (r *records) grant(uid string) (grant, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	g, ok := r.data.Grants[uid]
	return g, ok
}

// snapshot returns a copy.
func (r *records) snapshot() recordsData {
	r.mu.Lock()
	defer r.mu.Unlock()
	return recordsData{Names: maps.Clone(r.data.Names), Grants: maps.Clone(r.data.Grants)}
}

// namesFor returns the names that were answered for exactly these slots, the latest first.
func (r *records) namesFor(ids []string) []string {
	d := r.snapshot()
	var names []string
	for name, n := range d.Names {
		if sameSlots(n.IDs, ids) {
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

// writeDurably replaces the file as a whole and returns once it survives a power cut.
func writeDurably(path string, content []byte) error {
	dir := filepath.Dir(path)
	tmp, err := os.CreateTemp(dir, filepath.Base(path)+".*.tmp")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(tmp.Name()) }() // gone already after the rename
	_, err = tmp.Write(content)
	if err == nil {
		err = tmp.Sync()
	}
	if err := errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	if err := os.Rename(tmp.Name(), path); err != nil {
		return err
	}
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
