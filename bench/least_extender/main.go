// The least that an extender can do: name one node, send the Binding. It watches nothing and checks nothing, so what it costs
// is what kube-scheduler's way to call any extender costs. It offers HTTP/2, as Go's servers do if they are not told otherwise.
package main

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
)

var (
	listen     = flag.String("listen", "", "address for kube-scheduler")
	certFile   = flag.String("tls-cert", "", "certificate of this server")
	keyFile    = flag.String("tls-key", "", "its key")
	clientCA   = flag.String("client-ca", "", "CA of kube-scheduler's certificate")
	probePort  = flag.String("probe-port", "", "port for /readyz and /metrics")
	server     = flag.String("server", "", "URL of the API server")
	serverCA   = flag.String("server-ca", "", "its CA")
	tokenFile  = flag.String("token-file", "", "file with our token")
	annotation = flag.String("annotation", "", "name of the annotation to write on each pod")
)

type extender struct {
	client      *http.Client
	token       string
	turn        atomic.Int64
	connections atomic.Int64
}

func main() {
	flag.Parse()
	ours := &extender{
		token: strings.TrimSpace(string(read(*tokenFile))),
		client: &http.Client{Transport: &http.Transport{
			TLSClientConfig:     &tls.Config{RootCAs: pool(*serverCA)},
			MaxIdleConnsPerHost: 64,
		}},
	}
	probes := http.NewServeMux()
	probes.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) {})
	probes.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "accelshare_tls_connections_total %d\n", ours.connections.Load())
	})
	go func() { log.Fatal(http.ListenAndServe("127.0.0.1:"+*probePort, probes)) }()

	calls := http.NewServeMux()
	calls.HandleFunc("/accelshare/filter", ours.filter)
	calls.HandleFunc("/accelshare/bind", ours.bind)
	serving := &http.Server{
		Addr:      *listen,
		Handler:   calls,
		TLSConfig: &tls.Config{ClientCAs: pool(*clientCA), ClientAuth: tls.RequireAndVerifyClientCert},
		ConnState: func(_ net.Conn, state http.ConnState) {
			if state == http.StateNew {
				ours.connections.Add(1)
			}
		},
	}
	log.Fatal(serving.ListenAndServeTLS(*certFile, *keyFile))
}

// filter names the nodes in turn.
func (e *extender) filter(w http.ResponseWriter, r *http.Request) {
	var asked struct{ NodeNames []string }
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil || len(asked.NodeNames) == 0 {
		http.Error(w, "a filter call without NodeNames", http.StatusBadRequest)
		return
	}
	node := asked.NodeNames[int(e.turn.Add(1))%len(asked.NodeNames)]
	answer(w, map[string]any{"NodeNames": []string{node}})
}

func (e *extender) bind(w http.ResponseWriter, r *http.Request) {
	var asked struct{ PodName, PodNamespace, PodUID, Node string }
	if err := json.NewDecoder(r.Body).Decode(&asked); err != nil {
		http.Error(w, "an unreadable bind call", http.StatusBadRequest)
		return
	}
	binding, err := json.Marshal(map[string]any{
		"apiVersion": "v1",
		"kind":       "Binding",
		"metadata":   map[string]any{"name": asked.PodName, "uid": asked.PodUID, "annotations": map[string]string{*annotation: "{}"}},
		"target":     map[string]string{"kind": "Node", "name": asked.Node},
	})
	if err == nil {
		err = e.post(fmt.Sprintf("%s/api/v1/namespaces/%s/pods/%s/binding", *server, asked.PodNamespace, asked.PodName), binding)
	}
	problem := ""
	if err != nil {
		problem = err.Error()
		log.Print(problem)
	}
	answer(w, map[string]string{"Error": problem})
}

func (e *extender) post(url string, body []byte) error {
	request, err := http.NewRequest(http.MethodPost, url, strings.NewReader(string(body)))
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+e.token)
	request.Header.Set("Content-Type", "application/json")
	response, err := e.client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode >= http.StatusMultipleChoices {
		err = fmt.Errorf("%s: %s", response.Status, content)
	}
	return err
}

func answer(w http.ResponseWriter, content any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(content); err != nil {
		log.Print(err)
	}
}

func pool(file string) *x509.CertPool {
	found := x509.NewCertPool()
	if !found.AppendCertsFromPEM(read(file)) {
		log.Fatalf("%s has no certificate", file)
	}
	return found
}

func read(file string) []byte {
	content, err := os.ReadFile(file)
	if err != nil {
		log.Fatal(err)
	}
	return content
}
