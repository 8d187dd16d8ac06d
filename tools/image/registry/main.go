// Command registry serves image archives as a registry on loopback, for tests that have images pulled.
//
//	go run ./registry --listen 127.0.0.1:5000 scheduler.tar device-plugin.tar
//
// The archives are those of the command image, or in OCI's layout as a release has them. The registry prints "serving" when it has all of them, keeps everything in memory,
// and takes uploads from everybody who reaches its address: an address that is not on loopback is refused.
package main

import (
	"archive/tar"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

func main() {
	listen := flag.String("listen", "127.0.0.1:5000", "`address` on loopback to serve at")
	flag.Parse()
	if err := serve(context.Background(), *listen, flag.Args(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "serve images:", err)
		os.Exit(1)
	}
}

// serve serves the archives until ctx ends.
func serve(ctx context.Context, listen string, archives []string, out io.Writer) error {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return err
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("--listen: %s is not on loopback", host)
	}
	if len(archives) == 0 {
		return errors.New("no archives are given")
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: registry.New(registry.Logger(log.New(io.Discard, "", 0))), ReadHeaderTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- server.Serve(listener) }()
	defer func() { _ = server.Close() }()
	for _, archive := range archives {
		if err := push(ctx, archive, listener.Addr().String()); err != nil {
			return fmt.Errorf("push %s: %w", archive, err)
		}
	}
	fmt.Fprintln(out, "serving", listener.Addr())
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// nameAnnotation is where an archive in OCI's layout has the whole name of an image.
const nameAnnotation = "io.containerd.image.name"

// push uploads the images of an archive under the names that they have there, whatever their registry is.
func push(ctx context.Context, archive, address string) error {
	if strings.HasSuffix(archive, ".oci.tar") {
		return pushLayout(ctx, archive, address)
	}
	opener := func() (io.ReadCloser, error) { return os.Open(archive) }
	manifest, err := tarball.LoadManifest(opener)
	if err != nil {
		return err
	}
	for _, image := range manifest {
		for _, tagged := range image.RepoTags {
			tag, err := name.NewTag(tagged)
			if err != nil {
				return err
			}
			img, err := tarball.Image(opener, &tag)
			if err != nil {
				return err
			}
			to, err := here(tagged, address)
			if err != nil {
				return err
			}
			if err := remote.Write(to, img, remote.WithContext(ctx)); err != nil {
				return err
			}
		}
	}
	return nil
}

// here is the name of an image in this registry.
func here(tagged, address string) (name.Tag, error) {
	tag, err := name.NewTag(tagged, name.Insecure)
	if err != nil {
		return tag, err
	}
	// Names without a registry are those of Docker's: index.docker.io/library/NAME.
	return name.NewTag(address+"/"+strings.TrimPrefix(tag.RepositoryStr(), "library/")+":"+tag.TagStr(), name.Insecure)
}

// pushLayout uploads the images of an archive in OCI's layout.
func pushLayout(ctx context.Context, archive, address string) error {
	dir, err := os.MkdirTemp("", "registry-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := extract(archive, dir); err != nil {
		return err
	}
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return err
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return err
	}
	for _, m := range manifest.Manifests {
		to, err := here(m.Annotations[nameAnnotation], address)
		if err != nil {
			return err
		}
		index, err := all.ImageIndex(m.Digest)
		if err != nil {
			return err
		}
		if err := remote.WriteIndex(to, index, remote.WithContext(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// extract writes the files of an archive into a folder, and nothing outside of it.
func extract(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer f.Close()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	for r := tar.NewReader(f); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if err := root.MkdirAll(path.Dir(header.Name), 0o755); err != nil {
			return err
		}
		to, err := root.Create(header.Name)
		if err != nil {
			return err
		}
		if _, err := io.Copy(to, r); err != nil {
			return errors.Join(err, to.Close())
		}
		if err := to.Close(); err != nil {
			return err
		}
	}
}
