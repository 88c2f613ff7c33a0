package handler_test

import (
	"context"
	"fmt"

	"slipway.dev/slipway/pkg/handler"
)

// An image of your own: this main function, and one handler.
func Example() {
	handler.Main(map[string]handler.Handler{"greet": func(_ context.Context, t handler.Task) (any, error) {
		var params struct{ Names []string }
		if err := t.Decode(&params); err != nil {
			return nil, err
		}
		for i, name := range params.Names {
			_, _ = fmt.Fprintln(t.Stdout, "hello", name)
			t.Progress(int64(i+1), int64(len(params.Names)), name)
		}
		return map[string]int{"greeted": len(params.Names)}, nil
	}})
}
