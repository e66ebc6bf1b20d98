//go:build !race

package idem

const raceStep = 1
