// Package archive packs files into archives that are the same for the same files, whoever packs them, when and where.
package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// File is one of an archive.
type File struct {
	Content []byte
	// Executable files have mode 0755, others 0644.
	Executable bool
}

func (f File) mode() int64 {
	if f.Executable {
		return 0o755
	}
	return 0o644
}

// Files are those of an archive, by their paths in it.
type Files map[string]File

// Tar returns a tar archive of the files, in the order of their paths, without owners. All files have the time given.
func (f Files) Tar(at time.Time) ([]byte, error) {
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	for _, path := range slices.Sorted(maps.Keys(f)) {
		header := &tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: f[path].mode(), Size: int64(len(f[path].Content)), ModTime: at}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("pack %s: %w", path, err)
		}
		if _, err := w.Write(f[path].Content); err != nil {
			return nil, fmt.Errorf("pack %s: %w", path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// TarGz returns the tar archive, compressed. The header of gzip has neither a name nor a time.
func (f Files) TarGz(at time.Time) ([]byte, error) {
	raw, err := f.Tar(at)
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	w := gzip.NewWriter(&buf)
	if _, err := w.Write(raw); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// Zip returns a zip archive of the files, in the order of their paths. All files have the time given.
func (f Files) Zip(at time.Time) ([]byte, error) {
	var buf bytes.Buffer
	w := zip.NewWriter(&buf)
	for _, path := range slices.Sorted(maps.Keys(f)) {
		header := &zip.FileHeader{Name: path, Method: zip.Deflate, Modified: at.UTC()}
		header.SetMode(0o600)
		if f[path].Executable {
			header.SetMode(0o700)
		}
		entry, err := w.CreateHeader(header)
		if err != nil {
			return nil, fmt.Errorf("pack %s: %w", path, err)
		}
		if _, err := entry.Write(f[path].Content); err != nil {
			return nil, fmt.Errorf("pack %s: %w", path, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// ReadTarGz returns the files of a compressed tar archive.
func ReadTarGz(raw []byte) (Files, error) {
	r, err := gzip.NewReader(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	plain, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	return ReadTar(plain)
}

// ReadTar returns the files of a tar archive.
func ReadTar(raw []byte) (Files, error) {
	files := Files{}
	r := tar.NewReader(bytes.NewReader(raw))
	for {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		content, err := io.ReadAll(r)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", header.Name, err)
		}
		files[header.Name] = File{content, header.Mode&0o100 != 0}
	}
}

// ReadZip returns the files of a zip archive.
func ReadZip(raw []byte) (Files, error) {
	r, err := zip.NewReader(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		return nil, err
	}
	files := Files{}
	for _, entry := range r.File {
		f, err := entry.Open()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", entry.Name, err)
		}
		content, err := io.ReadAll(f)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", entry.Name, err)
		}
		files[entry.Name] = File{content, entry.Mode()&0o100 != 0}
	}
	return files, nil
}
