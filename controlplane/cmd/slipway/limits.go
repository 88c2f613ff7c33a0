package main

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"slipway.dev/slipway/pkg/api"
)

const noLimit = "none"

func (c *cli) limitsVerb() *cobra.Command {
	var storage string
	cmd := &cobra.Command{
		Use:   "limits [NAMESPACE]",
		Short: "Show what a namespace may use and uses; --storage sets its limit of storage",
		Long: "Show what a namespace may use and uses: storage, with the open tasks that have reserved some, and queues. With --storage,\n" +
			"set how much its volume claims may ask for together; none takes the limit away. What would pass it is refused at submit.",
		Example: "  slipway limits shop --storage 500Gi",
		Args:    atMostOne(),
		RunE: func(cmd *cobra.Command, args []string) error {
			setting := cmd.Flags().Changed("storage")
			if setting && storage == "" {
				return usageError{errors.New("--storage is empty; none takes the limit away")}
			}
			calls, err := c.connect(cmd.Context())
			if err != nil {
				return err
			}
			namespace, err := c.inNamespace()
			if len(args) > 0 {
				namespace, err = args[0], nil
			}
			if err != nil {
				return err
			}
			if namespace == "" {
				return usageError{errors.New("say of which namespace")}
			}
			var limits api.LimitList
			switch {
			case !setting:
				limits, err = calls.Limits(cmd.Context(), namespace)
			case storage == noLimit:
				limits, err = calls.LiftStorageLimit(cmd.Context(), namespace)
			default:
				limits, err = calls.LimitStorage(cmd.Context(), namespace, storage)
			}
			if err != nil {
				return err
			}
			return c.print(limits, func(w io.Writer) error { return limitsTable(w, limits) })
		},
	}
	cmd.Flags().StringVar(&storage, "storage", "", "most storage that its volume claims may ask for together, as 500Gi; or none")
	return cmd
}

func limitsTable(w io.Writer, limits api.LimitList) error {
	if err := storageTable(w, limits.Storage); err != nil {
		return err
	}
	if err := line(w); err != nil {
		return err
	}
	return limitTable(w, limits.Items)
}

func storageTable(w io.Writer, s *api.StorageLimit) error {
	if s == nil {
		return line(w, "storage", "no limit")
	}
	if err := pairs(w, [][2]string{{"storage", s.Limit}, {"in use", s.InUse}, {"reserved", s.Reserved}, {"note", s.Note}}); err != nil {
		return err
	}
	for _, t := range s.Tasks {
		if err := line(w, "", fmt.Sprintf("%s to %s by %s", t.Pvc, t.Size, t.Task)); err != nil {
			return err
		}
	}
	if more := int(s.Open) - len(s.Tasks); more > 0 {
		return line(w, "", fmt.Sprintf("and %d more", more))
	}
	return nil
}
