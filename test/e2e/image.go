package e2e

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"runtime"
)

// Names of the images as pods and containerd know them. The kubelet pulls no image: pods say imagePullPolicy Never.
const (
	pauseImage   = "localhost/tandem-e2e/pause:1"
	busyboxImage = "localhost/tandem-e2e/busybox:1"
	// hostImage has no programs of its own: its folders are links into /usr, where a pod mounts the host's /usr.
	hostImage = "localhost/tandem-e2e/host:1"
)

// file of an image: a regular file with content, or a link.
type file struct {
	name    string
	content []byte
	link    string
}

// writeImages writes the images as OCI archives.
func writeImages(l layout) error {
	pause, err := os.ReadFile(l.bin("pause"))
	if err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	busybox, err := os.ReadFile(busyboxPath)
	if err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	tenant, err := os.ReadFile(l.bin("tenant"))
	if err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	trainer, err := os.ReadFile(l.bin("trainer"))
	if err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	files := []file{{name: "bin/busybox", content: busybox}, {name: "bin/tenant", content: tenant}, {name: "bin/trainer", content: trainer}}
	for _, applet := range []string{"sh", "env", "grep", "sort", "stat", "sleep", "true", "dd"} {
		files = append(files, file{name: path.Join("bin", applet), link: "busybox"})
	}
	if err := writeImage(l.image("busybox"), busyboxImage, files, "/bin/sh"); err != nil {
		return err
	}
	if err := writeImage(l.image("host"), hostImage, hostFiles(), "/bin/sh"); err != nil {
		return err
	}
	return writeImage(l.image("pause"), pauseImage, []file{{name: "pause", content: pause}}, "/pause")
}

// hostFiles are those of hostImage: what programs of the host's /usr look for outside of it.
func hostFiles() []file {
	files := []file{
		{name: "etc/nsswitch.conf", content: []byte("hosts: files dns\n")}, // without it glibc asks no /etc/hosts
		{name: "etc/passwd", content: []byte("root:x:0:0:root:/root:/bin/sh\n")},
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib64"} {
		files = append(files, file{name: dir, link: "usr/" + dir})
	}
	return files
}

// writeImage writes an image of one layer.
func writeImage(target, name string, files []file, entrypoint string) error {
	layer, err := archive(files)
	if err != nil {
		return err
	}
	config := marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": []string{entrypoint}, "Env": []string{"PATH=/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
	})
	const media = "application/vnd.oci.image."
	manifest := marshal(map[string]any{
		"schemaVersion": 2, "mediaType": media + "manifest.v1+json",
		"config": descriptor(media+"config.v1+json", config),
		"layers": []any{descriptor(media+"layer.v1.tar", layer)},
	})
	entry := descriptor(media+"manifest.v1+json", manifest)
	entry["annotations"] = map[string]string{"io.containerd.image.name": name}
	index := marshal(map[string]any{"schemaVersion": 2, "manifests": []any{entry}})
	content := []file{
		{name: "oci-layout", content: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{name: "index.json", content: index},
	}
	for _, blob := range [][]byte{layer, config, manifest} {
		content = append(content, file{name: "blobs/sha256/" + hexSum(blob), content: blob})
	}
	image, err := archive(content)
	if err != nil {
		return err
	}
	if err := os.WriteFile(target, image, 0o600); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	return nil
}

func archive(files []file) ([]byte, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, f := range files {
		header := &tar.Header{Name: f.name, Mode: 0o755, Size: int64(len(f.content)), Typeflag: tar.TypeReg}
		if f.link != "" {
			header.Typeflag, header.Linkname = tar.TypeSymlink, f.link
		}
		if err := w.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("archive %s: %w", f.name, err)
		}
		if _, err := w.Write(f.content); err != nil {
			return nil, fmt.Errorf("archive %s: %w", f.name, err)
		}
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("archive image: %w", err)
	}
	return buffer.Bytes(), nil
}

func descriptor(mediaType string, content []byte) map[string]any {
	return map[string]any{"mediaType": mediaType, "digest": digest(content), "size": len(content)}
}

func digest(content []byte) string { return "sha256:" + hexSum(content) }

func hexSum(content []byte) string {
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:])
}

// marshal encodes what cannot fail: maps of strings, numbers and slices of them.
func marshal(value any) []byte {
	raw, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encode image: %v", err))
	}
	return raw
}
