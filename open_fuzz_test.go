package idem

import (
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// longestName is what a file system takes; the longest that we put behind a
// journal's name is -owners.
const (
	longestName    = 255
	longestJournal = longestName - len("-owners")
)

// filesIn are all names below a folder.
func filesIn(tb testing.TB, dir string) (all []string) {
	tb.Helper()
	require.NoError(tb, filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if path != dir {
			all = append(all, strings.TrimPrefix(path, dir+string(filepath.Separator)))
		}
		return err
	}))
	return all
}

// checkOpen opens a path in the working folder, which is dir and empty but for
// a folder "sub". Either exactly that file is made, or nothing.
func checkOpen(t testing.TB, dir, path string) (legal bool) {
	abs, err := filepath.Abs(path)
	require.NoError(t, err)
	inside := strings.HasPrefix(abs, dir+"/")
	if abs == "/" || filepath.IsAbs(path) && !inside || !inside && abs != dir {
		return false // not to be tried here
	}
	before := filesIn(t, dir)
	name := strings.TrimPrefix(abs, dir+"/")
	folder := filepath.Dir(name)
	legal = path != "" && abs != dir && name != "sub" && (folder == "." || folder == "sub") && !strings.ContainsRune(path, 0) &&
		len(filepath.Base(abs)) <= longestJournal
	j, err := Open(path, nil)
	if !legal {
		if err == nil {
			_ = j.Close()
		}
		require.ErrorIs(t, err, ErrJournal, "%q", path)
		require.Equal(t, before, filesIn(t, dir), "what is refused makes nothing: %q", path)
		return false
	}
	require.NoError(t, err, "%q", path)
	defer func() {
		for _, side := range []string{"", "-wal", "-shm", "-owners"} {
			require.NoError(t, os.RemoveAll(abs+side))
		}
		require.Equal(t, before, filesIn(t, dir), "nothing else is left by %q", path)
	}()
	mustBegin(t, j, newIntent("a"))
	for _, file := range filesIn(t, dir) {
		require.True(t, file == "sub" || file == name || file == name+"-wal" || file == name+"-shm" || file == name+"-owners" ||
			strings.HasPrefix(file, name+"-owners/"), "%q makes %q", path, file)
	}
	require.NoError(t, j.Close())
	again, err := Open(abs, &SQLiteOptions{MustExist: true})
	require.NoError(t, err, "by its whole path: %q", abs)
	in, err := again.Lookup(t.Context(), "acct", "a")
	require.NoError(t, err, "it is in that file: %q", abs)
	require.Equal(t, StateInFlight, in.State)
	require.NoError(t, again.Close())
	return true
}

var openSeeds = []string{
	"a.db", "./a.db", "sub/a.db", "sub/../a.db", "a?mode=memory", "a?vfs=none&x=#f", "b#fragment", "%41", "%", "%%", "%zz", "%00", "a%2Fb", "d e", " ", "  lead",
	"trail ", "ünïcode.db", "注文💳", "\xff\xfe", "a\x00b", "\x00", "-x", "--", "file:y", "file:///y?z", ":memory:", ":", "s;p&q=1", "'", `"`, `\`, `a\b`, "a\nb", "\x7f",
	"*", "~", "~/x", "$HOME", "a//b", "sub//b", "sub/", "sub", ".", "..", "", "/", "none/a.db", ".hidden", "...", "a.db/", "a.db/.", "a-wal", "a-owners", "a-journal", "a+b", "a|b",
	strings.Repeat("x", longestJournal), strings.Repeat("x", longestJournal+1), strings.Repeat("x", longestName+1), strings.Repeat("ü", 130), strings.Repeat("%", longestJournal),
}

// openDir is a working folder for checkOpen.
func openDir(tb interface {
	testing.TB
	Chdir(string)
}) string {
	if runtime.GOOS == "windows" {
		tb.Skip("other names are legal there")
	}
	dir, err := filepath.EvalSymlinks(machineDir(tb))
	require.NoError(tb, err)
	require.NoError(tb, os.Mkdir(filepath.Join(dir, "sub"), 0o700))
	tb.Chdir(dir)
	return dir
}

func FuzzOpenPath(f *testing.F) {
	for _, path := range openSeeds {
		f.Add(path)
	}
	dir := openDir(f)
	f.Fuzz(func(t *testing.T, path string) { checkOpen(t, dir, path) })
}

func TestOpenPathFuzz_PseudoRandom(t *testing.T) {
	dir := openDir(t)
	r := rand.New(rand.NewPCG(19, 2026))
	opened, refused := 0, 0
	try := func(path string) {
		if checkOpen(t, dir, path) {
			opened++
		} else {
			refused++
		}
	}
	for _, path := range openSeeds {
		try(path)
	}
	for opened+refused < 300/raceStep {
		b := make([]byte, 1+r.UintN(8))
		for i := range b {
			if b[i] = `?#% &=;:'"\.-ab/~*+`[r.IntN(19)]; r.IntN(4) == 0 {
				b[i] = byte(r.UintN(256))
			}
		}
		try([]string{"", "./", "sub/", dir + "/"}[r.IntN(4)] + string(b))
	}
	t.Logf("%d opened, %d refused", opened, refused)
	assert.Greater(t, opened, 100/raceStep)
	assert.Greater(t, refused, 20/raceStep)
}

// A path that is too long for the engine, though not for the system, is refused
// before anything is made.
func TestOpenPath_TooLongForTheEngine(t *testing.T) {
	dir := openDir(t)
	deep := filepath.Join(dir, strings.Repeat("d", 200), strings.Repeat("e", 200))
	require.NoError(t, os.MkdirAll(deep, 0o700))
	for _, n := range []int{60, 100, 200} {
		path, before := filepath.Join(deep, strings.Repeat("x", n)), filesIn(t, deep)
		j, err := Open(path, nil)
		if err == nil {
			require.NoError(t, j.Close())
			continue
		}
		require.ErrorIs(t, err, ErrJournal)
		assert.ElementsMatch(t, before, filesIn(t, deep), "a path of %d bytes is refused and makes nothing", len(path))
	}
}
