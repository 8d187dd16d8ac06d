// Package scheme makes the arguments of Tandem's plugins known to the scheduler's decoder.
//
// The stock scheduler fills its scheme when its package is initialized, which may be before or after the packages of
// the arguments registered themselves; this package adds them in either case. Import it blank.
package scheme

import (
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	inTree "k8s.io/kubernetes/pkg/scheduler/apis/config/scheme"

	"github.com/tandem-gpu/tandem/pkg/api/config"
	configv1 "github.com/tandem-gpu/tandem/pkg/api/config/v1"
)

func init() {
	utilruntime.Must(config.AddToScheme(inTree.Scheme))
	utilruntime.Must(configv1.AddToScheme(inTree.Scheme))
}
