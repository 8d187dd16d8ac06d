package dist

import (
	"fmt"
	"slices"
	"strings"
)

// Names of the files of a release that have no version in them.
const (
	installFile = "install.yaml"
	crdsFile    = "crds.yaml"
	shadowFile  = "shadow.yaml"
	krewFile    = "tandem.yaml"
	sumsFile    = "SHA256SUMS"
	licenceFile = "LICENSE"
	omittedFile = "OMITTED.txt"
)

// chartFile is the Helm chart: Helm's versions have no v.
func chartFile(version string) string { return "tandem-" + strings.TrimPrefix(version, "v") + ".tgz" }

func imageFile(program, version string) string {
	return fmt.Sprintf("tandem-%s_%s.oci.tar", program, version)
}

func clientFile(version string, p Platform) string {
	ending := ".tar.gz"
	if p.OS == "windows" {
		ending = ".zip"
	}
	return fmt.Sprintf("%s_%s_%s_%s%s", client, version, p.OS, p.Architecture, ending)
}

func noticesFile(version string) string { return "tandem_" + version + "_licenses.tar.gz" }

func billFile(version string) string { return "tandem_" + version + ".spdx.json" }

// Contents lists the files of a release for these platforms, in order. The file with what was left out is there only where something
// was.
func Contents(version string, platforms []Platform) []string {
	names := []string{
		installFile, crdsFile, shadowFile, krewFile, sumsFile, licenceFile, chartFile(version), noticesFile(version), billFile(version),
	}
	for _, p := range platforms {
		names = append(names, clientFile(version, p))
	}
	for _, program := range images {
		names = append(names, imageFile(program, version))
	}
	slices.Sort(names)
	return names
}
