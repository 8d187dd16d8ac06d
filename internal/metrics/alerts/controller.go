package alerts

import (
	"time"

	"github.com/tandem-gpu/tandem/internal/metrics"
	"github.com/tandem-gpu/tandem/internal/metrics/query"
	"github.com/tandem-gpu/tandem/internal/metrics/sources"
)

func controller() []Alert {
	failed := func(f metrics.Family) query.Expr { return query.Of(f).Rate("10m").Sum().OrZero() }
	return []Alert{
		{
			Name: "TandemControllerDown", For: 10 * time.Minute, Severity: Warning,
			Expr:    answers(ofController).Below(1),
			Summary: "Prometheus reaches no controller of Tandem.",
			Do:      "Look at the Deployment tandem-controller: sizes of elastic jobs and fleets stay as they are, and no notebook is parked.",
		},
		{
			Name: "TandemControllerPassesFail", For: 15 * time.Minute, Severity: Warning,
			Expr:    failed(sources.Elastic("failed_passes_total")).Plus(failed(sources.Fleet("failed_passes_total"))).Plus(failed(sources.Notebook("failed_passes_total"))).Above(0),
			Summary: "Passes of the controller over elastic jobs, fleets or notebooks fail.",
			Do:      "Look at the dashboard Gangs for which of the three, and at the log of the controller for why.",
		},
		{
			Name: "TandemFleetPromiseBroken", For: 10 * time.Minute, Severity: Critical,
			Expr:    query.Of(sources.Fleet("promise_kept")).Now().Max("namespace", "fleet").Equal(0),
			Summary: "Fleet {{ $labels.namespace }}/{{ $labels.fleet }} answers slower than it promises.",
			Do:      "Read the message of the InferenceFleet: it says whether more replicas are allowed, wait for GPUs, or would not help.",
		},
		{
			Name: "TandemFleetUnmeasured", For: 15 * time.Minute, Severity: Warning,
			Expr:    query.Of(sources.Fleet("decisions_total"), query.Is(reason, "NoMetrics")).Rate("10m").Sum().Above(0),
			Summary: "The controller does not know how many requests arrive at a fleet, so its size stays as it is.",
			Do:      "Find the fleet with kubectl get inferencefleets -A, and try its query at its Prometheus.",
		},
		{
			Name: "TandemFleetPatchesFail", For: 15 * time.Minute, Severity: Warning,
			Expr:    query.Of(sources.Fleet("patches_total"), query.Is(result, "failed")).Rate("10m").Sum("kind").Above(0),
			Summary: "The controller cannot write the {{ $labels.kind }} of fleets.",
			Do:      "Read the log of the controller: most often a role for that kind of object is missing.",
		},
		{
			Name: "TandemNotebooksNotWoken", For: 10 * time.Minute, Severity: Warning,
			Expr:    query.Of(sources.Activator("requests_total"), query.In(result, "failed", "late")).Rate("10m").Sum().Above(0),
			Summary: "Requests for parked notebooks end without an answer.",
			Do:      "Look whether the pods of these notebooks wait for GPUs, and what the activator logs.",
		},
	}
}
