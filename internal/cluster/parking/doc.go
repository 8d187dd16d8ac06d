// Package parking reads what the owner of a notebook allows, and scales the notebook to zero and back.
//
// A notebook is a StatefulSet or a Deployment with one pod, whose owner lets Tandem park it by annotations. Controller and activator share
// what it is: the annotations, its pod, and the patch of its /scale. The package decides nothing.
package parking
