package idem

import (
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// modulePath is in the stack of whatever this module runs or has started.
const modulePath = "github.com/idem-go/idem"

// runAndCheck runs the tests and then looks for goroutines that they left. It is
// for TestMain.
func runAndCheck(m *testing.M) (code int) {
	code = m.Run()
	if code != 0 { // a test that failed may have left some
		return code
	}
	if left := leftGoroutines(2 * time.Second); len(left) > 0 {
		fmt.Fprintf(os.Stderr, "%d goroutines of the module are left when all tests have ended:\n\n%s\n", len(left), strings.Join(left, "\n\n"))
		return 1
	}
	return 0
}

// leftGoroutines are the goroutines of this module that do not end in that time,
// besides the one that calls it.
func leftGoroutines(patience time.Duration) (left []string) {
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		left = nil
		for _, g := range strings.Split(stacks(), "\n\n")[1:] { // the first one is this
			if strings.Contains(g, modulePath) {
				left = append(left, g)
			}
		}
		if len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

func stacks() string {
	for size := 1 << 20; ; size *= 2 {
		b := make([]byte, size)
		if n := runtime.Stack(b, true); n < size {
			return string(b[:n])
		}
	}
}

// A goroutine that hangs is seen, and one that ends is waited for.
func TestLeftGoroutinesAreSeen(t *testing.T) {
	const name = "TestLeftGoroutinesAreSeen.func"
	seen := func(patience time.Duration) (n int) {
		for _, g := range leftGoroutines(patience) {
			if strings.Contains(g, name) && !strings.Contains(g, "testing.tRunner") {
				n++
			}
		}
		return n
	}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() { <-end; close(ended) }()
	assert.Equal(t, 1, seen(0))
	close(end)
	<-ended
	assert.Eventually(t, func() bool { return seen(0) == 0 }, patience, time.Millisecond)
}
