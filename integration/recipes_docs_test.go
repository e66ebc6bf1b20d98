package integration

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// What docs/recipes.md shows is the code that runs here, and each recipe says as
// what it runs.
func TestRecipes_ThePageIsWhatRuns(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../docs/recipes.md")
	require.NoError(t, err)
	var sources strings.Builder
	for _, pattern := range []string{"*_test.go", "../examples/agent/*.go"} {
		files, err := filepath.Glob(pattern)
		require.NoError(t, err)
		require.NotEmpty(t, files)
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			sources.Write(text)
		}
	}
	blocks := strings.Split(string(page), "```go\n")[1:]
	require.Greater(t, len(blocks), 10)
	for _, block := range blocks {
		code, _, found := strings.Cut(block, "```")
		require.True(t, found)
		for part := range strings.SplitSeq(code, "\n\nfunc ") { // comments between them are left out
			if !strings.Contains(sources.String(), strings.TrimPrefix(strings.TrimSpace(part), "func ")) {
				assert.Fail(t, "this is not what runs", part)
			}
		}
	}
	recipes := strings.Split(string(page), "\n## ")[1:]
	require.GreaterOrEqual(t, len(recipes), 10)
	runs := regexp.MustCompile("`((?:Example_|Test)[A-Za-z0-9_]+)`")
	for _, recipe := range recipes {
		name, _, _ := strings.Cut(recipe, "\n")
		ways := runs.FindAllStringSubmatch(recipe, -1)
		assert.NotEmpty(t, ways, "%s: it does not say as what it runs", name)
		for _, way := range ways {
			assert.True(t, strings.Contains(sources.String(), "\nfunc "+way[1]+"("), "%s: %s", name, way[1])
		}
	}
	for link := range strings.SplitSeq(string(page), "](#") {
		anchor, _, found := strings.Cut(link, ")")
		if found && !strings.ContainsAny(anchor, " \n") {
			heading := strings.ToLower(strings.ReplaceAll(anchor, "-", " "))
			assert.True(t, strings.Contains(strings.ToLower(strings.ReplaceAll(string(page), "'", "")), "\n## "+heading+"\n"), anchor)
		}
	}
}
