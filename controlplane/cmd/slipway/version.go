package main

import (
	"io"

	"github.com/spf13/cobra"
)

func (c *cli) versionVerb() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version of the control plane",
		Args:  exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			api, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			v, err := api.Version(cmd.Context())
			if err != nil {
				return err
			}
			return c.print(v, func(w io.Writer) error { return line(w, "slipway", v.Version, v.Commit, v.Go) })
		},
	}
}
