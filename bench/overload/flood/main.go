// Sends GET requests at a fixed rate, whether or not earlier ones have been answered, and prints what became of them.
//
// Request i is due i/rate seconds after the start. Without Clients, each request opens a new connection. With Clients, the
// client that has been idle for longest sends the request. Each client keeps its connection, and opens a new one for its next
// request if the connection was closed. If all clients wait for a response, the request is lost.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"net"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

type settings struct {
	Port    int
	Path    string
	Rate    float64
	Clients int
	// Seconds of load before the measurement, and seconds of measured load.
	Lead, Seconds float64
}

// Times are in microseconds, from when the request was due.
type report struct {
	// Complete responses with status 200, and when they ended.
	Answered []int64 `json:"answered"`
	// Refusals (503, or a closed connection), and when the clients got them.
	Refused []int64 `json:"refused"`
	// Of the refusals, those without a response.
	Cut int `json:"cut"`
	// Requests without any answer within patience, and requests for which no client was idle.
	Unanswered int `json:"unanswered"`
	Lost       int `json:"lost"`
	// The 99th percentile of how late a request was sent.
	Late int64 `json:"late"`
}

const patience = 10 * time.Second

// The number of addresses that the clients have together, because servers may limit the connections of an address.
const addresses = 200

type client struct {
	address net.IP
	conn    net.Conn
	reader  *bufio.Reader
}

type flood struct {
	sync.Mutex
	report
	settings
	idle []*client
	done sync.WaitGroup
}

// ask sends a request, and returns the status of its response. The status is 0 if the connection was closed, and -1 if there
// was no answer.
func (f *flood) ask(c *client, due time.Time) int {
	deadline := due.Add(patience)
	if c.conn == nil {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: c.address}, Deadline: deadline, KeepAlive: -1}
		conn, err := dialer.Dial("tcp", "127.0.0.1:"+strconv.Itoa(f.Port))
		if err != nil {
			return statusOf(err)
		}
		c.conn = conn
		if c.reader == nil {
			c.reader = bufio.NewReaderSize(conn, 2048)
		}
		c.reader.Reset(conn)
	}
	c.conn.SetDeadline(deadline)
	head := "GET " + f.Path + " HTTP/1.1\r\nHost: flood\r\n"
	if f.Clients == 0 {
		head += "Connection: close\r\n"
	}
	// A write to a connection that was closed may fail although a response has arrived.
	c.conn.Write([]byte(head + "\r\n"))
	status, isLast, err := readResponse(c.reader)
	if err != nil {
		status = statusOf(err)
	}
	if err != nil || isLast {
		c.conn.Close()
		c.conn = nil
	}
	return status
}

func statusOf(err error) int {
	if timeout, ok := err.(net.Error); ok && timeout.Timeout() {
		return -1
	}
	return 0
}

func readResponse(reader *bufio.Reader) (status int, isLast bool, err error) {
	length := 0
	for first := true; ; first = false {
		line, err := reader.ReadString('\n')
		if err != nil {
			return 0, true, err
		}
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(line)), ":")
		value = strings.TrimSpace(value)
		switch {
		case first:
			_, after, _ := strings.Cut(name, " ")
			status, _ = strconv.Atoi(after[:min(3, len(after))])
		case name == "":
			_, err := reader.Discard(length)
			return status, isLast, err
		case name == "content-length":
			length, _ = strconv.Atoi(value)
		case name == "connection":
			isLast = value == "close"
		}
	}
}

// exchange sends a request that is due, and notes what became of it.
func (f *flood) exchange(c *client, due time.Time, isMeasured bool, late []int64, i int) {
	defer f.done.Done()
	if isMeasured {
		late[i] = time.Since(due).Microseconds()
	}
	status := f.ask(c, due)
	took := time.Since(due).Microseconds()
	f.Lock()
	defer f.Unlock()
	f.idle = append(f.idle, c)
	if !isMeasured {
		return
	}
	switch {
	case status == 200:
		f.Answered = append(f.Answered, took)
	case status < 0:
		f.Unanswered++
	default:
		f.Refused = append(f.Refused, took)
		if status == 0 {
			f.Cut++
		}
	}
}

func (f *flood) take(i int) *client {
	f.Lock()
	defer f.Unlock()
	if f.Clients == 0 {
		// Without Clients, an idle client has no connection.
		if last := len(f.idle) - 1; last >= 0 {
			c := f.idle[last]
			f.idle = f.idle[:last]
			return c
		}
		return newClient(i)
	}
	if len(f.idle) == 0 {
		return nil
	}
	c := f.idle[0]
	f.idle = f.idle[1:]
	return c
}

func newClient(i int) *client {
	return &client{address: net.IPv4(127, 0, 1, byte(1+i%addresses))}
}

func main() {
	f := &flood{}
	if err := json.Unmarshal([]byte(os.Args[1]), &f.settings); err != nil {
		log.Fatal(err)
	}
	debug.SetGCPercent(1000)
	for i := 0; i < f.Clients; i++ {
		f.idle = append(f.idle, newClient(i))
	}
	lead := int(f.Rate * f.Lead)
	measured := int(f.Rate * f.Seconds)
	late := make([]int64, measured)
	start := time.Now().Add(10 * time.Millisecond)
	for i := 0; i < lead+measured; i++ {
		due := start.Add(time.Duration(float64(i) / f.Rate * float64(time.Second)))
		if wait := time.Until(due); wait > 0 {
			time.Sleep(wait)
		}
		c := f.take(i)
		if c == nil {
			if i >= lead {
				f.Lost++
			}
			continue
		}
		f.done.Add(1)
		go f.exchange(c, due, i >= lead, late, i-lead)
	}
	f.done.Wait()
	slices.Sort(late)
	f.Late = late[len(late)*99/100]
	if err := json.NewEncoder(os.Stdout).Encode(f.report); err != nil {
		log.Fatal(err)
	}
}
