package main

import (
	"runtime"
	"syscall"
	"time"
)

const setTimerSlack = 29 // PR_SET_TIMERSLACK in linux/prctl.h

// preciseThread locks this goroutine to its own thread, whose timers are then not up to 50 µs late, as by default.
func preciseThread() {
	runtime.LockOSThread()
	syscall.Syscall(syscall.SYS_PRCTL, setTimerSlack, 1, 0)
}

// sleep blocks the thread: time.Sleep on Linux waits for whole milliseconds.
func sleep(duration time.Duration) {
	if duration > 0 {
		left := syscall.NsecToTimespec(duration.Nanoseconds())
		syscall.Nanosleep(&left, nil)
	}
}
