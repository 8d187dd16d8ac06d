#!/usr/bin/env bash
# Packs the scheduler, the controller, the activator, shadow mode and the agent into image archives under bin/images, without a container engine.
#   VERSION  the images' tag (default dev); the images' labels and the programs in them tell Tandem's version, whatever the tag is
set -euo pipefail
cd "$(dirname "$0")/.."
version=${VERSION:-dev}
stamp=$(hack/version.sh)
revision=$(git rev-parse -q --verify HEAD 2>/dev/null) || revision= # outside of a clone
mkdir -p bin/images

pack() { # command, binary name, cgo
	echo "building tandem-$1:$version ($stamp)"
	CGO_ENABLED=$2 go build -trimpath -ldflags "-s -w $(hack/version.sh ldflags)" -o "bin/tandem-$1" "./cmd/$1"
	go run -C tools/image . --binary "$PWD/bin/tandem-$1" --name "tandem-$1:$version" --version "$stamp" --revision "$revision" \
		--output "$PWD/bin/images/tandem-$1.tar"
}

pack scheduler 0
pack controller 0
pack activator 0
pack shadow 0
pack device-plugin 1 # go-nvml loads the driver's library through the C library
ls -lh bin/images
