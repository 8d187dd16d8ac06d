// Package checks asks a cluster and reads the clock.
package checks

import (
	"net/http"
	"time"

	_ "k8s.io/api/core/v1"
	_ "k8s.io/client-go/kubernetes"
)

var (
	_ = http.Get
	_ = time.Now
)
