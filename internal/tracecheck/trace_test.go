package main

import (
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const key = "0b8f3c1e-52a4-4d7e-9a57-1f2e3d4c5b6a"

var good = strings.Join([]string{
	`7 pwrite64(8</tmp/j.db-wal>, "\0\0` + key + `\1", 4096, 32) = 4096`,
	`7 fsync(8</tmp/j.db-wal> <unfinished ...>`,
	`8 write(1</dev/null>, "x", 1) = 1`,
	`7 <... fsync resumed>)            = 0`,
	`8 write(9<socket:[77]>, "POST /charges HTTP/1.1\r\nIdempotency-Key: ` + key + `\r\n", 120) = 120`,
}, "\n")

func TestJudge(t *testing.T) {
	sends, violations := judge(parse(good))
	require.Len(t, sends, 1)
	assert.Equal(t, sent{key: key, syncs: 1}, sends[0])
	assert.Empty(t, violations)

	for name, trace := range map[string]string{
		"no sync":              strings.ReplaceAll(good, "fsync", "lseek"),
		"sync of another file": strings.ReplaceAll(good, "fsync(8</tmp/j.db-wal>", "fsync(8</tmp/j.db>"),
		"failed sync":          strings.ReplaceAll(good, ")            = 0", ") = -1 EIO (Input/output error)"),
		"sync not returned":    strings.ReplaceAll(good, "7 <... fsync resumed>)            = 0\n", ""),
		"another key":          strings.Replace(good, key, strings.Replace(key, "0", "1", 1), 1),
		"written too late":     strings.Join(append(strings.Split(good, "\n")[1:], strings.Split(good, "\n")[0]), "\n"),
	} {
		_, violations := judge(parse(trace))
		assert.Len(t, violations, 1, name)
	}
}

// A report with too few sends, or with two syncs, is no proof.
func TestReport(t *testing.T) {
	assert.ErrorContains(t, report(io.Discard, parse(good)), "1 sends in the trace")
	lines := make([]string, 0, operations)
	for range operations {
		lines = append(lines, good)
	}
	assert.ErrorContains(t, report(io.Discard, parse(strings.Join(lines, "\n"))), "Shutdown")
	end := "\n7 fsync(8</tmp/j.db-wal>) = 0\n7 write(1</dev/null>, \"flushed\\n\", 8) = 8\n"
	assert.NoError(t, report(io.Discard, parse(strings.Join(lines, "\n")+end)))
	twice := strings.Join(lines, "\n7 fsync(8</tmp/j.db-wal>) = 0\n")
	assert.ErrorContains(t, report(io.Discard, parse(twice)), "2 syncs")
}
