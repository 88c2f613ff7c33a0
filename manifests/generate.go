package manifests

//go:generate go run ./rights/write
