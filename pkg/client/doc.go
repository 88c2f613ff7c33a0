// Package client is the Go client of Slipway's API:
//
//	c, err := client.New(client.Config{Server: "http://slipway:8080", Token: client.StaticToken(token)})
//	made, err := c.Submit(ctx, api.SubmitTask{Kind: "command.run", Namespace: "shop", Params: params}, "night-2026-11-30")
//	ended, err := c.Wait(ctx, made.Task.ID)
//
// What the server refuses is an [Error] with the server's own words. Requests that may safely be sent twice are sent
// again while the server is unavailable or busy; a submit is one of them if it has an idempotency key.
//
// client.gen.go is generated from pkg/api/openapi.yaml.
//
// Allowed imports: pkg/api, the generated code's runtime and the standard library.
package client
