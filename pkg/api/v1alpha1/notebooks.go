package v1alpha1

// Users set these annotations on the StatefulSet or the Deployment that runs a notebook, not on its pods.
const (
	// AnnotationNotebook has the controller end a notebook in which nothing works: NotebookPark or NotebookCull.
	AnnotationNotebook = Domain + "/notebook"

	// AnnotationNotebookIdle is how long nothing works before that, a duration from 1m to 168h such as 90m. Default: 1h.
	AnnotationNotebookIdle = Domain + "/notebook-idle"

	// AnnotationNotebookPort is the port of the Jupyter server in the pod, from 1 to 65535. Default: 8888.
	AnnotationNotebookPort = Domain + "/notebook-port"

	// AnnotationNotebookPath is the base URL of the Jupyter server, such as /team-a/notebook. Default: /.
	AnnotationNotebookPath = Domain + "/notebook-path"

	// AnnotationNotebookToken names the Secret with the token of the Jupyter server and its key, such as jupyter/token; without
	// a key it is token. Default: the server wants no token.
	AnnotationNotebookToken = Domain + "/notebook-token"
)

// Values of AnnotationNotebook.
const (
	// NotebookPark scales the workload to zero, and lets the activator bring it back.
	NotebookPark = "park"
	// NotebookCull scales the workload to zero, and it stays there.
	NotebookCull = "cull"
)
