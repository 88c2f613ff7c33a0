package app

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"
)

func environment(extra ...string) []string {
	return append([]string{
		"SLIPWAY_DATABASE_URL=postgres://u:hunter2@h/d", "SLIPWAY_NAMESPACES=shop,bank", "SLIPWAY_RUNNER_IMAGE=runner:1",
		"SLIPWAY_RUNNER_URL=http://slipway:8080", "SLIPWAY_REPLICA=a", "SLIPWAY_PLAIN_HTTP=true",
		// What Kubernetes sets in the pods of a namespace that has a Service of that name.
		"SLIPWAY_PORT=tcp://10.0.0.1:8080", "SLIPWAY_SERVICE_HOST=10.0.0.1",
	}, extra...)
}

const noTLS = "SLIPWAY_TLS_CERT: is not set: name a certificate and its key (SLIPWAY_TLS_CERT, SLIPWAY_TLS_KEY), or say SLIPWAY_PLAIN_HTTP=true"

func TestWhatIsNotSetHasItsDefault(t *testing.T) {
	c, err := ReadConfig(environment())
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != ":8080" || c.DatabaseConns != 16 || c.Heartbeat != 10*time.Second || c.Drain != 2*time.Second ||
		!reflect.DeepEqual(c.Namespaces, []string{"shop", "bank"}) || !reflect.DeepEqual(c.Audiences, []string{"slipway"}) ||
		c.TrustedProxies != nil || c.Replica != "a" {
		t.Errorf("got %+v", c)
	}
}

func TestABadValueIsNamedAndNotShown(t *testing.T) {
	for setting, want := range map[string]string{
		"SLIPWAY_POLL=hunter3":                "SLIPWAY_POLL: is no duration, as 10s or 1m30s",
		"SLIPWAY_POLL=0s":                     "SLIPWAY_POLL: must be above zero",
		"SLIPWAY_DRAIN=-1s":                   "SLIPWAY_DRAIN: must not be below zero",
		"SLIPWAY_LAUNCHES=many":               "SLIPWAY_LAUNCHES: is no number",
		"SLIPWAY_DATABASE_CONNS=-4":           "SLIPWAY_DATABASE_CONNS: must be above zero",
		"SLIPWAY_DATABASE_URL=":               "SLIPWAY_DATABASE_URL: is empty",
		"SLIPWAY_LISTEN=8080":                 "SLIPWAY_LISTEN: is no address, as :8080 or 127.0.0.1:8080",
		"SLIPWAY_LOG_LEVEL=loud":              "SLIPWAY_LOG_LEVEL: must be debug, info, warn or error",
		"SLIPWAY_NAMESPACES=*,shop":           "SLIPWAY_NAMESPACES: must be names of namespaces, or * alone",
		"SLIPWAY_NAMESPACES=Shop":             "SLIPWAY_NAMESPACES: must be names of namespaces, or * alone",
		"SLIPWAY_TRUSTED_PROXIES=10.0.0.0/99": "SLIPWAY_TRUSTED_PROXIES: must be addresses or ranges, as 10.0.0.0/8",
		"SLIPWAY_RUNNER_URL=slipway:8080":     "SLIPWAY_RUNNER_URL: is no http or https URL",
		"SLIPWAY_PLAIN_HTTP=yes please":       "SLIPWAY_PLAIN_HTTP: is no true or false\n" + noTLS,
		"SLIPWAY_RUNNER_CA=/ca.crt":           "SLIPWAY_RUNNER_CA: is set, and SLIPWAY_RUNNER_URL is plain http",
		"SLIPWAY_AUDIENCES=slipway-runner":    "SLIPWAY_AUDIENCES: must not hold slipway-runner, which is the runners'",
	} {
		_, err := ReadConfig(environment(setting))
		if err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", setting, err, want)
		}
	}
}

func TestEverythingThatIsMissingIsNamedAtOnce(t *testing.T) {
	_, err := ReadConfig([]string{"SLIPWAY_REPLICA=a", "SLIPWAY_POLL=x"})
	want := "SLIPWAY_DATABASE_URL: is not set\nSLIPWAY_NAMESPACES: is not set\nSLIPWAY_POLL: is no duration, as 10s or 1m30s\n" +
		"SLIPWAY_RUNNER_IMAGE: is not set\nSLIPWAY_RUNNER_URL: is not set\n" +
		noTLS
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
}

func TestTokensGoInTheClearOnlyWhereThatIsAskedFor(t *testing.T) {
	const cert, key, plain, https = "SLIPWAY_TLS_CERT=c", "SLIPWAY_TLS_KEY=k", "SLIPWAY_PLAIN_HTTP=", "SLIPWAY_RUNNER_URL=https://slipway:8080"
	for _, tc := range []struct {
		set  []string
		want string
	}{
		{[]string{plain + "true"}, ""},
		{[]string{plain + "true", https, "SLIPWAY_RUNNER_CA=ca"}, ""}, // something in front ends the TLS
		{[]string{plain + "false", cert, key, https, "SLIPWAY_RUNNER_CA=ca"}, ""},
		{[]string{plain + "false", cert, key, https}, ""},
		{[]string{plain + "false"}, noTLS},
		{[]string{plain + "false", cert, https}, "SLIPWAY_TLS_KEY: is not set, and SLIPWAY_TLS_CERT is"},
		{[]string{plain + "false", key, https}, "SLIPWAY_TLS_CERT: is not set, and SLIPWAY_TLS_KEY is"},
		{[]string{plain + "true", cert, key, https}, "SLIPWAY_PLAIN_HTTP: is true, and a certificate is set: one of the two"},
		{[]string{plain + "false", cert, key}, "SLIPWAY_RUNNER_URL: is plain http, and this serves TLS"},
	} {
		got := ""
		if _, err := ReadConfig(environment(tc.set...)); err != nil {
			got = err.Error()
		}
		if got != tc.want {
			t.Errorf("%v: got %s, want %s", tc.set, got, tc.want)
		}
	}
}

func TestHelpExplainsEveryVariable(t *testing.T) {
	var out bytes.Buffer
	if err := Help(&out); err != nil {
		t.Fatal(err)
	}
	for f := range reflect.TypeFor[Config]().Fields() {
		line := ""
		for l := range strings.Lines(out.String()) {
			if strings.Contains(l, variable(f)+" ") {
				line = l
			}
		}
		doc := f.Tag.Get("doc")
		if doc == "" || !strings.Contains(line, doc) {
			t.Errorf("%s is not explained: %q", variable(f), line)
		}
		hasDefault := strings.Contains(line, "(") || strings.Contains(doc, "Default:")
		if !hasDefault {
			t.Errorf("%s has no stated default: %q", variable(f), line)
		}
	}
}
