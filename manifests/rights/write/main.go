// Command write writes the manifests that follow from the table of package rights. It runs in the folder manifests.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"slipway.dev/slipway/manifests/rights"
)

func main() {
	for file, text := range map[string][]byte{"base/kinds.yaml": rights.Base(), "components/tenant-volumes/volumes.yaml": rights.Tenant()} {
		if err := os.WriteFile(filepath.FromSlash(file), text, 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}
