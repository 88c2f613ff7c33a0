package failpoint

import "testing"

func TestAMarkWithoutAPlanDoesNothing(*testing.T) {
	Hit("nowhere")
}
