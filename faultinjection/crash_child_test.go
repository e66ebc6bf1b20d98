package faultinjection_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idem/faultinjection"
)

// childCrash makes the test binary a program that does one of these, to be
// killed.
const childCrash = "FAULTINJECTION_TEST_CRASH"

var crashChildren = map[string]func(){
	"passes":    passPoints,
	"sleeps":    func() { fmt.Println("sleeps"); select {} },
	"ends":      func() { fmt.Println("ends") },
	"fails":     func() { fmt.Println("what must not be"); os.Exit(3) },
	"dies":      func() { faultinjection.KillAt("now", 1)("now") },
	"talks":     func() { fmt.Print("first", strings.Repeat("x", 1<<20), "last"); os.Exit(3) },
	"remembers": func() { fmt.Printf("crash %q", os.Getenv("FAULTINJECTION_CRASH")); os.Exit(3) },
}

func init() {
	do := crashChildren[os.Getenv(childCrash)]
	if do == nil {
		return
	}
	go func() { // the test is gone
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(4)
	}()
	do()
	os.Exit(0)
}

// passPoints passes two points twice, and says so before.
func passPoints() {
	defer fmt.Println("a deferred call")
	hook := faultinjection.HookFromEnv()
	if hook == nil {
		fmt.Println("no hook")
		return
	}
	for _, point := range []string{"a", "b", "a", "b"} {
		fmt.Println(point)
		hook(point)
	}
	fmt.Println("end")
}

// crashChild is a command that ends when this process does.
func crashChild(t *testing.T, name string, more ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	in, held, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, in.Close())
		require.NoError(t, held.Close())
	})
	cmd := exec.Command(self)
	cmd.Stdin = in
	cmd.Env = append(append(os.Environ(), childCrash+"="+name), more...)
	return cmd
}
