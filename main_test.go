package idem

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"testing"
)

// children are what this test binary does instead of testing when a test runs
// it again as another process, with childEnv naming one. Test files add theirs
// in an init function.
var children = map[string]func(){}

// leastBubbles is how many tests in virtual time there are at least.
const leastBubbles = 150

const childEnv = "IDEM_TEST_CHILD"

func TestMain(m *testing.M) {
	name := os.Getenv(childEnv)
	if name == "" {
		flag.Parse()
		if at := flag.Lookup("test.parallel").Value; at.String() == strconv.Itoa(runtime.GOMAXPROCS(0)) {
			_ = at.Set("6") // most of these tests wait
		}
		code := runAndCheck(m)
		if testing.Verbose() {
			fmt.Printf("virtual time: %d bubbles\n", bubbles.Load())
		}
		some := "" // of the tests
		for _, name := range []string{"run", "skip", "list"} {
			some += flag.Lookup("test." + name).Value.String()
		}
		if code == 0 && some == "" && bubbles.Load() < leastBubbles {
			fmt.Fprintln(os.Stderr, "fewer tests in virtual time than", leastBubbles)
			code = 1
		}
		os.Exit(code)
	}
	child := children[name]
	if child == nil {
		fmt.Fprintf(os.Stderr, "no child %q\n", name)
		os.Exit(2)
	}
	child()
	os.Exit(0)
}

// fuzzed is how many random inputs a test of that kind tries; more in .ci/run.
func fuzzed() int {
	if os.Getenv("IDEM_FAULTS") == "full" {
		return 200_000
	}
	return 20_000
}
