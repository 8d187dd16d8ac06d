package v1alpha1

// Users set this on the object that shows a size: an InferenceFleet, or the ElasticTarget of an elastic gang.
const (
	// AnnotationSize holds a size: SizePaused, or numbers. On an ElasticTarget that is one of the legal numbers of members, such as
	// 4; on an InferenceFleet the replicas of variants, such as a100=3,t4=0. Without it the controller chooses the size.
	AnnotationSize = Domain + "/size"
	// SizePaused has the controller write neither sizes nor weights. It goes on to measure and to report.
	SizePaused = "paused"
)
