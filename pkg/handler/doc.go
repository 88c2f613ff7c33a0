// Package handler is the contract between a kind of task and the code that does it, and the process around that code:
// an image of your own is this package plus your handlers.
//
//	func main() {
//		handler.Main(map[string]handler.Handler{"cache.warm": warm})
//	}
//
//	func warm(ctx context.Context, t handler.Task) (any, error) {
//		var params struct{ Keys []string }
//		if err := t.Decode(&params); err != nil {
//			return nil, err
//		}
//		for i, key := range params.Keys {
//			if err := fetch(ctx, key); err != nil {
//				return nil, err // tried again as the kind's policy says
//			}
//			t.Progress(int64(i+1), int64(len(params.Keys)), key)
//		}
//		return map[string]int{"warmed": len(params.Keys)}, nil
//	}
//
// [Main] asks the control plane for the start of its Attempt, beats while the handler is at work, hands on a cancel,
// stops the handler where it must not go on, and reports how it ended. The rules are DESIGN 5.
//
// Allowed imports: the standard library, pkg/task and its own internal packages.
package handler
