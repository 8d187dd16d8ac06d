package main

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for flag, want := range map[string]string{
		"--hold-for=999ms":       "--hold-for: 999ms is not legal, legal is 1s to 1h",
		"--hold-for=61m":         "--hold-for: 1h1m0s is not legal, legal is 1s to 1h",
		"--most-held=0":          "--most-held: 0 is not legal, legal is 1 to 100000",
		"--most-held=100001":     "--most-held: 100001 is not legal, legal is 1 to 100000",
		"--most-connections=0":   "--most-connections: 0 is not legal, legal is 1 to 100000",
		"--strip-headers=Cookie": "--strip-headers: [Cookie] is not legal, legal is names of headers such as X-Forwarded-User, without Host and Cookie",
		"--strip-cookies=a=b":    "--strip-cookies: [a=b] is not legal, legal is names of cookies such as _oauth2_proxy*",
		"--kube-api-qps=0":       "--kube-api-qps: 0 is not legal, legal is above 0",
		"--kube-api-burst=0":     "--kube-api-burst: 0 is not legal, legal is 1 or more",
		"--hold-for=1h":          "",
		"--most-held=1":          "",
		"--bind-address=:8000":   "",
	} {
		c := command()
		c.SetArgs([]string{flag, "--kubeconfig=/nowhere/kubeconfig"})
		err := c.ExecuteContext(t.Context())
		if err == nil || want != "" && err.Error() != want || want == "" && !strings.HasPrefix(err.Error(), "--kubeconfig: ") {
			t.Errorf("%s: %v, want %q", flag, err, want)
		}
	}
}
