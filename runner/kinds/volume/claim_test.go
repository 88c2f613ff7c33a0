package volume

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
)

func claimOf(t *testing.T, status string) *claim {
	t.Helper()
	c := &claim{}
	if err := json.Unmarshal([]byte(`{"metadata":{"name":"data"},"status":`+status+`}`), c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestAVolumeIsSettledOnlyWhenNothingIsPendingOnItsSize(t *testing.T) {
	for status, want := range map[string]bool{
		`{"capacity":{"storage":"2Gi"}}`: true,
		`{"capacity":{"storage":"2Gi"},"allocatedResources":{"storage":"2Gi"},"conditions":[{"type":"Resizing","status":"False"}]}`: true,
		`{"capacity":{"storage":"2Gi"},"allocatedResourceStatuses":{"storage":"NodeResizeInProgress"}}`:                             false,
		`{"capacity":{"storage":"2Gi"},"conditions":[{"type":"Resizing","status":"True"}]}`:                                         false,
		`{"capacity":{"storage":"2Gi"},"conditions":[{"type":"FileSystemResizePending","status":"True"}]}`:                          false,
	} {
		if got := claimOf(t, status).settled(); got != want {
			t.Errorf("%s: settled %v", status, got)
		}
	}
}

func TestAWishIsTakenBackToTheLeastThatKubernetesTakesOrSaysWhatGoesOn(t *testing.T) {
	want := resource.MustParse("3Gi")
	for _, tc := range []struct{ status, least, goesOn string }{
		{`{"capacity":{"storage":"1Gi"}}`, "1073741825", ""},
		{`{"capacity":{"storage":"1Gi"},"allocatedResources":{"storage":"3Gi"},"allocatedResourceStatuses":{"storage":"ControllerResizeInfeasible"}}`, "1073741825", ""},
		{`{"capacity":{"storage":"1Gi"},"allocatedResources":{"storage":"3Gi"},"allocatedResourceStatuses":{"storage":"ControllerResizeInProgress"}}`, "1073741825", "may still grow to 3Gi"},
		// A resizer that began again has forgotten the error, and goes on to its old target.
		{`{"capacity":{"storage":"1Gi"},"allocatedResources":{"storage":"3Gi"},"allocatedResourceStatuses":{"storage":"ControllerResizeInProgress"},"conditions":[{"type":"ControllerResizeError","status":"True"}]}`, "1073741825", "may still grow to 3Gi"},
		// The resizer has taken the lower wish.
		{`{"capacity":{"storage":"1Gi"},"allocatedResources":{"storage":"1073741825"},"allocatedResourceStatuses":{"storage":"ControllerResizeInProgress"}}`, "1073741825", ""},
		{`{"capacity":{"storage":"1Gi"},"allocatedResources":{"storage":"2Gi"},"allocatedResourceStatuses":{"storage":"NodeResizePending"}}`, "2Gi", "the device has 2Gi already"},
		{`{"capacity":{"storage":"1Gi"},"allocatedResources":{"storage":"3Gi"},"allocatedResourceStatuses":{"storage":"NodeResizeInProgress"}}`, "0", "the device has 3Gi already"},
		{`{"capacity":{"storage":"1Gi"},"allocatedResources":{"storage":"3Gi"},"allocatedResourceStatuses":{"storage":"NodeResizeInfeasible"}}`, "0", "the device has 3Gi already"},
		{`{"capacity":{"storage":"1Gi"},"allocatedResources":{"storage":"2Gi"},"allocatedResourceStatuses":{"storage":"NodeResizeInfeasible"}}`, "2Gi", "the device has 2Gi already"},
		{`{"capacity":{"storage":"3Gi"},"conditions":[{"type":"Resizing","status":"True"}]}`, "0", ""},
		{`{"capacity":{"storage":"3221225471"}}`, "0", ""},
		{`{"capacity":{"storage":"1Gi"},"conditions":[{"type":"FileSystemResizePending","status":"True"}]}`, "0", "the device has grown already"},
	} {
		c := claimOf(t, tc.status)
		least, on := lowered(c, want), goesOn(c)
		if least.Cmp(resource.MustParse(tc.least)) != 0 || !strings.Contains(on, tc.goesOn) || (on == "") != (tc.goesOn == "") {
			t.Errorf("%s: %v, %q", tc.status, &least, on)
		}
	}
}
