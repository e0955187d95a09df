// Sends GET requests at a fixed rate, and prints how late each response was.
//
// Request i is due i/rate seconds after the start. It goes to the connection that has been idle for longest; if none is
// idle, the request waits. Its latency is measured from when it was due, so a pause of the server shows in all requests that
// were due during the pause.
package main

import (
	"bufio"
	"encoding/json"
	"log"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"time"
)

type settings struct {
	Port, Connections int
	Path              string
	// The rate in requests per second.
	Rate float64
	// Seconds of load before the measurement, seconds of measured load, and seconds to wait for the last responses.
	Lead, Seconds, Patience float64
}

// Times are in microseconds.
type report struct {
	// The time from when each request was due until its response was complete, or until the end of the run.
	Latencies []int64 `json:"latencies"`
	// The time from when each request could be sent (it was due, and a connection was idle) until the pacer sent it.
	Lateness []int64 `json:"lateness"`
	// How late each timer of 1 ms fired, in a thread that does nothing else.
	Hiccups    []int64 `json:"hiccups"`
	Unanswered int     `json:"unanswered"`
	// Why a response was not 200 and complete; empty if all were.
	Failure string `json:"failure"`
}

type request struct {
	// The index of the request in the measurement; -1 during the lead.
	index int
	due   time.Time
}

// connection has one request at a time.
type connection struct {
	net.Conn
	idleSince time.Time
	current   request
}

// load is the state that the pacer and the connections share.
type load struct {
	sync.Mutex
	report
	head []byte
	// The connections without a request, and the requests without a connection. One of the two is empty.
	idle     []*connection
	waiting  []request
	answered sync.WaitGroup
}

// add sends a request that is due now, or makes it wait for a connection.
func (l *load) add(next request) {
	l.Lock()
	if len(l.idle) == 0 {
		l.waiting = append(l.waiting, next)
		l.Unlock()
		return
	}
	c := l.idle[0]
	l.idle = l.idle[1:]
	l.give(c, next)
	l.Unlock()
	l.send(c)
}

func (l *load) give(c *connection, next request) {
	c.current = next
	possible := next.due
	if c.idleSince.After(possible) {
		possible = c.idleSince
	}
	if next.index >= 0 {
		l.Lateness[next.index] = time.Since(possible).Microseconds()
	}
}

func (l *load) send(c *connection) {
	if _, err := c.Write(l.head); err != nil {
		l.fail(err.Error())
	}
}

// receive reads the responses of a connection.
func (l *load) receive(c *connection) {
	reader := bufio.NewReader(c)
	for {
		status, err := readResponse(reader)
		now := time.Now()
		if err != nil {
			l.fail(err.Error())
			return
		}
		if status != "200" {
			l.fail(status)
		}
		l.Lock()
		if c.current.index >= 0 {
			l.Latencies[c.current.index] = now.Sub(c.current.due).Microseconds()
		}
		c.idleSince = now
		if len(l.waiting) == 0 {
			l.idle = append(l.idle, c)
			l.Unlock()
		} else {
			next := l.waiting[0]
			l.waiting = l.waiting[1:]
			l.give(c, next)
			l.Unlock()
			l.send(c)
		}
		l.answered.Done()
	}
}

// readResponse reads a response and returns its status. Without net/http, this program builds in half the time.
func readResponse(reader *bufio.Reader) (status string, err error) {
	length := 0
	for first := true; ; first = false {
		line, err := reader.ReadString('\n')
		if err != nil {
			return "", err
		}
		name, value, _ := strings.Cut(strings.ToLower(strings.TrimSpace(line)), ":")
		value = strings.TrimSpace(value)
		switch {
		case first:
			_, after, _ := strings.Cut(name, " ")
			status, _, _ = strings.Cut(after, " ")
		case name == "":
			if length >= 0 {
				_, err = reader.Discard(length)
				return status, err
			}
			return status, readChunks(reader)
		case name == "content-length":
			if length, err = strconv.Atoi(value); err != nil {
				return "", err
			}
		case name == "transfer-encoding" && value == "chunked":
			length = -1
		}
	}
}

// readChunks reads a chunked body without trailers.
func readChunks(reader *bufio.Reader) error {
	for {
		line, err := reader.ReadString('\n')
		if err != nil {
			return err
		}
		size, err := strconv.ParseInt(strings.TrimSpace(line), 16, 32)
		if err != nil {
			return err
		}
		if _, err := reader.Discard(int(size) + 2); err != nil || size == 0 {
			return err
		}
	}
}

func (l *load) fail(reason string) {
	l.Lock()
	l.Failure = reason
	l.Unlock()
}

func main() {
	var s settings
	if err := json.Unmarshal([]byte(os.Args[1]), &s); err != nil {
		log.Fatal(err)
	}
	// Use more threads than cores, so that the pacer never waits for a connection's goroutine. Turn off garbage collection,
	// which would delay requests, because a run is too short to need it.
	runtime.GOMAXPROCS(4)
	debug.SetGCPercent(-1)

	address := (&net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: s.Port}).String()
	measured := int(s.Rate * s.Seconds)
	lead := int(s.Rate * s.Lead)
	l := &load{head: []byte("GET " + s.Path + " HTTP/1.1\r\nHost: " + address + "\r\n\r\n")}
	l.Latencies = make([]int64, measured)
	l.Lateness = make([]int64, measured)
	for i := range l.Latencies {
		l.Latencies[i] = -1
	}
	l.answered.Add(lead + measured)
	for i := 0; i < s.Connections; i++ {
		socket, err := net.Dial("tcp", address)
		if err != nil {
			log.Fatal(err)
		}
		c := &connection{Conn: socket}
		l.idle = append(l.idle, c)
		go l.receive(c)
	}

	hiccups := make(chan []int64)
	stop := make(chan struct{})
	go measureHiccups(time.Duration(s.Lead*float64(time.Second)), stop, hiccups)

	preciseThread()
	start := time.Now().Add(10 * time.Millisecond)
	for i := 0; i < lead+measured; i++ {
		due := start.Add(time.Duration(float64(i) / s.Rate * float64(time.Second)))
		sleep(time.Until(due))
		l.add(request{i - lead, due})
	}
	end := start.Add(time.Duration((s.Lead + s.Seconds) * float64(time.Second)))
	sleep(time.Until(end))
	close(stop)
	l.Hiccups = <-hiccups

	all := make(chan struct{})
	go func() {
		l.answered.Wait()
		close(all)
	}()
	select {
	case <-all:
	case <-time.After(time.Duration(s.Patience * float64(time.Second))):
	}
	l.Lock()
	for i, latency := range l.Latencies {
		if latency < 0 {
			due := start.Add(time.Duration(float64(lead+i) / s.Rate * float64(time.Second)))
			l.Latencies[i] = time.Since(due).Microseconds()
			l.Unanswered++
		}
	}
	if err := json.NewEncoder(os.Stdout).Encode(l.report); err != nil {
		log.Fatal(err)
	}
}

// measureHiccups waits for delay, then repeats a timer of 1 ms until stop is closed, and sends how late each one fired to
// result.
func measureHiccups(delay time.Duration, stop chan struct{}, result chan []int64) {
	preciseThread()
	late := []int64{}
	sleep(delay)
	for {
		select {
		case <-stop:
			result <- late
			return
		default:
		}
		before := time.Now()
		sleep(time.Millisecond)
		late = append(late, (time.Since(before) - time.Millisecond).Microseconds())
	}
}
