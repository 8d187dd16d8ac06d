package decisions

// Reason is one of the words by which a program says why it decided.
type Reason struct {
	Name string
	// The decision or finding, in a few words.
	What string
}

// reasons are sorted by the program, then by the name. Reasons of other plugins of the scheduler are not among them.
var reasons = []Reason{
	{"FailedScheduling", "a pod found no place"},
	{"GangNameTaken", "a pod joins the running gang of another job"},
	{"GangPlaced", "all members of a gang that must run have places"},
	{"GangReleased", "a gang lost its places"},
	{"NodePaused", "a node gets no pods for a while"},
	{"NotPreempting", "nothing is evicted for a pod or gang"},
	{"Preempted", "a pod is evicted for another"},
	{"Preempting", "pods are evicted for a pod or gang"},
	{"Scheduled", "a pod got a node"},
	{"WorkloadProfileNotFound", "the profile of a pod does not exist"},

	{"ElasticEvictionRefused", "a disruption budget keeps a surplus member"},
	{"ElasticGrow", "a job gets more workers"},
	{"ElasticRateIgnored", "the rate of a job has no effect"},
	{"ElasticServersGrow", "a job gets more parameter servers"},
	{"ElasticServersShrink", "a job gets fewer parameter servers"},
	{"ElasticShrink", "a job gets fewer workers"},

	{"AtMost", "a fleet has all replicas that it may have"},
	{"Cheaper", "a fleet gets cheaper replicas"},
	{"Grows", "a fleet gets more replicas"},
	{"PromiseTooShort", "no size of a fleet keeps its promise"},
	{"Shrinks", "a fleet gets fewer replicas"},

	{"NotebookCulled", "an idle notebook is scaled to zero for good"},
	{"NotebookIdle", "the owner of an idle notebook is warned"},
	{"NotebookInvalid", "an annotation of a notebook is not legal"},
	{"NotebookParked", "an idle notebook is parked"},
	{"NotebookUnreachable", "a notebook does not answer"},
	{"NotebookWoken", "a parked notebook is started"},

	{"StartRefused", "the agent of a node does not let a pod start"},
}

// Reasons returns the reasons that Tandem's programs write, and Scheduled of the stock scheduler.
func Reasons() []Reason { return reasons }
