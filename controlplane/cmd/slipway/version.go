package main

import (
	"io"
	"runtime/debug"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
)

// versions are ours and, where it was asked for, the control plane's.
type versions struct {
	Client string       `json:"client"`
	Server *api.Version `json:"server,omitempty"`
}

func (c *cli) versionVerb() *cobra.Command {
	var alone bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Show the versions of this program and of the control plane",
		Args:  exactly(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versions{Client: ownVersion()}
			if !alone {
				calls, err := c.connect(cmd.Context())
				if err != nil {
					return err
				}
				server, err := calls.Version(cmd.Context())
				if err != nil {
					return err
				}
				v.Server = &server
			}
			return c.print(v, func(w io.Writer) error {
				rows := [][2]string{{"client", v.Client}}
				if v.Server != nil {
					rows = append(rows, [2]string{"server", joined(" ", v.Server.Version, v.Server.Commit, v.Server.Go)})
				}
				return pairs(w, rows)
			})
		},
	}
	cmd.Flags().BoolVar(&alone, "client", false, "only of this program, asking nobody")
	return cmd
}

func ownVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}
