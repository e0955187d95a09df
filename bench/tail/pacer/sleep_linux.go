package main

import (
	"runtime"
	"syscall"
	"time"
)

const setTimerSlack = 29 // PR_SET_TIMERSLACK in linux/prctl.h

// preciseThread locks this goroutine to its own thread, and makes the timers of that thread precise. By default, they may be
// up to 50 µs late.
func preciseThread() {
	runtime.LockOSThread()
	syscall.Syscall(syscall.SYS_PRCTL, setTimerSlack, 1, 0)
}

// sleep blocks the thread for a duration. time.Sleep is not used, because on Linux it waits for whole milliseconds.
func sleep(duration time.Duration) {
	if duration > 0 {
		left := syscall.NsecToTimespec(duration.Nanoseconds())
		syscall.Nanosleep(&left, nil)
	}
}
