// Command slipway-runner is the process in the pod of a kind that Slipway brings itself.
//
// Allowed imports: pkg/handler and runner/kinds.
package main

import (
	"slipway.dev/slipway/pkg/handler"
	"slipway.dev/slipway/runner/kinds/command"
)

func main() {
	handler.Main(map[string]handler.Handler{"command.run": command.Run})
}
