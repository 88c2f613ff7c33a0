#!/usr/bin/env bash
# Submits a task with curl and follows it to its end: submit.sh NAMESPACE ACCOUNT TASK.json (curl 7.76 or later, jq, kubectl).
# SLIPWAY_URL is the control plane, SLIPWAY_CA the file of its authority. Exits with 0 if the task succeeded, 1 if not.
set -euo pipefail
namespace=$1 account=$2 task=$3 renew=0 said='' answer=$(mktemp)
trap 'rm -f "$answer"' EXIT

call() { # PATH [CURL-OPTION...]: the token stands in no list of processes, and is renewed before its ten minutes are over
	if ((SECONDS >= renew)); then
		token=$(kubectl -n "$namespace" create token "$account" --audience slipway --duration 10m)
		renew=$((SECONDS + 300))
	fi
	curl -sS --fail-with-body --retry 8 --retry-connrefused --max-time 30 ${SLIPWAY_CA:+--cacert "$SLIPWAY_CA"} -o "$answer" \
		-H @<(printf 'Authorization: Bearer %s\n' "$token") "${@:2}" "$SLIPWAY_URL/v1/$1" || {
		jq -r '"\(.title): \(.detail // "")", (.errors[]? | "\(.pointer) \(.reason)")' "$answer" >&2
		exit 2
	}
}

# With a key of its own, a submit whose answer was lost can be sent again.
call tasks -H "Idempotency-Key: $(</proc/sys/kernel/random/uuid)" -H 'Content-Type: application/json' --data-binary "@$task"
id=$(jq -r .id "$answer")
while
	now=$(jq -r '[.phase, .waiting.reason, .reason, .message, (.progress // empty | "\(.done // 0)/\(.total // "?")")] | map(values) | join(" ")' "$answer")
	[ "$now" = "$said" ] || printf '%s %s\n' "$id" "$now"
	said=$now && jq -e '.state | IN("queued", "running")' "$answer" >/dev/null
do sleep 1 && call "tasks/$id"; done
jq -e '.state == "succeeded"' "$answer" >/dev/null
