package httpapi

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
)

// caller is who may use a route.
type caller int

const (
	anybody caller = iota
	user           // a user's token
	pod            // the token of a runner's pod
	session        // a session key, checked with the body
)

// Sizes of bodies.
const (
	kib        = 1 << 10
	mib        = 1 << 20
	noBody     = 0
	smallBody  = 16 * kib
	submitBody = 1 * mib
	batchBody  = 16 * mib
	finishBody = 4 * mib // result, message and tail of a log, before they are cut
)

// route is how the edge treats one operation before its handler sees it.
type route struct {
	method, path string
	caller       caller
	body         int64 // most bytes
	clean        bool  // text that cannot be stored is replaced, not refused: it comes from a tool, not from a user
}

// routes are all operations of openapi.yaml. A test holds the two against each other.
var routes = []route{
	{http.MethodPost, "/v1/tasks", user, submitBody, false},
	{http.MethodPost, "/v1/tasks:batch", user, batchBody, false},
	{http.MethodPost, "/v1/tasks:retry", user, smallBody, false},
	{http.MethodPost, "/v1/tasks:cancel", user, smallBody, false},
	{http.MethodGet, "/v1/tasks", user, noBody, false},
	{http.MethodGet, "/v1/tasks/{id}", user, noBody, false},
	{http.MethodPatch, "/v1/tasks/{id}", user, smallBody, false},
	{http.MethodDelete, "/v1/tasks/{id}", user, noBody, false},
	{http.MethodPost, "/v1/tasks/{id}/cancel", user, smallBody, false},
	{http.MethodPost, "/v1/tasks/{id}/retry", user, noBody, false},
	{http.MethodPost, "/v1/tasks/{id}/hold", user, smallBody, false},
	{http.MethodPost, "/v1/tasks/{id}/unhold", user, noBody, false},
	{http.MethodGet, "/v1/tasks/{id}/attempts", user, noBody, false},
	{http.MethodGet, "/v1/tasks/{id}/events", user, noBody, false},
	{http.MethodGet, "/v1/tasks/{id}/logs", user, noBody, false},

	{http.MethodGet, "/v1/kinds", user, noBody, false},
	{http.MethodPatch, "/v1/kinds/{kind}", user, smallBody, false},
	{http.MethodGet, "/v1/queues", user, noBody, false},
	{http.MethodGet, "/v1/queues/{queue}", user, noBody, false},
	{http.MethodPatch, "/v1/queues/{queue}", user, smallBody, false},
	{http.MethodPost, "/v1/queues/{queue}/pause", user, smallBody, false},
	{http.MethodPost, "/v1/queues/{queue}/drain", user, smallBody, false},
	{http.MethodPost, "/v1/queues/{queue}/resume", user, smallBody, false},
	{http.MethodGet, "/v1/lanes", user, noBody, false},
	{http.MethodPost, "/v1/lanes:check", user, smallBody, false},
	{http.MethodPost, "/v1/lanes:force-release", user, smallBody, false},
	{http.MethodGet, "/v1/freezes", user, noBody, false},
	{http.MethodPost, "/v1/freezes", user, smallBody, false},
	{http.MethodDelete, "/v1/freezes/{id}", user, noBody, false},
	{http.MethodGet, "/v1/limits/{namespace}", user, noBody, false},
	{http.MethodPut, "/v1/limits/{namespace}", user, smallBody, false},
	{http.MethodGet, "/v1/audit", user, noBody, false},

	{http.MethodPost, "/v1/schedules", user, submitBody, false},
	{http.MethodGet, "/v1/schedules", user, noBody, false},
	{http.MethodPost, "/v1/schedules:preview", user, smallBody, false},
	{http.MethodGet, "/v1/schedules:collisions", user, noBody, false},
	{http.MethodGet, "/v1/schedules/{id}", user, noBody, false},
	{http.MethodPatch, "/v1/schedules/{id}", user, submitBody, false},
	{http.MethodDelete, "/v1/schedules/{id}", user, noBody, false},
	{http.MethodPost, "/v1/schedules/{id}/pause", user, noBody, false},
	{http.MethodPost, "/v1/schedules/{id}/resume", user, noBody, false},
	{http.MethodPost, "/v1/schedules/{id}/run", user, noBody, false},
	{http.MethodPost, "/v1/schedules/{id}/backfill", user, smallBody, false},
	{http.MethodGet, "/v1/schedules/{id}/preview", user, noBody, false},
	{http.MethodGet, "/v1/schedules/{id}/fires", user, noBody, false},
	{http.MethodGet, "/v1/calendars", user, noBody, false},
	{http.MethodGet, "/v1/calendars/{calendar}", user, noBody, false},
	{http.MethodPut, "/v1/calendars/{calendar}", user, submitBody, false},
	{http.MethodDelete, "/v1/calendars/{calendar}", user, noBody, false},

	{http.MethodPost, "/v1/runner/start", pod, smallBody, true},
	{http.MethodPost, "/v1/runner/heartbeat", session, smallBody, true},
	{http.MethodPost, "/v1/runner/finish", session, finishBody, true},

	{http.MethodGet, "/v1/version", anybody, noBody, false},
	{http.MethodGet, "/v1/openapi.yaml", anybody, noBody, false},
}

// probes are the routes outside the document.
func (s *server) probes(e *gin.Engine) {
	e.GET("/healthz", s.healthz)
	e.GET("/readyz", s.readyz)
	e.GET("/metrics", gin.WrapH(s.metrics))
	if s.docs != nil {
		e.GET("/docs", gin.WrapH(s.docs))
		e.GET("/docs/:page", gin.WrapH(s.docs))
	}
}

// ginPath writes a path of the document as gin names the route it found.
func ginPath(path string) string {
	return strings.NewReplacer("{", ":", "}", "").Replace(path)
}
