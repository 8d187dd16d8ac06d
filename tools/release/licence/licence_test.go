package licence

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The texts of a module and of the standard library are found.
func TestOf(t *testing.T) {
	modules, err := Of(t.Context(), ".", nil, "github.com/google/licensecheck")
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for _, m := range modules {
		paths = append(paths, m.Path)
		if len(m.Texts) == 0 || len(m.Licences) == 0 {
			t.Errorf("%s has no text", m.Path)
		}
	}
	if want := []string{"github.com/google/licensecheck", "std"}; !slices.Equal(paths, want) {
		t.Errorf("the modules are %v, want %v", paths, want)
	}
	if notices := string(Notices(modules)); !strings.Contains(notices, "\ngithub.com/google/licensecheck v0.3.1: LICENSE\n") || !strings.Contains(notices, "Redistribution and use") {
		t.Error("the notices do not have the text of licensecheck")
	}
}

// module writes a module of one package with these files, and returns its folder.
func module(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	files["go.mod"] = "module example.com/m\n\ngo 1.26.0\n"
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const mit = `MIT License

Copyright (c) 2026 Somebody

Permission is hereby granted, free of charge, to any person obtaining a copy of this software and associated documentation files (the "Software"), to deal in the Software without restriction, including without limitation the rights to use, copy, modify, merge, publish, distribute, sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.
`

// A module is refused, by name, unless one of its texts is a known licence.
func TestLicencesAreKnown(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"known":       {map[string]string{"LICENSE": mit}, "MIT"},
		"no text":     {map[string]string{"README": mit}, ""},
		"other words": {map[string]string{"LICENSE": "Nobody may use this."}, ""},
		// A licence with more conditions than the known one is another licence.
		"more words": {map[string]string{"LICENSE": mit + strings.Repeat("The software may be used on the third day of each month alone. ", 40)}, ""},
		"a notice":   {map[string]string{"NOTICE": "Copyright 2026 Somebody"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			c.files["m.go"] = "package m\n"
			modules, err := Of(t.Context(), module(t, c.files), []string{"GOFLAGS=-mod=mod", "GOWORK=off"}, ".")
			switch {
			case c.want == "" && (err == nil || !strings.Contains(err.Error(), "example.com/m")):
				t.Errorf("error %v, want one that names the module", err)
			case c.want != "" && (err != nil || !slices.Equal(modules[0].Licences, []string{c.want})):
				t.Errorf("%v, error %v", modules, err)
			}
		})
	}
}

// The licence of copied code lies beside it. That of packages that no program uses is left out.
func TestNestedTexts(t *testing.T) {
	dir := module(t, map[string]string{
		"LICENSE": mit, "m.go": "package m\n\nimport _ \"example.com/m/used/copied\"\n",
		"used/LICENSE.md": mit, "used/copied/c.go": "package copied\n", "unused/LICENSE": mit, "unused/u.go": "package unused\n",
	})
	modules, err := Of(t.Context(), dir, []string{"GOWORK=off"}, ".")
	if err != nil {
		t.Fatal(err)
	}
	var paths []string
	for path := range modules[0].Texts {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	if want := []string{"LICENSE", "used/LICENSE.md"}; !slices.Equal(paths, want) {
		t.Errorf("the texts are %v, want %v", paths, want)
	}
}
