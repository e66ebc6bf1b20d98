package idem

import (
	"fmt"
	"os"
	"testing"
)

// children are what this test binary does instead of testing when a test runs
// it again as another process, with childEnv naming one. Test files add theirs
// in an init function.
var children = map[string]func(){}

const childEnv = "IDEM_TEST_CHILD"

func TestMain(m *testing.M) {
	name := os.Getenv(childEnv)
	if name == "" {
		os.Exit(m.Run())
	}
	child := children[name]
	if child == nil {
		fmt.Fprintf(os.Stderr, "no child %q\n", name)
		os.Exit(2)
	}
	child()
	os.Exit(0)
}
