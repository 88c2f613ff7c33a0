package archive

import (
	"io"
	"log"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

func TestAPushedImageIsTheOneThatWasBuilt(t *testing.T) {
	image := build(t, "runner")
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	pushed, err := Push(t.Context(), image, host+"/team/")
	if err != nil {
		t.Fatal(err)
	}
	tag := image.Ref[strings.LastIndexByte(image.Ref, ':'):]
	if pushed.Ref != host+"/team/runner"+tag {
		t.Errorf("pushed as %s", pushed.Ref)
	}
	ref, err := name.ParseReference(pushed.Ref)
	if err != nil {
		t.Fatal(err)
	}
	there, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	if made, err := there.ConfigFile(); err != nil || made.Config.User != "65532:65532" {
		t.Errorf("%+v, %v", made, err)
	}
}
