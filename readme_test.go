package idem

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The README's program is the one of the package page, and both are the Example
// that runs.
func TestReadmeProgram(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		return string(text)
	}
	readme := read("README.md")
	assert.LessOrEqual(t, strings.Count(readme, "\n"), 200)
	_, rest, found := strings.Cut(readme, "```go\n")
	require.True(t, found)
	program, _, found := strings.Cut(rest, "```")
	require.True(t, found)
	page, example := read("doc.go"), read("example_test.go")
	// The example has a path and a base transport of its own, and prints to be checked.
	example = strings.NewReplacer("idem.Open(path, nil)", `idem.Open("payments.db", nil)`, ", Base: base})", "})", "fmt.Println(resp.Status)", "log.Print(resp.Status)").Replace(example)
	lines := strings.Split(strings.TrimSpace(program), "\n")
	assert.Contains(t, page, "//\t"+strings.Join(lines, "\n//\t")+"\n")
	assert.Contains(t, example, "\t"+strings.Join(lines, "\n\t")+"\n")
}
