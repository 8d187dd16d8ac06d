// Command image packs a binary and the shared libraries that it needs into an image archive, without a container engine and
// without a base image.
//
//	go run . --binary bin/tandem-device-plugin --name tandem-device-plugin:dev --version v0.3.1 --output device-plugin.tar
//
// Package oci says what the image holds.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/tandem-gpu/tandem/tools/image/oci"
)

// image is what to pack.
type image struct {
	oci.Program
	tag, output string
}

func main() {
	i := image{Program: oci.Program{Architecture: runtime.GOARCH}}
	flag.StringVar(&i.Binary, "binary", "", "the program to pack")
	flag.StringVar(&i.tag, "name", "", "name:tag of the image")
	flag.StringVar(&i.output, "output", "", "the archive to write (docker-archive format: `ctr images import`, `docker load`)")
	flag.StringVar(&i.Version, "version", "", "the version of the program, for the label "+oci.LabelVersion)
	flag.StringVar(&i.Revision, "revision", "", "the commit of the program, for the label "+oci.LabelRevision+"; without it there is no such label")
	flag.Parse()
	if err := i.pack(); err != nil {
		fmt.Fprintln(os.Stderr, "pack image:", err)
		os.Exit(1)
	}
}

func (i image) pack() error {
	if i.Binary == "" || i.tag == "" || i.output == "" || i.Version == "" {
		return errors.New("--binary, --name, --version and --output are required")
	}
	ref, err := name.NewTag(i.tag)
	if err != nil {
		return err
	}
	img, err := i.Image()
	if err != nil {
		return err
	}
	return tarball.WriteToFile(i.output, ref, img)
}
