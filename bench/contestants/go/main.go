// Go's ReverseProxy as its documentation shows it, with a pool large enough to reuse connections.
package main

import (
	"io"
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
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// By default, the pool keeps only two idle connections to a host, so most requests of a load would open a new one.
	transport.MaxIdleConnsPerHost = 4096
	transport.MaxIdleConns = 4096
	transport.DisableCompression = true
	proxy := &httputil.ReverseProxy{
		Transport: transport,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.SetXForwarded()
		},
	}
	// The benchmark keeps stdin open, so this process ends with the benchmark, even if that crashes.
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	log.Fatal(http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), proxy))
}
