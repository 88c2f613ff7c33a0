"""A runner in any language: start, heartbeat, finish (the runner protocol v1 of openapi.yaml). Standard library only."""
import json, os, ssl, sys, threading, time, urllib.error, urllib.request

env, progress, ended = os.environ, {"done": 0, "total": 0}, {"outcome": "failed", "reason": "error"}
ids = {"attempt": int(env["SLIPWAY_ATTEMPT"]), "fence": int(env["SLIPWAY_FENCE"])}
tls = ssl.create_default_context(cadata=env.get("SLIPWAY_CA")) if env["SLIPWAY_URL"].startswith("https:") else None

def call(verb, bearer, **body):
    headers = {"Authorization": "Bearer " + bearer, "Content-Type": "application/json"}
    request = urllib.request.Request(env["SLIPWAY_URL"] + "/v1/runner/" + verb, json.dumps(ids | body).encode(), headers)
    with urllib.request.urlopen(request, timeout=10, context=tls) as answer:
        return json.loads(answer.read() or "null")

def work(params):  # yours: prints its log, tells its progress, leaves its result
    for n, word in enumerate(params["command"], 1):
        print(word, flush=True)
        progress.update(done=n, total=len(params["command"]))
    ended.update(outcome="succeeded", reason="", result={"words": n})

try:
    task = call("start", open(env.get("SLIPWAY_TOKEN_FILE", "/var/run/secrets/slipway/token")).read().strip())
except OSError as error:  # nothing has run: 121 where the start was refused, 122 where nobody answered
    sys.exit(121 if getattr(error, "code", 0) == 409 else 122)
ids["pod_uid"], good = env["SLIPWAY_POD_UID"], time.monotonic()
worker = threading.Thread(target=work, args=(task["params"],), daemon=True)
worker.start()
busy = True
while busy:  # a last beat carries the last progress, however short the work was
    worker.join(task["heartbeat_seconds"])
    busy = worker.is_alive()
    try:
        if call("heartbeat", task["session_key"], progress=progress)["cancel"] and busy:
            ended.update(outcome="canceled", reason="cancel")
            break
        good = time.monotonic()
    except OSError as error:  # 409: another attempt may hold the lane, so stop at once; else try on up to the fence time
        if getattr(error, "code", 0) == 409 or time.monotonic() - good > task["fence_after_seconds"]:
            os._exit(1)
call("finish", task["session_key"], **ended)
sys.exit(ended["outcome"] != "succeeded")
