// Command slipway-runner is the process in the pod of a kind that Slipway brings itself. It also stands around images
// that it knows nothing of:
//
//	slipway-runner                        the handlers of the built-in kinds
//	slipway-runner exec -- PROGRAM ARG…   runs a program as the work of a Task of any kind
//	slipway-runner install FILE           copies itself, for an image that is to be wrapped
//	slipway-runner gate                   asks for the start and exits, before an image that is not
//
// Allowed imports: pkg/handler, pkg/task and runner/kinds.
package main

import (
	"fmt"
	"os"

	"slipway.dev/slipway/pkg/handler"
	"slipway.dev/slipway/pkg/task"
	"slipway.dev/slipway/runner/kinds/command"
	"slipway.dev/slipway/runner/kinds/volume"
)

func main() {
	args := os.Args[1:]
	switch {
	case len(args) == 0:
		all := volume.Handlers()
		all["command.run"] = command.Run
		handler.Main(all)
	case args[0] == "exec" && len(args) > 2 && args[1] == "--":
		handler.Main(map[string]handler.Handler{handler.AnyKind: command.Exec(args[2:])})
	case args[0] == "install" && len(args) == 2:
		if err := install(args[1]); err != nil {
			giveUp("install the runner: " + err.Error())
		}
	case args[0] == "gate" && len(args) == 1:
		handler.Gate()
	default:
		giveUp("usage: slipway-runner [exec -- PROGRAM ARG… | install FILE | gate]")
	}
}

// giveUp ends with the exit code that says that nothing has run.
func giveUp(why string) {
	_, _ = fmt.Fprintln(os.Stderr, "slipway: "+why) // a broken log cannot be reported anywhere
	os.Exit(task.ExitUnreachable)
}
