package chart

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// template is a text of Helm that is made of objects: places in them are set to what the values say.
//
// A place holds a mark until the objects are written as YAML; then the line with the mark is replaced by Helm's lines. So the writer
// of YAML sees to quotes and indentation of all else.
type template struct {
	snippets []snippet
}

// snippet is what takes the place of a mark.
type snippet struct {
	// inline is an expression that follows the key or the dash of the list.
	inline string
	// block are whole lines.
	block string
}

const markStart, markEnd = "tandem-mark-", "-end"

// markLine finds lines with a mark: as a value, as an item of a list, or as a key.
var markLine = regexp.MustCompile(`(?m)^( *)((?:- )*(?:[A-Za-z0-9_./"'-]+: )?)` + markStart + `(\d+)` + markEnd + `(: "")?$`)

func (t *template) mark(s snippet) string {
	t.snippets = append(t.snippets, s)
	return fmt.Sprintf("%s%d%s", markStart, len(t.snippets)-1, markEnd)
}

// value is a place whose value is an expression, such as {{ .Values.replicas }}.
func (t *template) value(expression string) string { return t.mark(snippet{inline: expression}) }

// lines is a key of an object, or an item of a list, in whose place are the lines.
func (t *template) lines(block string) string { return t.mark(snippet{block: block}) }

// write returns the objects as YAML with Helm's lines.
func (t *template) write(tree any) (string, error) {
	raw, err := yaml.Marshal(tree)
	if err != nil {
		return "", err
	}
	// Text that looks like Helm's language is only text here: Prometheus has the same.
	text := escape(string(raw))
	text = markLine.ReplaceAllStringFunc(text, func(line string) string {
		m := markLine.FindStringSubmatch(line)
		i, _ := strconv.Atoi(m[3])
		if s := t.snippets[i]; s.inline != "" {
			return m[1] + m[2] + deeper(s.inline, len(m[1])+2*strings.Count(m[2], "- "))
		}
		return indent(t.snippets[i].block, m[1])
	})
	if at := strings.Index(text, markStart); at >= 0 {
		return "", fmt.Errorf("write a template: a mark is left in %q", text[max(0, at-40):min(len(text), at+40)])
	}
	return text, nil
}

var braces = regexp.MustCompile(`\{\{|\}\}`)

func escape(text string) string {
	return braces.ReplaceAllStringFunc(text, func(b string) string { return "{{ `" + b + "` }}" })
}

// indent puts blanks before each line.
func indent(block, blanks string) string {
	lines := strings.Split(strings.TrimSuffix(deeper(block, len(blanks)), "\n"), "\n")
	for i, line := range lines {
		lines[i] = blanks + line
	}
	return strings.Join(lines, "\n")
}

// deeper writes out {here}, the number of blanks before the mark, and {deeper}, two more.
func deeper(text string, blanks int) string {
	return strings.NewReplacer("{here}", strconv.Itoa(blanks), "{deeper}", strconv.Itoa(blanks+2)).Replace(text)
}

// with are lines of a key that is there where the value is not empty.
func with(key, value string) string {
	return "{{- with " + value + " }}\n" + key + ":\n{{- toYaml . | nindent {deeper} }}\n{{- end }}"
}

// whole is the expression of an object or a list that the value replaces.
func whole(value string) string { return "{{- toYaml " + value + " | nindent {deeper} }}" }
