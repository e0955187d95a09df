// Go's ReverseProxy as its documentation shows it, with a pool large enough to reuse connections. Flags set what else a
// proxy may need; without flags, the transport and the server have their defaults.
package main

import (
	"flag"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
)

func main() {
	disableCompression := flag.Bool("disable-compression", false, "do not ask the upstream for gzip")
	flushInterval := flag.Duration("flush-interval", 0, "how long a response may wait in a buffer; negative: not at all")
	readHeaderTimeout := flag.Duration("read-header-timeout", 0, "how long a client may take to send the fields of a request")
	flag.Parse()
	target, err := url.Parse(os.Getenv("TARGET"))
	if err != nil {
		log.Fatal(err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	// By default, the pool keeps only two idle connections to a host, so most requests of a load would open a new one.
	transport.MaxIdleConnsPerHost = 4096
	transport.MaxIdleConns = 4096
	transport.DisableCompression = *disableCompression
	proxy := &httputil.ReverseProxy{
		Transport:     transport,
		FlushInterval: *flushInterval,
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
	server := &http.Server{
		Addr:              "127.0.0.1:" + os.Getenv("PORT"),
		Handler:           proxy,
		ReadHeaderTimeout: *readHeaderTimeout,
	}
	log.Fatal(server.ListenAndServe())
}
