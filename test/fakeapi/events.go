package fakeapi

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// Notes returns the texts of the events about a pod of the namespace default.
func Notes(t testing.TB, client kubernetes.Interface, pod string) []string {
	t.Helper()
	list, err := client.EventsV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var notes []string
	for i := range list.Items {
		if list.Items[i].Regarding.Name == pod {
			notes = append(notes, list.Items[i].Note)
		}
	}
	return notes
}
