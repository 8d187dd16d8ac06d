package main

import (
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// loopback is where the demo's own servers listen.
const loopback = "127.0.0.1"

// site is a server of the demo on loopback.
type site struct {
	server *http.Server
	port   int
}

func newSite(handler http.Handler) (*site, error) {
	listener, err := net.Listen("tcp", loopback+":0")
	if err != nil {
		return nil, err
	}
	s := &site{server: &http.Server{Handler: handler, ReadHeaderTimeout: time.Minute}, port: listener.Addr().(*net.TCPAddr).Port}
	go func() { _ = s.server.Serve(listener) }() // until close
	return s, nil
}

func (s *site) url() string { return fmt.Sprintf("http://%s:%d", loopback, s.port) }

func (s *site) close() { _ = s.server.Close() }

// requests stands for Prometheus: it knows one query, and answers it with the number of requests a second that the demo says.
type requests struct {
	*site
	now  func() time.Time
	rate atomic.Int64
}

// rateQuery is the only query.
const rateQuery = `sum(rate(requests_total{fleet="` + fleetName + `"}[1m]))`

func startRequests(now func() time.Time) (*requests, error) {
	r := &requests{now: now}
	var err error
	r.site, err = newSite(r)
	return r, err
}

// ServeHTTP is the part of Prometheus' API of queries that the controller uses.
func (r *requests) ServeHTTP(w http.ResponseWriter, q *http.Request) {
	result := ""
	if q.FormValue("query") == rateQuery {
		result = fmt.Sprintf(`{"metric": {}, "value": [%d, %q]}`, r.now().Unix(), strconv.FormatInt(r.rate.Load(), 10))
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = fmt.Fprintf(w, `{"status": "success", "data": {"resultType": "vector", "result": [%s]}}`, result) // the controller asks again
}
