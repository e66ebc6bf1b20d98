//go:build race

package idem

// Under the race detector SQLite takes ten times as long: the large tables are
// walked in larger steps there.
const raceStep = 5
