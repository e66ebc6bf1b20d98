//go:build race

package idem_test

// raced: the race detector makes SQLite ten times slower.
const raced = true
