package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/evaluation/gangs"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
)

func elasticArgs(more ...string) []string {
	return append([]string{"elastic"}, gangArgs(more...)[1:]...)
}

func TestElastic(t *testing.T) {
	help := succeed(t, "elastic", "--help")
	golden(t, "help_elastic.txt", help)
	golden(t, "elastic.txt", succeed(t, elasticArgs()...))
	golden(t, "elastic.json", succeed(t, elasticArgs("--policy", "kubernetes,goodput", "--load", "0.5,2", "--cost", "oak=90s", "-o", "json")...))
	out := succeed(t, elasticArgs("-o", "json")...)
	for _, policy := range gangs.ElasticPolicies() {
		if !strings.Contains(out, fmt.Sprintf("\"policy\": %q", policy)) {
			t.Errorf("no row of %s", policy)
		}
		if !strings.Contains(help, "\n  "+policy+" ") {
			t.Errorf("the help does not explain %s", policy)
		}
	}
	if diff := cmp.Diff(out, succeed(t, elasticArgs("-o", "json")...)); diff != "" {
		t.Errorf("the same once more (-first +second):\n%s", diff)
	}
}

func TestElasticBadInput(t *testing.T) {
	for _, tc := range []struct {
		name string
		more []string
		want string
	}{
		{"an unknown policy", []string{"--policy", "goodput,yew"}, `unknown policy "yew", known are kubernetes, static`},
		{"a policy of gangs", []string{"--policy", "tandem"}, `unknown policy "tandem"`},
		{"a policy twice", []string{"--policy", "goodput,goodput"}, "goodput appears twice"},
		{"no time", []string{"--cost", "oak"}, `flag --cost: "oak" is no application with a time from 0s to 1h`},
		{"a negative time", []string{"--cost", "oak=-1s"}, `"oak=-1s" is no application with a time`},
		{"a long time", []string{"--cost", "oak=2h"}, `"oak=2h" is no application with a time`},
		{"a cost twice", []string{"--cost", "oak=1s,oak=2s"}, "oak appears twice"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			code, out, errs := evaluate(elasticArgs(tc.more...)...)
			if code != command.Broken || out != "" || strings.Count(errs, "\n") != 1 || !strings.Contains(errs, tc.want) {
				t.Errorf("ends with %d, prints %q, says %q, want %q", code, out, errs, tc.want)
			}
		})
	}
}
