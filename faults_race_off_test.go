//go:build !race

package idem_test

const raced = false
