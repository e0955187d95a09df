//go:build !linux

package main

import (
	"runtime"
	"time"
)

func preciseThread() { runtime.LockOSThread() }

func sleep(duration time.Duration) { time.Sleep(duration) }
