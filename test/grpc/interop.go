// The client and the server of gRPC's interop tests. Usage: interop server | interop client host:port
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

func serve() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	server := grpc.NewServer()
	testgrpc.RegisterTestServiceServer(server, interop.NewTestServer())
	fmt.Printf("port=%d\n", listener.Addr().(*net.TCPAddr).Port)
	log.Fatal(server.Serve(listener))
}

// Each case ends the process if it fails.
func call(address string) {
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		log.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client := testgrpc.NewTestServiceClient(conn)
	unknown := testgrpc.NewUnimplementedServiceClient(conn)
	cases := []struct {
		name string
		run  func()
	}{
		{"empty_unary", func() { interop.DoEmptyUnaryCall(ctx, client) }},
		{"large_unary", func() { interop.DoLargeUnaryCall(ctx, client) }},
		{"client_streaming", func() { interop.DoClientStreaming(ctx, client) }},
		{"server_streaming", func() { interop.DoServerStreaming(ctx, client) }},
		{"ping_pong", func() { interop.DoPingPong(ctx, client) }},
		{"empty_stream", func() { interop.DoEmptyStream(ctx, client) }},
		{"timeout_on_sleeping_server", func() { interop.DoTimeoutOnSleepingServer(ctx, client) }},
		{"cancel_after_begin", func() { interop.DoCancelAfterBegin(ctx, client) }},
		{"cancel_after_first_response", func() { interop.DoCancelAfterFirstResponse(ctx, client) }},
		{"custom_metadata", func() { interop.DoCustomMetadata(ctx, client) }},
		{"status_code_and_message", func() { interop.DoStatusCodeAndMessage(ctx, client) }},
		{"special_status_message", func() { interop.DoSpecialStatusMessage(ctx, client) }},
		{"unimplemented_method", func() { interop.DoUnimplementedMethod(ctx, conn) }},
		{"unimplemented_service", func() { interop.DoUnimplementedService(ctx, unknown) }},
	}
	for _, each := range cases {
		fmt.Printf("%s ", each.name)
		each.run()
	}
	fmt.Println("passed")
}

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "server":
		serve()
	case len(os.Args) == 3 && os.Args[1] == "client":
		call(os.Args[2])
	default:
		log.Fatal("usage: interop server | interop client host:port")
	}
}
