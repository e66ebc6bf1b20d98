package idem

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The README's programs are Examples that run, and its first one is that of the
// package page.
func TestReadmeProgram(t *testing.T) {
	read := func(name string) string {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		return string(text)
	}
	readme := read("README.md")
	assert.LessOrEqual(t, strings.Count(readme, "\n"), 200)
	page, example := read("doc.go"), read("example_test.go")
	// The example has a path and a base transport of its own, and prints to be checked.
	example = strings.NewReplacer("idem.Open(path, nil)", `idem.Open("payments.db", nil)`, ", Base: base})", "})",
		"fmt.Println(resp.Status)", "log.Print(resp.Status)").Replace(example)
	blocks := strings.Split(readme, "```go\n")[1:]
	require.Len(t, blocks, 2)
	for i, block := range blocks {
		program, _, found := strings.Cut(block, "```")
		require.True(t, found)
		lines := strings.Split(strings.TrimSpace(program), "\n")
		assert.Contains(t, example, "\t"+strings.Join(lines, "\n\t")+"\n")
		if i == 0 {
			assert.Contains(t, page, "//\t"+strings.Join(lines, "\n//\t")+"\n")
		}
	}
}
