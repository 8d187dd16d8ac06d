package chart

import (
	"math"
	"reflect"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/yaml"

	agent "github.com/tandem-gpu/tandem/internal/agent/config"
	"github.com/tandem-gpu/tandem/pkg/api/config"
	v1 "github.com/tandem-gpu/tandem/pkg/api/config/v1"
	"github.com/tandem-gpu/tandem/pkg/placement"
)

// asked is how a program answers to a configuration with one setting: its complaints, "" for none.
type asked func(settings map[string]any) string

// bounded returns the schema of a configuration with the numbers and words that are legal, as the program itself answers: so they
// cannot differ from what the program takes. A schema cannot say more of times and amounts than how they are written.
func bounded(t reflect.Type, answers asked) schema {
	s := schemaOf(t)
	boundAt(s, nil, answers)
	return s
}

// boundAt adds what is legal below a path. It does not look into lists, whose entries need more than one setting.
func boundAt(s schema, path []string, answers asked) {
	switch properties, isObject := s["properties"].(schema); {
	case isObject:
		for name, of := range properties {
			boundAt(of.(schema), append(path, name), answers)
		}
	case s["type"] == "integer":
		boundNumber(s, path, answers)
	case s["type"] == "string" && s["pattern"] == nil:
		boundWord(s, path, answers)
	case s["type"] == "object": // a map, whose keys users choose
		if of, ok := s["additionalProperties"].(schema); ok && of["type"] == "integer" {
			boundNumber(of, append(path, anyKey), answers)
		}
	}
}

// anyKey stands for the keys of maps.
const anyKey = "any"

// complaint returns what a program says of one setting, "" where it takes the value. Complaints begin with the path.
func complaint(path []string, value any, answers asked) string {
	settings := map[string]any{}
	at := settings
	for _, name := range path[:len(path)-1] {
		below := map[string]any{}
		at[name], at = below, below
	}
	at[path[len(path)-1]] = value
	names := []string{strings.Join(path, ".") + ": "}
	if last := len(path) - 1; path[last] == anyKey {
		names = append(names, strings.Join(path[:last], ".")+`["`+anyKey+`"]: `)
	}
	for line := range strings.Lines(answers(settings)) {
		for _, name := range names {
			if strings.HasPrefix(line, name) {
				return line
			}
		}
	}
	return ""
}

// boundNumber adds the least and the greatest legal number, as far as 1 is legal and all between two legal numbers is.
func boundNumber(s schema, path []string, answers asked) {
	legal := func(n int64) bool { return complaint(path, n, answers) == "" }
	const one = 1
	if !legal(one) {
		return
	}
	if least, bounded := furthest(one, math.MinInt32, legal); bounded {
		s["minimum"] = least
	}
	if most, bounded := furthest(one, math.MaxInt32, legal); bounded {
		s["maximum"] = most
	}
}

// furthest returns the number that is legal and nearest to an end, and whether the end itself is illegal.
func furthest(legalOne, end int64, legal func(int64) bool) (int64, bool) {
	if legal(end) {
		return end, false
	}
	for in, out := legalOne, end; ; {
		middle := in + (out-in)/2
		if middle == in {
			return in, true
		}
		if legal(middle) {
			in = middle
		} else {
			out = middle
		}
	}
}

// legalWords find the words in a complaint about a word that is none of them.
var legalWords = []*regexp.Regexp{regexp.MustCompile(`supported values: (.*)`), regexp.MustCompile(`must be one of (.*)`)}

// boundWord adds the legal words, where there is a choice of some.
func boundWord(s schema, path []string, answers asked) {
	said := strings.TrimSpace(complaint(path, "no such word", answers))
	for _, words := range legalWords {
		found := words.FindStringSubmatch(said)
		if found == nil {
			continue
		}
		var legal []any
		for word := range strings.SplitSeq(found[1], ", ") {
			legal = append(legal, strings.Trim(word, `"`))
		}
		if complaint(path, "", answers) == "" {
			legal = append(legal, "") // the default
		}
		delete(s, "type")
		s["enum"] = legal
	}
}

// asksAgent asks the agent.
func asksAgent(settings map[string]any) string {
	raw, err := yaml.Marshal(settings)
	if err == nil {
		_, err = agent.Parse(raw)
	}
	return saidBy(err)
}

// asksPlugin asks the validation of a plugin's arguments, whose defaults are set.
func asksPlugin[T, D any](defaults func(*T), convert func(*T) (*D, error), validate func(*D) field.ErrorList) asked {
	return func(settings map[string]any) string {
		raw, err := yaml.Marshal(settings)
		if err != nil {
			return saidBy(err)
		}
		var args T
		if err := yaml.UnmarshalStrict(raw, &args); err != nil {
			return saidBy(err)
		}
		defaults(&args)
		in, err := convert(&args)
		if err != nil {
			return saidBy(err)
		}
		var b strings.Builder
		for _, e := range validate(in) {
			b.WriteString(e.Error() + "\n")
		}
		return b.String()
	}
}

func saidBy(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

var (
	asksShare = asksPlugin(v1.SetDefaults_GPUShareArgs, func(in *v1.GPUShareArgs) (*config.GPUShareArgs, error) {
		out := &config.GPUShareArgs{}
		return out, v1.Convert_v1_GPUShareArgs_To_config_GPUShareArgs(in, out, nil)
	}, func(args *config.GPUShareArgs) field.ErrorList {
		return config.ValidateGPUShareArgs(args, placement.Policies(), nil)
	})
	asksGang = asksPlugin(v1.SetDefaults_GPUGangArgs, func(in *v1.GPUGangArgs) (*config.GPUGangArgs, error) {
		out := &config.GPUGangArgs{}
		return out, v1.Convert_v1_GPUGangArgs_To_config_GPUGangArgs(in, out, nil)
	}, func(args *config.GPUGangArgs) field.ErrorList { return config.ValidateGPUGangArgs(args, nil) })
	asksPreempt = asksPlugin(v1.SetDefaults_GPUPreemptArgs, func(in *v1.GPUPreemptArgs) (*config.GPUPreemptArgs, error) {
		out := &config.GPUPreemptArgs{}
		return out, v1.Convert_v1_GPUPreemptArgs_To_config_GPUPreemptArgs(in, out, nil)
	}, func(args *config.GPUPreemptArgs) field.ErrorList { return config.ValidateGPUPreemptArgs(args, nil) })
)
