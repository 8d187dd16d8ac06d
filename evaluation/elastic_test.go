package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tandem-gpu/tandem/evaluation/gangs"
	"github.com/tandem-gpu/tandem/internal/simulator/command"
	"github.com/tandem-gpu/tandem/test/golden"
)

func elasticArgs(more ...string) []string {
	return append([]string{"elastic"}, gangArgs(more...)[1:]...)
}

// muriArgs adds a made-up trace in the format of Muri.
func muriArgs(more ...string) []string {
	return elasticArgs(append([]string{"--workload", "testdata/elastic_muri.csv", "--models", "vgg16=oak:8,bert=elm:8,gpt2=fir:8"}, more...)...)
}

func TestElastic(t *testing.T) {
	help := succeed(t, "elastic", "--help")
	golden.Text(t, "help_elastic.txt", help)
	golden.Text(t, "elastic.txt", succeed(t, elasticArgs()...))
	golden.Text(t, "elastic.json", succeed(t, elasticArgs("--policy", "kubernetes,goodput", "--load", "0.5,2", "--cost", "oak=90s", "-o", "json")...))
	golden.Text(t, "elastic_muri.txt", succeed(t, muriArgs("--policy", "static,elastic-kubeflow,elastic-fifo,goodput", "--load", "0.5,2", "--jobs", "4")...))
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

const muriHead = "job_id,num_gpu,submit_time,duration,iterations,model_name\n"

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
		{"a least size that is too large", []string{"--least", "2"}, "least sizes of 2 times what jobs ask for, legal is 0 to 1"},
		{"no jobs", []string{"--jobs", "0"}, "0 jobs of a trace, legal is 1 to 10000"},
		{"a model without samples", []string{"--models", "vgg16=oak"}, `flag --models: "vgg16=oak" is no model with an application`},
		{"a trace without GPUs", []string{"--workload", file(t, "none.csv", muriHead+"0,0,0,1,1,vgg16\n")}, `none.csv line 2 column num_gpu: found "0", want a whole number from 1 to 10000`},
		{"a trace with a broken time", []string{"--workload", file(t, "time.csv", muriHead+"0,1,0,soon,1,vgg16\n")}, `time.csv line 2 column duration: found "soon", want a number from 0`},
		{"a trace of an unknown model", []string{"--workload", file(t, "t5.csv", muriHead+"0,1,0,1,1,t5\n")}, `t5.csv line 2 column model_name: found "t5", want a model for which an application stands: a2c, bert`},
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
