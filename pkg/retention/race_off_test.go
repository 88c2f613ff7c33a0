//go:build !race

package retention_test

const raceDetector = false
