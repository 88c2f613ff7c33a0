package hollow

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Build compiles the programs of the image that the chaos run uses into dir: the tree's own runner, as images have it,
// and the handler that tells the recorder what it does. Root is the module's folder.
func Build(ctx context.Context, root, dir string) (map[string]string, error) {
	programs := map[string]string{}
	for inside, folder := range map[string]string{"/slipway-runner": "./runner", "/work": "./e2e/recorder/work"} {
		out := filepath.Join(dir, filepath.Base(inside))
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-tags", "timetzdata", "-ldflags", "-s -w", "-o", out, folder)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("compile %s: %w\n%s", folder, err, text)
		}
		programs[inside] = out
	}
	return programs, nil
}
