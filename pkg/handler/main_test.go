package handler

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv("TEST_AS_EXAMPLE") != "" {
		ExampleMain()
	}
	goleak.VerifyTestMain(m)
}
