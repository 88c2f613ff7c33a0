//go:build race

package retention_test

// raceDetector says that each history takes some ten times as long.
const raceDetector = true
