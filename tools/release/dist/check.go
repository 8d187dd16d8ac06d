package dist

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	spdxjson "github.com/spdx/tools-golang/json"
	"sigs.k8s.io/yaml"

	"github.com/tandem-gpu/tandem/tools/image/oci"
	"github.com/tandem-gpu/tandem/tools/release/archive"
)

// folder is a release that was built.
type folder struct {
	path, version string
	platforms     []Platform
	files         map[string][]byte
}

// Check returns what is wrong with a release: files that are missing or too many, checksums, and places that name another version.
func Check(path, version string, platforms []Platform) error {
	d := folder{path: path, version: version, platforms: platforms, files: map[string][]byte{}}
	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("check release: %w", err)
	}
	for _, e := range entries {
		if d.files[e.Name()], err = os.ReadFile(filepath.Join(path, e.Name())); err != nil {
			return fmt.Errorf("check release: %w", err)
		}
	}
	if err := d.names(); err != nil {
		return err
	}
	checks := []func() error{d.sums, d.images, d.clients, d.manifests, d.chart, d.bill, d.notices}
	wrong := make([]error, len(checks))
	for i, check := range checks {
		wrong[i] = check()
	}
	return errors.Join(wrong...)
}

// names: nothing is missing, nothing is there by chance.
func (d folder) names() error {
	want := Contents(d.version, d.platforms)
	var wrong []error
	for _, name := range want {
		if _, ok := d.files[name]; !ok {
			wrong = append(wrong, fmt.Errorf("check release %s: %s is missing", d.version, name))
		}
	}
	for name := range d.files {
		if name != omittedFile && !slices.Contains(want, name) {
			wrong = append(wrong, fmt.Errorf("check release %s: %s does not belong to it", d.version, name))
		}
	}
	return errors.Join(wrong...)
}

// sums: the checksums are those of the files.
func (d folder) sums() error {
	files := map[string][]byte{}
	for name, content := range d.files {
		if name != sumsFile {
			files[name] = content
		}
	}
	if want := sums(files); !bytes.Equal(d.files[sumsFile], want) {
		return fmt.Errorf("check %s: it has\n%swant\n%s", sumsFile, d.files[sumsFile], want)
	}
	return nil
}

// images: each has all platforms that could be built, the version in its label and in its name, and a user that is not root where
// it can.
func (d folder) images() error {
	var wrong []error
	for _, program := range images {
		temp, err := os.MkdirTemp("", "tandem-check-")
		if err != nil {
			return err
		}
		if err := d.image(program, temp); err != nil {
			wrong = append(wrong, fmt.Errorf("check %s: %w", imageFile(program, d.version), err))
		}
		if err := os.RemoveAll(temp); err != nil {
			return err
		}
	}
	return errors.Join(wrong...)
}

func (d folder) image(program, temp string) error {
	index, descriptor, err := open(filepath.Join(d.path, imageFile(program, d.version)), temp)
	if err != nil {
		return err
	}
	if named := descriptor.Annotations[annotationName]; !strings.HasSuffix(named, "/tandem-"+program+":"+d.version) {
		return fmt.Errorf("its name is %q", named)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return err
	}
	have := make([]string, 0, len(manifest.Manifests))
	for _, m := range manifest.Manifests {
		have = append(have, m.Platform.OS+"/"+m.Platform.Architecture)
		img, err := index.Image(m.Digest)
		if err != nil {
			return err
		}
		config, err := img.ConfigFile()
		if err != nil {
			return err
		}
		if got := config.Config.Labels[oci.LabelVersion]; got != d.version {
			return fmt.Errorf("%s: the label %s is %q, want %q", m.Platform, oci.LabelVersion, got, d.version)
		}
		if root := config.Config.User == ""; root != (program == agent) {
			return fmt.Errorf("%s: the user is %q", m.Platform, config.Config.User)
		}
	}
	for _, p := range d.platforms {
		if !slices.Contains(imagePlatforms, p) || slices.Contains(have, p.String()) {
			continue
		}
		if left := d.files[omittedFile]; !bytes.Contains(left, []byte("image of "+program+" has no "+p.String())) {
			return fmt.Errorf("it has %v and not %s, and %s does not say why", have, p, omittedFile)
		}
	}
	return nil
}

// clients: krew finds each archive by its checksum, and the program in it.
func (d folder) clients() error {
	var manifest struct {
		Spec struct {
			Version   string
			Platforms []struct {
				Selector         struct{ MatchLabels map[string]string }
				URI, Sha256, Bin string
			}
		}
	}
	if err := yaml.Unmarshal(d.files[krewFile], &manifest); err != nil {
		return fmt.Errorf("check %s: %w", krewFile, err)
	}
	if manifest.Spec.Version != d.version || len(manifest.Spec.Platforms) != len(d.platforms) {
		return fmt.Errorf("check %s: version %s for %d platforms, want %s for %d", krewFile, manifest.Spec.Version, len(manifest.Spec.Platforms), d.version, len(d.platforms))
	}
	for _, p := range manifest.Spec.Platforms {
		name := p.URI[strings.LastIndex(p.URI, "/")+1:]
		if want := clientFile(d.version, Platform{p.Selector.MatchLabels["os"], p.Selector.MatchLabels["arch"]}); name != want {
			return fmt.Errorf("check %s: %v gets %s, want %s", krewFile, p.Selector.MatchLabels, name, want)
		}
		if got := digest(d.files[name]); got != p.Sha256 {
			return fmt.Errorf("check %s: sha256 of %s is %s, want %s", krewFile, name, p.Sha256, got)
		}
		unpack := archive.ReadTarGz
		if strings.HasSuffix(name, ".zip") {
			unpack = archive.ReadZip
		}
		files, err := unpack(d.files[name])
		if err != nil {
			return fmt.Errorf("check %s: %w", name, err)
		}
		if !files[p.Bin].Executable || len(files[licenceFile].Content) == 0 || len(files["THIRD-PARTY.txt"].Content) == 0 {
			return fmt.Errorf("check %s: it lacks the program %s or licence texts", name, p.Bin)
		}
	}
	return nil
}

