package proxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net/http"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

var watches = APIMatch{Verbs: []string{"watch"}}

func TestAWatchPassesItsEventsAndItsEnd(t *testing.T) {
	api, server, client := stand(t)
	heard := watching(t, client, api)
	for _, e := range []string{said("ADDED", "a", "1"), said("MODIFIED", "a", "2")} {
		server.events <- e
		hear(t, heard, e)
	}
	close(server.events)
	if e, open := <-heard; open {
		t.Errorf("heard %q after the end", e)
	}
}

func TestASilentWatchHoldsItsEventsAndItsEnd(t *testing.T) {
	api, server, client := stand(t)
	heard := watching(t, client, api)
	remove := api.Add(APIFault{Action: APISilentRequests, Match: watches})
	e := said("ADDED", "a", "1")
	server.events <- e
	if _, _, err := ask(t.Context(), client, http.MethodGet, api.URL()+jobs); err != nil {
		t.Errorf("what is no watch: %v", err)
	}
	close(server.events)
	select {
	case got := <-heard:
		t.Errorf("heard %q", got)
	case <-time.After(100 * time.Millisecond): // the silence itself is what is tested
	}
	remove()
	hear(t, heard, e)
	if _, open := <-heard; open {
		t.Error("the end of the watch did not come")
	}
}

func TestEventsAreDelayedFromWhenTheyCame(t *testing.T) {
	api, server, client := stand(t)
	heard := watching(t, client, api)
	remove := api.Add(APIFault{Action: APIDelayedEvent, Match: watches, For: 200 * time.Millisecond})
	began := time.Now()
	for _, v := range []string{"1", "2", "3"} {
		server.events <- said("MODIFIED", "a", v)
	}
	for _, v := range []string{"1", "2", "3"} {
		hear(t, heard, said("MODIFIED", "a", v))
	}
	if took := time.Since(began); took < 200*time.Millisecond {
		t.Errorf("three events came after %v", took)
	}
	remove()
	api.Add(APIFault{Action: APIDelayedEvent, Match: watches, For: time.Hour})
	server.events <- said("MODIFIED", "a", "4")
	api.Clear()
	hear(t, heard, said("MODIFIED", "a", "4"))
	if n := api.Counts()["api_delayed_event"]; n < 3 {
		t.Errorf("counted %d", n)
	}
}

func TestAnOlderEventComesAgainAsModified(t *testing.T) {
	api, server, client := stand(t)
	heard := watching(t, client, api)
	for _, v := range []string{"1", "2"} {
		server.events <- said(map[string]string{"1": "ADDED", "2": "MODIFIED"}[v], "a", v)
		<-heard
	}
	api.Add(APIFault{Action: APIOlderEvent, Match: watches, Times: 1})
	server.events <- said("ADDED", "b", "3")
	hear(t, heard, said("ADDED", "b", "3"))
	hear(t, heard, said("MODIFIED", "a", "1")) // the only event that is not its object's newest
	server.events <- said("DELETED", "a", "4")
	hear(t, heard, said("DELETED", "a", "4"))
	if api.Counts()["api_older_event"] != 1 {
		t.Errorf("counts %v", api.Counts())
	}
}

func TestAWatchEndsCleanlyAfterItsTime(t *testing.T) {
	api, _, client := stand(t)
	heard := watching(t, client, api)
	api.Add(APIFault{Action: APIEndedWatch, Match: watches, For: time.Millisecond})
	if e, open := <-heard; open {
		t.Errorf("heard %q", e)
	}
	if api.Counts()["api_ended_watch"] != 1 {
		t.Errorf("counts %v", api.Counts())
	}
}

func TestAnExpiredWatchIsA200WithAnErrorEvent(t *testing.T) {
	api, server, client := stand(t)
	api.Add(APIFault{Action: APIExpiredEvent, Match: watches, Times: 1})
	heard := watching(t, client, api)
	hear(t, heard, `{"type":"ERROR","object":`+APIStatus(http.StatusGone, "Expired", 0).Body+"}")
	if _, open := <-heard; open || server.asked.Load() != 0 {
		t.Errorf("the watch went on; the server was asked %d times", server.asked.Load())
	}
}

// encoded is a watch event as the API server writes it in protobuf.
func encoded(t *testing.T, kind, uid string) []byte {
	t.Helper()
	object, err := (&metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "n", Namespace: "ns", UID: types.UID(uid), ResourceVersion: "12", Labels: map[string]string{"a": "b"}, Generation: 300,
	}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	unknown, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: object}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := (&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: append([]byte("k8s\x00"), unknown...)}}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(raw))), raw...)
}

func TestProtobufEventsAreReadAndRewritten(t *testing.T) {
	one := encoded(t, "ADDED", "u")
	next := frames.reader(bytes.NewReader(append(bytes.Clone(one), one...)))
	raw, err := next()
	if err != nil || !bytes.Equal(raw, one) {
		t.Fatalf("read %d bytes, %v, want %d", len(raw), err, len(one))
	}
	e, err := frames.parse(raw)
	if err != nil || e.kind != "ADDED" || e.uid != "u" {
		t.Errorf("parsed %q %q, %v", e.kind, e.uid, err)
	}
	if again := frames.modified(e); !bytes.Equal(again, encoded(t, "MODIFIED", "u")) {
		t.Errorf("rewritten as %q", again)
	}
	_, _ = next()
	if _, err := next(); !errors.Is(err, io.EOF) {
		t.Errorf("the end is %v", err)
	}
	torn := frames.reader(bytes.NewReader(one[:len(one)-1]))
	if _, err := torn(); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a torn event is %v", err)
	}
	if _, err := frames.parse([]byte{0, 0, 0, 3, 0xff, 0xff, 0xff}); err == nil {
		t.Error("what is no message was parsed")
	}
}
