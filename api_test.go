package idem

import (
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "write testdata/api.txt anew")

// The exported root names are few, and none comes or goes unnoticed.
func TestExportedNames(t *testing.T) {
	names := exportedNames(t)
	require.LessOrEqual(t, len(names), 80)
	text := strings.Join(names, "\n") + "\n"
	golden := filepath.Join("testdata", "api.txt")
	if *update {
		require.NoError(t, os.WriteFile(golden, []byte(text), 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), text, "go test -run ExportedNames -update . writes the file anew")
}

func exportedNames(tb testing.TB) []string {
	tb.Helper()
	files, err := filepath.Glob("*.go")
	require.NoError(tb, err)
	var names []string
	add := func(id *ast.Ident) {
		if id.IsExported() {
			names = append(names, id.Name)
		}
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(tb, err)
		for _, decl := range parsed.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(d.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						add(s.Name)
					case *ast.ValueSpec:
						for _, id := range s.Names {
							add(id)
						}
					}
				}
			}
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}