// imageLine finds images in manifests.
var imageLine = regexp.MustCompile(`(?m)^\s*(?:- )?image: (\S*)$`)

// manifests: they name images of this version and no others.
func (d folder) manifests() error {
	for _, manifest := range []struct {
		name     string
		programs []string
	}{{installFile, []string{"activator", "controller", agent, "scheduler"}}, {shadowFile, []string{"shadow"}}} {
		name, programs := manifest.name, manifest.programs
		found := map[string]bool{}
		for _, line := range imageLine.FindAllSubmatch(d.files[name], -1) {
			image := string(line[1])
			program, ours := strings.CutPrefix(image[strings.LastIndex(image, "/")+1:], "tandem-")
			program, version, _ := strings.Cut(program, ":")
			if !ours || version != d.version || !slices.Contains(programs, program) {
				return fmt.Errorf("check %s: it runs %s, want images of %v in version %s", name, image, programs, d.version)
			}
			found[program] = true
		}
		if len(found) != len(programs) {
			return fmt.Errorf("check %s: it runs %v, want %v", name, found, programs)
		}
	}
	definitions := bytes.Count(d.files[crdsFile], []byte("kind: CustomResourceDefinition\n"))
	if all := bytes.Count(d.files[installFile], []byte("kind: CustomResourceDefinition\n")); definitions == 0 || definitions != all {
		return fmt.Errorf("check %s: it has %d CRDs, %s has %d", crdsFile, definitions, installFile, all)
	}
	return nil
}

// chart: its version and that of the images are this one.
func (d folder) chart() error {
	name := chartFile(d.version)
	files, err := archive.ReadTarGz(d.files[name])
	if err != nil {
		return fmt.Errorf("check %s: %w", name, err)
	}
	var chart struct{ Name, Version, AppVersion string }
	if err := yaml.Unmarshal(files["tandem/Chart.yaml"].Content, &chart); err != nil {
		return fmt.Errorf("check %s: %w", name, err)
	}
	if chart.Name != "tandem" || chart.Version != strings.TrimPrefix(d.version, "v") || chart.AppVersion != d.version {
		return fmt.Errorf("check %s: Chart.yaml says %+v", name, chart)
	}
	for _, path := range []string{"values.yaml", "values.schema.json", "README.md"} {
		if len(files["tandem/"+path].Content) == 0 {
			return fmt.Errorf("check %s: it has no %s", name, path)
		}
	}
	return nil
}

// bill: it can be read, and names every program in this version.
func (d folder) bill() error {
	name := billFile(d.version)
	document, err := spdxjson.Read(bytes.NewReader(d.files[name]))
	if err != nil {
		return fmt.Errorf("check %s: %w", name, err)
	}
	var programs []string
	for _, p := range document.Packages {
		if p.PrimaryPackagePurpose == "APPLICATION" && p.PackageVersion == d.version {
			programs = append(programs, p.PackageName)
		}
		if p.PackageLicenseDeclared == "" {
			return fmt.Errorf("check %s: %s has no licence", name, p.PackageName)
		}
	}
	if len(programs) != len(images)+1 {
		return fmt.Errorf("check %s: it describes %v in version %s, want the images' programs and %s", name, programs, d.version, client)
	}
	return nil
}

// notices: there is a text for every module of the bill.
func (d folder) notices() error {
	name := noticesFile(d.version)
	files, err := archive.ReadTarGz(d.files[name])
	if err != nil {
		return fmt.Errorf("check %s: %w", name, err)
	}
	document, err := spdxjson.Read(bytes.NewReader(d.files[billFile(d.version)]))
	if err != nil {
		return fmt.Errorf("check %s against the bill: %w", name, err)
	}
	for _, p := range document.Packages {
		if p.PrimaryPackagePurpose != "LIBRARY" {
			continue
		}
		texts := 0
		for path := range files {
			if strings.HasPrefix(path, p.PackageName+"@"+p.PackageVersion+"/") {
				texts++
			}
		}
		if texts == 0 {
			return fmt.Errorf("check %s: it has no text of %s %s", name, p.PackageName, p.PackageVersion)
		}
	}
	return nil
}

// Compare returns which files of two folders differ.
func Compare(first, second string) error {
	a, err := read(first)
	if err != nil {
		return err
	}
	b, err := read(second)
	if err != nil {
		return err
	}
	if len(a) == 0 {
		return fmt.Errorf("compare releases: %s is empty", first)
	}
	var wrong []error
	for name, f := range a {
		other, ok := b[name]
		switch {
		case !ok:
			wrong = append(wrong, fmt.Errorf("compare releases: %s is in %s only", name, first))
		case !bytes.Equal(f.Content, other.Content):
			wrong = append(wrong, fmt.Errorf("compare releases: %s differs: sha256 %s and %s", name, digest(f.Content), digest(other.Content)))
		}
	}
	for name := range b {
		if _, ok := a[name]; !ok {
			wrong = append(wrong, fmt.Errorf("compare releases: %s is in %s only", name, second))
		}
	}
	return errors.Join(wrong...)
}
