// Go's ReverseProxy, as in the example of its documentation.
package main

import (
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

func main() {
	target, err := url.Parse(os.Getenv("TARGET"))
	if err != nil {
		log.Fatal(err)
	}
	harden := func(*httputil.ProxyRequest) {}
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetXForwarded()
			r.SetURL(target)
			harden(r)
		},
	}
	server := &http.Server{Addr: "127.0.0.1:" + os.Getenv("PORT"), Handler: proxy}

	// The labels of the hardenings in ../go.ts.
	switch os.Getenv("HARDENING") {
	case "Transport.DisableCompression":
		transport := http.DefaultTransport.(*http.Transport).Clone()
		transport.DisableCompression = true
		proxy.Transport = transport
	case "ResponseController.EnableFullDuplex":
		server.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			http.NewResponseController(w).EnableFullDuplex()
			proxy.ServeHTTP(w, r)
		})
	case "Rewrite adds Via":
		harden = func(r *httputil.ProxyRequest) { r.Out.Header.Add("Via", "1.1 go") }
	case "Rewrite keeps RawQuery":
		harden = func(r *httputil.ProxyRequest) { r.Out.URL.RawQuery = r.In.URL.RawQuery }
	}
	log.Fatal(server.ListenAndServe())
}
